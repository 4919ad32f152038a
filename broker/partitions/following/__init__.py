"""A partition that follows a leader: the machine `replication/follower.py` around a real log.

Promises that a follower appends what its leader sent, as it was sent. Begin with `fetcher.py`: one connection
to each leader, for all partitions that it leads. `partition_follower.py` appends and truncates, and
`leader_clocks.py` compares the clocks of leaders with this broker's.
"""
