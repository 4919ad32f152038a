"""Consumer groups: the classic protocol, committed offsets, and how both are stored.

`group.py` is a pure state machine: events in, actions out. `coordinator.py` drives it with timers
and the log. `store.py` keeps committed offsets and says which expire, `registry.py` finds groups.
Begin with `messages.py`, which names the events and the actions.
"""
