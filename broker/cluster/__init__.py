"""A broker as one of several: its session, its lease, and its turn as the controller.

Promises that a broker serves nothing as a member of the cluster unless it is registered and its
image shows that. What is written is decided by the pure functions of `broker/membership` and
`broker/replication/controller`; this is their shell on the event loop. A broker that is alone
imports none of it. Begin with `cluster.py`.
"""
