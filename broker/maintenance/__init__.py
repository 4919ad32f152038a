"""Work that is due by the broker's clock: rounds of retention and compaction over all logs.

Begin with `rounds.py`. Compaction runs in a child process, `cleaning_process.py`.
"""
