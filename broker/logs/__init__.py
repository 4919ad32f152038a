"""The logs of this broker: made what the metadata say, and kept in order.

Promises that a later pass finishes what a crash or a failing disk has interrupted, and that a log of no
topic is renamed, never deleted. Begin with `reconciler.py`, which creates, deletes and configures logs
(`applied_settings.py`; `forecast.py` logs what changed settings will delete). `maintenance/` has the rounds
of retention, compaction and scrubbing. `found_logs.py` makes topics of logs that no metadata know, and
`adoption/` those of a whole Kafka cluster. `disks.py` finds logs that should not lead.
"""
