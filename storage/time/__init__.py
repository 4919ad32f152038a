"""The home of time: the times of logs are compared here and nowhere else.

A time is an int of milliseconds since the epoch. Negative times are real; None means that there is
no time. Each file holds the rules of one subject: `stamping.py` says what an append does to times,
`rolling.py` when a segment ends, `lookup.py` what a search by time finds, and `retention.py` what
expires and when. Begin with `timestamp.py`; docs/time.md says the same for users.
"""
