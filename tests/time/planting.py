"""Mistakes to plant in the rules of time, so that a script can show that it would notice them."""

from __future__ import annotations

from tests.time_rules import time_rules
from tidelog.storage.time.retention import Candidate, segments_to_delete
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.stamping import stamps_at

TO_DELETE = segments_to_delete


def stamped(**changes):
    """Plant a change of the stamps; each is a function of (stamps, now)."""

    def plant(monkeypatch):
        real = stamps_at

        def planted(rules, last, now):
            stamps = real(rules, last, now)
            return stamps._replace(**{k: change(stamps, now) for k, change in changes.items()})

        monkeypatch.setattr(time_rules, "stamps_at", planted)

    return plant


def patched(target, name, replacement):
    return lambda monkeypatch: monkeypatch.setattr(target, name, replacement)


def both(*plants):
    """Two mistakes at once, where one alone is made good elsewhere."""

    def plant(monkeypatch):
        for one in plants:
            one(monkeypatch)

    return plant


def without_largest(times):
    times = times.copy()
    times.largest, times.largest_offset = None, -1
    return times


def noting(change):
    """Plant a change of what a segment notes: of (first, largest, offset, missing, append time)."""

    def plant(monkeypatch):
        real = SegmentTimes.note

        def planted(times, *noted):
            real(times, *change(*noted[:5]), noted[5])

        monkeypatch.setattr(SegmentTimes, "note", planted)

    return plant


def exceeding(largest, last_indexed):
    """Whether an index that took negative times too would take this one."""
    return largest is not None and (last_indexed is None or largest > last_indexed)


def all_that_may_go(candidates, retention, *, high_watermark, **more):
    """What retention would delete that looks at every segment on its own."""
    real = [
        TO_DELETE(
            [c, Candidate(high_watermark, 1, SegmentTimes)],
            retention,
            high_watermark=high_watermark,
            **more,
        )[:1]
        for c in candidates
    ]
    return [policy for one in real for policy in one]
