"""What the cluster knows about itself: topics, who has their partitions, settings, producer ids.

Promises that a change is durable and in the image when its call returns, and that nobody's change is
overwritten by one that was decided without knowing it. Begin with `cluster.py`, what the broker calls;
`image.py` is what it reads; `store.py` is the contract of the stores below, `sqlite.py` and `memory.py`.
"""
