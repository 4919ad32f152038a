"""Replication of one partition: state machines without a clock, a socket or an event loop.

Begin with `messages.py`, which names what comes in and what goes out. Events are method calls; each
returns actions, which the shell carries out in their order. The usual questions:

- the events of a leader, and the answers to clients: `leader.py`; its rules: `leadership.py`
- what a leader knows of one follower, and when that is caught up (KIP-16): `remote.py`
- the ISR, stored and proposed (KIP-497): `in_sync.py`
- a follower: what it asks, what it appends, when it truncates (KIP-101, 279, 320, 595): `follower.py`
- whether this broker may still hold its lease, after a pause or when it is cut off: `lease.py`

What is written about partitions is decided by pure functions on an image of the metadata:

- who is elected, where new replicas go, how replicas come and go (KIP-455): `controller/`
- who has every record, and so may be elected (KIP-966): `eligible_leaders.py`
- a leader's change of its ISR: `isr_change.py`
- what each transaction compares, and how many changes are in one: `transactions.py`
"""
