"""Work that is due by the broker's clock: retention, compaction and scrubbing of all logs.

`clock_watch.py` observes the clock itself, and returns the time by which the rounds may delete.

Begin with `rounds.py`: when a round is due. `retention_rounds.py` deletes expired segments of every
log. `compaction_rounds.py` chooses the logs to compact, and compacts each in a child process, which
`compaction_process.py` runs. `scrub_rounds.py` reads closed segments again, `disk_space_watch.py` finds
out when a full disk has space again, `checkpoint.py` flushes every log. `broker/metrics` counts what the
rounds did and found. What a round does to one log is in `storage/log/retention/retainer.py` and
`storage/log/compactor.py`.
"""
