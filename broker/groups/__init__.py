"""Consumer groups: the classic protocol, committed offsets, and how both are stored.

Begin with `messages.py`, which names the events and the actions. The usual questions:
- join, sync, heartbeat and rebalance, as a pure state machine: `group.py`, its members `members.py`
- when a member is removed for missing heartbeats (session.timeout.ms): `group.py`, `Group.tick`
- which member may commit, by its id and generation: `group.py`, `Group.check_commit`
- the one timer that calls `tick`: `broker/coordination`
- the writes before an answer: `coordinator.py`
- when committed offsets expire (offsets.retention.minutes): `offset_expiry.py`
- committed offsets in memory, and groups and offsets as records: `store.py`
- __consumer_offsets, and reading groups from it: `offsets_topic.py`
- which groups this broker coordinates, and how it takes over others: `broker/coordination`
- finding, listing and deleting groups: `registry.py`
- which topics the members read: `subscriptions.py`
"""
