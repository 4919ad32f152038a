"""The state of idempotent producers in a partition, so that a retry is not stored twice (KIP-98).

Begin with `producer_state.py`, the state and its checks. `producer_snapshots.py` reads and writes
its files in Kafka's format, and `recovered_producers.py` rebuilds the state from the newest
snapshot and the log.
"""
