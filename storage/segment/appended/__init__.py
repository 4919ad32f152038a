"""The entries of a `.appendtimes` file, without the file's life beside its log.

No time is read from an entry that is damaged, missing or another segment's: what it would have covered
is unknown. `layout.py`: the bytes of both versions. `entries.py`: how an entry is found. `checks.py`: what
is kept of a file. `storage/segment/append_times.py` reads, writes and cuts the file, and has the rules.
"""
