"""Work that comes due by the broker's clock: retention and compaction of all logs.

Begin with `rounds.py`. Compaction runs in a process of its own, `cleaning_process.py`.
"""
