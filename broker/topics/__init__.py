"""Topics: decides changes of topics, and creates, deletes and configures the local logs.

Begin with `topics.py`, which requests call. The usual questions:
- which changes of topics, partitions and settings are allowed, and how they are stored:
  `topic_admin.py`
- which partition counts, replication factors and assignments are allowed: `partition_counts.py`
- how logs are created and deleted, after a crash and after another broker's change too:
  `reconciler.py`
- when a Metadata request creates a topic (auto.create.topics.enable): `auto_creation.py`
- how logs get the settings in force (`broker/settings.py`): `applied_settings.py`
- how an only broker becomes the leader of every partition: `leadership.py`
- how copied log directories without metadata become topics: `adoption.py`
- what is logged before changed settings delete data: `forecast.py`
- the order of the steps at start: `startup.py`
"""
