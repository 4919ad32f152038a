"""One segment of a partition: its log file, the indexes beside it, and its append times.

A segment takes whole batches that already have offsets and stamps, finds them by position, offset
or time, and rebuilds missing indexes. It knows nothing of its partition. Begin with `segment.py`;
`log_file.py` iterates over batches; every other file of a segment has a module of its name.
"""
