"""Opening a partition's directory after a clean stop, a crash, or another broker's use of it.

Promises that nothing acknowledged and durable is cut off, and that nothing damaged is served. Begin
with `loading.py`; `verification.py` checks one segment batch by batch, `leftovers.py` ends
interrupted changes of names.
"""
