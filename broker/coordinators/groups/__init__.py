"""Consumer groups: the classic protocol, committed offsets, and how both are stored.

Begin with `messages.py`, which names the events and the actions. The usual questions:
- join, sync, heartbeat and rebalance, as a pure state machine: `group.py`, its members `members.py`
- when a member is removed for missing heartbeats (session.timeout.ms): `group.py`, `Group.tick`; its
  deadline is set in `members.py`, the bounds of the time-out are checked in `coordinator.py`
- static membership (group.instance.id, KIP-345): `group.py`, `Group.join` and what it calls
- which member may commit, by its id and generation: `group.py`, `Group.check_commit`
- the writes before an answer: `coordinator.py`; which groups are coordinated here, the one timer that
  calls `tick`: the runtime in `broker/coordinators`
- making and deleting groups, max.groups and max.groups.bytes: `groups.py`, `held.py`
- committing and deleting offsets: `offset_commits.py`; as values: `committed.py`; in transactions:
  `pending_offsets.py`
- when committed offsets expire (offsets.retention.minutes): `offset_expiry.py`; deleting them: `cleanup.py`
- a group in memory, and groups as records: `group_metadata.py`; __consumer_offsets: `offsets_topic.py`
- which topics the members read: `subscriptions.py`
"""
