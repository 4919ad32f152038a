"""What a leader answers to the fetches of its followers.

Begin with `proven.py`, which refuses what no broker of the cluster sends, and `follower_fetch.py`, which
answers a fetch at once or keeps it until there is an update for it.
`session.py` is what one follower has fetched and was not answered yet (KIP-227), `pending_fetch.py` one
partition of it, and `throttled.py` what the replication quota of the leader holds back (KIP-73).

A session of a follower is another type than one of a client, `fetch/session.py` (decision 62): its entries
are pending fetches, which are gone when they are answered.
"""
