"""A partition that this broker leads: the machine `replication/leader.py` around a real log.

Promises that what the machine returns is carried out in order. Begin with `partition_leader.py`.
Producers with acks=all wait in `acknowledgements.py`. Changes of the ISR are written by `isr_changes.py`.
Requests that come before an elected leader has started wait in `pending_elections.py`; `leaders.py`
has all leaders, and which are suspended.
"""
