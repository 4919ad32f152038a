"""Topics: how changes of them are decided, and how the local logs follow.

Begin with `topics.py`, which requests call. `controller.py` checks a change and writes it to the
metadata. `reconciler.py` makes the local logs match the metadata, also after a crash and after
another broker's change. `settings.py` returns the settings in force, `leadership.py` the leaders of
partitions, and `startup.py` has the order of the steps at start.
"""
