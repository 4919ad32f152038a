"""A broker as a member of its cluster: its session, its lease, and its loop as the controller.

Promises that a broker serves nothing as a member of the cluster unless it is registered and its
image shows that. What is written is decided by the pure functions of `broker/membership` and
`broker/controller`; this room runs them on the event loop. `sole_member.py` is for the broker whose
metadata nobody shares; it loads nothing else of this room. Begin with `cluster.py`.
What a broker writes into its log directories when it registers: `directories.py`. Logs that have failed:
`disks.py` (stored in the metadata), `slow_disks.py`; how they fail: `storage/log/failures.py`.
"""
