"""The cluster's metadata: topics, the assignments of partitions, settings, producer ids.

Promises that a change is durable and in the image when its call returns, and that no change
overwrites another change that it was decided without. Begin with `cluster.py`, which the broker
calls. `image.py` is what it reads. `store.py` is the contract of the stores `sqlite.py` and
`memory.py`; `migration.py` brings older SQLite files up to date.
"""
