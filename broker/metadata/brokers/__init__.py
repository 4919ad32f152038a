"""The brokers of a cluster, as the metadata has them.

Begin with `records.py`: what brokers say by keys of their own (`keys.py`): that they live, what they are,
what they cannot lead, and which of them is the controller. `members.py` is what an image knows of them, as
`stored_members.py` reads it from the keys. `departed.py` remembers those whose sessions have just ended, and
`visible.py` is what the clients of one listener see.
"""
