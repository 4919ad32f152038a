"""`tidelog groups`: the members, the lag and the committed offsets of consumer groups.

Begin with `command.py`, which has the actions and prints. `lag.py` measures lag in records and in time;
`reset_offsets.py` changes where a group continues.
"""
