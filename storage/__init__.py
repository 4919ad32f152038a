"""The log on disk: segments, their indexes, producers' state, recovery, and the home of time.

Synchronous and pure of event loop, socket and clock: `now_ms` is an argument. `store.LogStore`
is the door; it hands out `partition.Partition`s, which append, read and look up. Everything that
is wrong is raised as a `protocol.errors.BrokerError`, or as `log_directory.LogDirectoryError` at start.
"""
