"""The entries of a `.appendtimes` file, without the file's life beside its log.

Promises that no time is taken from an entry that is damaged, missing or another segment's: what it
would have covered is unknown. `layout.py`: the bytes of both versions. `entries.py`: how an entry
is found. `checks.py`: what is kept of a file after a crash, and which file is another segment's.
`storage/segment/append_times.py` reads, writes and cuts the file.
"""
