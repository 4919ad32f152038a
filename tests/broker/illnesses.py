"""Directories of a broker whose logs have something wrong with their times, for `tidelog doctor`.

`inject` writes one or all of them with a broker whose manual clock goes through the years, and stops
it. A broker that starts there at NOW_MS finds what was injected, each illness in a topic of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broker import asking
from tests.broker.subject import Subject
from tests.oracle import recordset
from tests.oracle.recordset import Rec

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_767_225_600_000  # new year 2026
DAY_MS = 86_400_000
BEFORE_MS = NOW_MS - 60 * DAY_MS
AHEAD_MS = NOW_MS + 3650 * DAY_MS
_LEAP_MS = BEFORE_MS + DAY_MS  # by a clock that is corrected before anything else is written
LONG_MAX = 2**63 - 1
NEVER = {"log.retention.check.interval.ms": 10**15}

# Topic: the findings in it, settings, and (clock, times) of what is appended.
ILLNESSES = {
    "adopted": (["unknown append times"], {"retention_ms": -1}, [(BEFORE_MS, [BEFORE_MS])]),
    "ahead": (
        ["append time ahead of the clock", "maxEventTime ahead of the clock"],
        {"retention_ms": -1, "retention_max_eventtime_ms": DAY_MS},
        [(BEFORE_MS, [BEFORE_MS]), (AHEAD_MS, [AHEAD_MS])],
    ),
    "corrected": (
        ["corrections in force"],
        {"retention_ms": -1},
        [(_LEAP_MS, [BEFORE_MS]), (BEFORE_MS, [BEFORE_MS])],
    ),
    "endless": (
        ["segment cannot roll"],
        {"retention_ms": 365 * DAY_MS, "segment_ms": LONG_MAX},
        [(BEFORE_MS, [BEFORE_MS])],
    ),
    "idle": (
        ["segment cannot roll"],
        {"cleanup_policy": "compact", "max_compaction_lag_ms": DAY_MS},
        [(BEFORE_MS, [BEFORE_MS])],
    ),
    "nanos": (
        ["times in a wrong unit"],
        {"retention_ms": -1},
        [(BEFORE_MS, [BEFORE_MS * 1_000_000])],
    ),
    "overdue": (
        ["records outlive their retention"],
        {"retention_ms": DAY_MS, "segment_ms": DAY_MS},
        [(BEFORE_MS, [BEFORE_MS])],
    ),
    "seconds": (
        ["times in a wrong unit"],
        {"retention_ms": -1},
        [(BEFORE_MS, [BEFORE_MS // 1000]), (BEFORE_MS, [BEFORE_MS])],
    ),
    "unset": (
        ["zero times of clients"],
        {"retention_ms": -1},
        [(BEFORE_MS, [-62_135_596_800_000])],
    ),
}


def findings_of(names) -> list[tuple[str, str]]:
    """What a diagnosis of these topics finds: (topic, finding)."""
    return [(name, finding) for name in names for finding in ILLNESSES[name][0]]


def inject(log_dir: Path, names=tuple(ILLNESSES)) -> None:
    """Writes a directory with these illnesses, and a healthy topic."""
    settings = {**NEVER, "clock": "manual", "clock.start.ms": BEFORE_MS}
    with Subject(log_dir, settings) as broker:
        with broker.connect() as connection:
            asking.create(connection, "healthy", retention_ms=str(365 * DAY_MS))
            _append(connection, "healthy", [BEFORE_MS, -1])
            for name in names:
                given = {key: str(value) for key, value in ILLNESSES[name][1].items()}
                asking.create(connection, name, **given)
            written = [
                (clock, name, times) for name in names for clock, times in ILLNESSES[name][2]
            ]
            written.sort(key=lambda each: (each[0] != _LEAP_MS, each[0]))
            for clock_ms, name, times in written:
                broker.clock.freeze(clock_ms)
                _append(connection, name, times)
        assert broker.stop() == 0, broker.log()[-4000:]
    if "adopted" in names:
        directory = log_dir / "adopted-0"
        for path in (*directory.glob("*.appendtimes"), directory / "partition.times"):
            path.unlink()


def examined(log_dir: Path, settings=None) -> Subject:
    """A broker on the directory, at NOW_MS, for a `with` block."""
    return Subject(log_dir, {"clock": "manual", "clock.start.ms": NOW_MS, **(settings or {})})


def _append(connection, topic, times) -> None:
    records = recordset.batch([Rec(time, b"v", key=b"k") for time in times])
    answer = asking.produce(connection, topic, records)
    assert answer["error_code"] == 0, (topic, answer)
