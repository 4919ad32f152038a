"""Work that is due by the broker's clock: retention, compaction and scrubbing of all logs.

`clock_watch.py` observes the clock itself, and holds the time by which the rounds may delete.

Begin with `rounds.py`: when a round is due. `retention_rounds.py` deletes expired segments of every
log. `compaction_rounds.py` chooses the logs to compact, and gives each to a child process, which
`compaction_process.py` runs. `scrub_rounds.py` reads closed segments again. What they did and found is
counted in `broker/metrics`. What a round does to one log is in `storage/log/retention/retainer.py` and
`storage/log/compactor.py`. `checkpoint.py` makes every log durable.
"""
