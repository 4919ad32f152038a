"""The log on disk: segments, their indexes, producers' state, recovery, and all rules about time.

Synchronous, without event loop, socket or clock: `now_ms` is an argument. Begin with
`directory/store.py`: `LogStore` returns `Partition`s, which append, read and look up. All decisions
about times are in `time/`.
"""
