"""How segments are deleted, and when each will be.

The rules are in `storage/time/retention.py`. `explanation.py` explains every segment under every
policy, `deletion.py` deletes, and `pending_deletes.py` keeps deleted files for
file.delete.delay.ms.
"""
