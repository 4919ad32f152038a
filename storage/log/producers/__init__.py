"""What a partition knows of idempotent producers, so that a retry is not stored twice (KIP-98).

`producer_state.py` is the state and its checks, `producer_snapshots.py` its files in Kafka's
format, and `recovered_producers.py` builds it again from the newest snapshot and the log.
"""
