"""Event-time retention: what a deletion says, and the largest event time of a log that is not read.

The rules are told in tests/time/event-time.txt; combinations of settings are tried by the model of a log
(tests/storage/log_model).
"""

import itertools
from dataclasses import replace

from tests.storage.conftest import read_max_event_time

HOUR, DAY = 3_600_000, 86_400_000
START = 1_600_000_000_000
OLD = START - 365 * DAY

EVENT = "retention.max.eventtime.ms"


NAMES = itertools.count()


def log_of(make_log, appends, **settings):
    """A log of one segment for each append: (now, times)."""
    settings = {
        "segment_bytes": 100,
        "retention_ms": -1,
        "retention_time_basis": "append",
    } | settings
    log = make_log(str(next(NAMES)), segment_min_roll_interval_ms=0, **settings).create()
    for now, times in appends:
        log.append(times, now=now, values=[b"v"] * len(times))
    return log


def test_a_deletion_says_both_times_and_the_setting(make_log, caplog):
    appends = [(START, [OLD, -1]), (START + 5, [OLD + 2 * DAY])]
    log = log_of(make_log, appends, retention_max_eventtime_ms=DAY)
    with caplog.at_level("INFO"):
        (deletion,) = log.partition.retainer.apply_retention(START + 2 * HOUR)
    expected = {
        "base_offset": 0,
        "end_offset": 2,
        "size": deletion.size,
        "policy": EVENT,
        "largest_time": OLD,
        "last_append_time": START,
        "limit": DAY,
        "event_time": OLD,
        "max_event_time": OLD + 2 * DAY,
    }
    assert deletion._asdict() == expected
    (line,) = [record for record in caplog.records if record.message == "retention deleted segment"]
    assert {name: getattr(line, name) for name in expected} == expected


# --- partition.maxEventTime ----------------------------------------------------------------------


def test_of_a_segment_that_goes_unread_its_event_time_stays(make_log):
    log = log_of(make_log, [(1, [500]), (2, [100]), (3, [90])], retention_bytes=2 * 69)
    log.close()
    (log.directory / "partition.times").unlink()
    log.open()
    assert log.partition.max_event_time is None  # nothing is read before it is needed
    assert [each.base_offset for each in log.partition.retainer.apply_retention(4)] == [0]
    assert read_max_event_time(log.partition) == 500


def test_a_segment_that_cannot_be_read_hinders_none_before_it(make_log, caplog):
    settings = {"retention_max_eventtime_ms": 50, "retention_max_eventtime_grace_ms": 0}
    log = log_of(make_log, [(1, [100]), (2, [280]), (3, [900]), (4, [300])], **settings)
    log.close()
    (log.directory / "partition.times").unlink()
    path = log.directory / f"{2:020d}.log"
    path.write_bytes(b"\0" * path.stat().st_size)
    log.open()
    assert log.partition.max_event_time is None
    log.partition.config = replace(log.config, retention_bytes=3 * 69)
    assert [each.policy for each in log.partition.retainer.apply_retention(5)] == [
        "retention.bytes"
    ]
    assert log.partition.max_event_time == 300
    assert "segment times not read" in caplog.text
