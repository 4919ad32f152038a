"""What a leader answers to the fetches of its followers.

Begin with `proven.py`, which refuses what no broker of the cluster sends, and `follower_fetch.py`, which
answers a fetch at once or keeps it until there is an update for it.
`session.py` is what one follower has asked for and was not answered yet (KIP-227), `pending_fetch.py` one
question of it, and `throttled.py` what the replication quota of the leader holds back (KIP-73).

A session of a follower is another type than one of a client (`fetch/session.py`), for they share their epochs
alone. A client's session has partitions, and is read again wherever a log has changed. A follower's has
questions: one acknowledges records when it is asked, is passed to the leader once, and is gone when it is
answered. A client's is one of a limited number, which any connection may go on with; a follower's is that of
its connection.
"""
