"""`tidelog dump`: the contents of the files of a log directory, and a verdict on each.

Begin with `dump.py`. `segments.py` reads logs, `indexes.py` the other files of segments, `files.py`
all other files.
"""
