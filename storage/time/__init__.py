"""All rules about time: the times of logs are compared here and nowhere else.

A time is an int of milliseconds since the epoch. Negative times are real; None means that there is
no time. Begin with `timestamp.py`; docs/time.md says the same for users. Where to look:

`append_time.py`, `stamping.py`: what an append does to times, and which times it accepts.
`rolling.py`: when a segment ends. `lookup.py`: what a search by time finds.
`retention.py`: which segments expire and when, for rounds and explanations alike.
`adoption.py`: what counts where an append time is unknown.
`trusted_clock.py`: by which time may be deleted while the clock is wrong. `corrections.py`: what the
append times count as that it gave meanwhile.
`event_time.py`: how far an event time counts. `segment_times.py`: the times of one segment.
`compaction_lag.py`, `tombstones.py`: what compaction may clean, and when tombstones go.
`arrivals.py`: lateness, records expired on arrival, mistaken units, and the zero times of clients.
"""
