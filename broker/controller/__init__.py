"""What the controller decides: who leads, on which brokers replicas are, and which topics there are.

Promises that two controllers at once do no harm: each transaction compares what it was decided on. Begin
with `controller.py`, which goes through the partitions and returns transactions; pure, as are `election.py`
(who leads and who stays in the ISR), `placement.py` (KIP-36), `reassignment.py` (KIP-455), `unfinished.py`
and `sessions.py` (for whom the controller waits). `controller_loop.py` is their shell: a broker's turn as
the controller. `rules.py` has what elections obey of a topic's settings, `topics/` what clients change.
"""
