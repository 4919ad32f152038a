"""What a partition keeps of its times beside the log: the file `partition.times`.

Begin with `partition_times.py`, the file's contents. `largest_event.py` is partition.maxEventTime
while the log is open.
"""
