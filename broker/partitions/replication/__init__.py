"""Replication of one partition: state machines without a clock, a socket or an event loop.

Begin with `messages.py`, which names what comes in and what goes out. Events are method calls; each
returns actions, which the shell carries out in their order. The usual questions:

- the events of a leader, and the answers to clients: `leader.py`
- the rules of a leader: which fetches count (`epochs.py`), who may be in the ISR (`isr.py`), and how far the
  high watermark may move (`high_watermark.py`)
- what a leader knows of one follower, and when that is caught up (KIP-16): `remote.py`
- the ISR, stored and proposed (KIP-497): `isr.py`, too; the change of it as a transaction: `isr_change.py`
- a follower: what it asks, what it appends, when it truncates (KIP-101, 279, 320, 595): `follower.py`
- how fast replicas that are not in sync are copied (KIP-73): `quota.py`
"""
