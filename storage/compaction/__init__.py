"""Compaction of a partition's log: of each key the newest record stays (KIP-534).

Works on files of its own and puts them in place with one change of names. Begin with `plan.py`
(what may be compacted, and whether it is due), then `cleaner.py` (the work), `swap.py` (new files
for old), `explain.py`.
"""
