"""`tidelog dump`: what the files of a log directory say, and a verdict on each.

Begin with `dump.py`. `segments.py` reads logs, `indexes.py` what belongs to them, `files.py`
everything else.
"""
