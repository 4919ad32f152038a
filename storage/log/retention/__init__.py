"""How segments are deleted, and when each will be.

The rules are in `storage/time/retention.py`. `explanation.py` tells what every policy makes of
every segment, `deletion.py` deletes, `pending_deletes.py` keeps deleted files for
file.delete.delay.ms.
"""
