"""How a broker registers in its cluster, keeps its session, and stops.

Promises that a broker serves nothing unless it is registered and its image shows that, that one that may
have lost records is not elected for having them, and that one that stops takes no leader with it. Begin
with `cluster.py`, one of several brokers (`session.py`, `keep_alive.py`); `sole_member.py` is the broker
whose metadata nobody shares, and loads nothing else. Pure functions decide what they write:
`registration.py`, `clean_start.py`, `controlled_shutdown.py`, `unregistration.py`. `lease.py` says whether a
session may still go on, `proof.py` how a broker proves its requests; `directories.py` keeps the
registration files, and `leadership.py` claims partitions that nobody leads.
"""
