"""Compaction of a partition's log: the newest record of each key stays (KIP-58, KIP-534).

Compaction writes new files beside the segments, then replaces the segments by renaming. Begin with
`plan.py`: what may be compacted, and whether it is due. `explain.py`: what compaction waits for.
`cleaner.py` decides which records and batches stay, `decided_transactions.py` which transactions.
`cleaned_segment.py` writes the new files. `swap.py` renames them into place. `job.py` is all that a
cleaning has to know. Rules of time are in `storage/time` (`compaction_lag.py`, `tombstones.py`).
`storage/log/compactor.py` puts cleaned segments into a log that is in use, and broker/logs/maintenance
decides when, and runs the cleaner in another process.
"""
