"""Changes of topics, partitions and settings: decided, stored, and then made in the local logs.

Promises that a change is in the metadata before any log has it. Begin with `topics.py`, which requests
call. The usual questions:
- which changes of topics, partitions and settings are allowed, and how they are stored: `topic_admin.py`
- which partition counts, replication factors and assignments are allowed: `partition_counts.py`, `placing.py`
- reassignments and elections that clients ask for: `partition_changes.py`
- when a Metadata request creates a topic (auto.create.topics.enable): `auto_creation.py`
- the order of the steps at start: `startup.py`
How logs are created and deleted, also after another broker's change: `broker/logs/reconciler.py`.
"""
