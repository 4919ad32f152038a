"""The metadata in one SQLite file, which several processes of a machine may have open.

Promises durable transactions, which hold their conditions against every other process, and leases
by one clock. Begin with `store.py`. The other questions:
- what a call does in the tables: `tables.py`; files of an older layout: `migration.py`
- how a commit of another process is noticed without reading: `commit_mark.py`
- how long a lease lasts and when it ends: `tables.py`; by which clock: `lease_clock.py`
"""
