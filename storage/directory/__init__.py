"""The log directories: what they hold, which partition is in which, and which are open.

Begin with `store.py`, which the broker uses. The usual questions:
- how a partition is created, opened, deleted or set aside as `-stray`: `lifecycle.py`
- the lock, the mark of a clean stop, and the checkpoints of one log directory: `log_directory.py`
- which partitions exist, and which thread may change one: `partition_table.py`
- how partitions are found in the directories at start: `partition_index.py`
- what is known of a partition without opening it: `unopened.py`; leader epochs: `leader_epochs.py`
- what is stored about the broker's clock: `clock_file.py`
- which registration of a broker used a directory, and how it ended: `registration_file.py`
- many partitions flushed or closed in parallel: `parallel.py`; sizes on disk: `disk_usage.py`
"""
