"""The log directories: what they hold, which partition is in which, and which are open.

Begin with `store.py`, which the broker uses. `log_directory.py` is one directory with its lock and
checkpoints; `partition_index.py` knows which partitions exist without opening one.
"""
