"""The cluster's metadata: topics, the assignments of partitions, settings, producer ids.

Promises that a change is durable and in the image when its call returns, and that no change
overwrites another one that its decision did not know. Begin with `cluster.py`, which the broker
calls. The usual questions:
- what the broker reads: `image.py`; how that is made of the keys: `image_builder.py`
- keys and values as stored: `records.py`, docs/formats.md
- which brokers there are, their sessions and registrations: `brokers/`
- who has every record of a partition, and so may be elected (KIP-966): `eligible_leaders.py`
- changes of partitions as transactions, and what each compares: `transactions.py`
- which partitions are offline or under-replicated, and why: `partition_health.py`
- the contract of a store (revisions, compare-and-set, leases, watch): `store.py`
- tidelog.sqlite: `sqlite/`; the store of tests and simulations: `memory.py`
- how a broker notices what another one wrote: `watching.py`
- how brokers of one machine know which of them live: `liveness/`
- which topic names are valid, and how ids are written: `names.py`
"""
