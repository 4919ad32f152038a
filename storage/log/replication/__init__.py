"""What a follower does to its log: appends as its leader says, truncation, beginning anew.

Begin with `replica.py`. `received.py` takes apart what a leader sends, and `truncater.py` cuts a
log so that a crash at any step leaves it as it was or as it should be.
"""
