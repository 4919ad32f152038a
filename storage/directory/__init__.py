"""The log directories: what they hold, which partition is in which, and what is open.

Begin with `store.py`, the door for the broker. `log_directory.py` is one directory with its lock
and checkpoints, `partition_index.py` says which partitions there are without opening one.
"""
