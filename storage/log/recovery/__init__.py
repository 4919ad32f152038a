"""Opening a partition's directory after a clean stop, a crash, or its use by another broker.

Promises that nothing acknowledged and durable is cut off, and that nothing damaged is served. Begin
with `loading.py`. `verification.py` checks one segment batch by batch; `leftovers.py` completes or
undoes interrupted renames.
"""
