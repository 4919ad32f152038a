"""The brokers of a cluster, as the metadata has them.

Begin with `records.py`: sessions, registrations, partitions that a broker cannot lead, and the
controller, by keys of their own (`keys.py`). `members.py` has their values in an image, as
`stored_members.py` reads them from the keys, `departed.py` the brokers whose sessions have just ended,
and `visible.py` the brokers and leaders that clients of one listener see.
"""
