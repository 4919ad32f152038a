"""The commands about time: what a log's times are, what is wrong with them, and what they delete.

`offsets.py` finds offsets by time, and both times of an offset. `explain.py` says why a segment is
still there. `doctor.py` finds what is wrong with times, and `clock.py` corrects it.
"""
