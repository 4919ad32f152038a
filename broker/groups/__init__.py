"""Consumer groups: the classic protocol, committed offsets, and where both are kept.

`group.py` is a pure state machine: events in, actions out. `coordinator.py` is the shell with
timers that drives it. Begin with `messages.py`, which names what passes between the two.
"""
