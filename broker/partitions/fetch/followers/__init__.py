"""What a leader answers to the fetches of its followers.

Begin with `proven.py`, which refuses what no broker of the cluster sends, and `follower_fetch.py`, which
answers a fetch at once or keeps it until there is an update for it.
`session.py` is what one follower has asked for and was not answered yet (KIP-227), and
`throttled.py` what the replication quota of the leader holds back (KIP-73).
"""
