"""Topics: who decides changes of them, and how the local logs follow.

`topics.py` is what requests call. `controller.py` checks a change and writes it to the metadata;
`reconciler.py` makes the local logs what the metadata say, after a crash and after another broker's
change, too. `settings.py` knows the settings in force, `leadership.py` who leads, and `startup.py` the
order of things at start.
"""
