"""Coordinators whose keys are in an internal topic, `groups/` and `transactions/`, and their one runtime.

A key is in one partition of the topic, by its hash, and the leader of that partition coordinates it.
Begin with `runtime.py`: what both coordinators have, and what it calls of them. The usual questions:
- which partitions this broker coordinates, as a pure state machine: `ownership.py`
- the records of a partition that this broker takes over: `reading.py`
- appending, in the epoch in which the state was loaded: `internal_topic.py`
- following the metadata, as one of several brokers: `following.py`; more replicas: `raising.py`
- the one timer of all deadlines: `deadlines.py`
"""
