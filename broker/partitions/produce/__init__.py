"""Appends to the logs that this broker leads.

Promises that appends to one partition keep the order of their requests (`appends.py`, begin here), and that
one fsync serves the acknowledgements of many producers (`group_commit.py`).
"""
