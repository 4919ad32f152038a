"""The times that a partition stores beside its log: the file `partition.times`.

Begin with `partition_times.py`, which reads and writes the file. `saved_times.py` saves it when a
log's state has changed. `largest_event.py` computes partition.maxEventTime while the log is open.
`append_clock.py` corrects append times after the clock was wrong.
"""
