"""One partition: append, read, look up, flush, delete, compact, follow a leader, truncate.

The log gives batches offsets and append times, knows which of them are durable and which may be
read, and deletes what its policies say. Errors are raised as `protocol.errors.BrokerError`; an
operation that fails leaves the log as it was. Begin with `partition.py`. Where to look:

`state.py`: segments, offsets and locks, shared by all who work on the log. `settings.py`: the
topic's settings for appends. `version.py`: what readers hold. `high_watermark.py`: its policies.
`failures.py`: a disk that fails, and the log that goes offline. `appender.py`: an append.
`rolling.py`: when batches need a new segment (by time: `storage/time/rolling.py`), and how it begins.
`flusher.py`: durability, closing. `epochs.py`: leader epochs, the file `leader-epoch-checkpoint`.
`reader.py`: every read, and its errors. `slices.py` finds the bytes of a fetch, and `lookup.py`
finds offsets by time.
`compactor.py`: replaces segments by compacted ones; the cleaning itself is in `storage/compaction`.
`retention/`: deletion of segments, and `explain`. `recovery/`: opening. `producers/`: idempotent
producers. `replication/`: followers, truncation. `times/`: the file `partition.times`.
"""
