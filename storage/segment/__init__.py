"""One segment of a partition: its log file, the indexes beside it, and its append times.

A segment takes whole batches that somebody else has numbered and stamped, gives them back by
position, offset or time, and rebuilds the indexes that are missing. It knows nothing of the
partition it belongs to. Begin with `segment.py`; `log_file.py` walks over batches; every other file
of a segment has a module of its name.
"""
