"""Compaction of a partition's log: the newest record of each key stays (KIP-58, KIP-534).

Compaction writes new files beside the segments, then replaces the segments by renaming. Begin with
`plan.py` (what may be compacted, and whether it is due); `cleaner.py` does the work, `swap.py`
replaces the segments, and `explain.py` says what compaction waits for.
"""
