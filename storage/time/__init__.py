"""The home of time: every comparison of two times in the broker is made here.

A time is an int of milliseconds since the epoch; negative ones are real, and None is "there is no
time". One file a rule: `stamping.py` what an append does to times, `rolling.py` when a segment
ends, `lookup.py` what a search finds, `retention.py` what expires. Begin with `timestamp.py`;
docs/time.md tells the same to users.
"""
