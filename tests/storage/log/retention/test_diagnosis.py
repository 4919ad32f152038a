"""What is wrong with the times of a log: each illness alone, all at once, and a healthy log."""

from __future__ import annotations

import re

from tidelog.config.topic import TopicConfig
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.retention import diagnosis
from tidelog.storage.log.retention.diagnosis import diagnose
from tidelog.storage.log.retention.findings import Readings
from tidelog.storage.time.corrections import Correction

NOW = 1_767_225_600_000  # new year 2026
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
YEAR = 365 * DAY
LONG_MAX = 2**63 - 1
CHECK = 5 * MINUTE


def readings(now=NOW, deletion=None):
    return Readings(now, now if deletion is None else deletion, CHECK)


def found(log, now=NOW, deletion=None, **settings):
    """What is wrong with an open log: (kind, figure, unit, remedy)."""
    return found_in(log.partition, now, deletion, **settings)


def found_in(partition, now=NOW, deletion=None, **settings):
    config = TopicConfig(**settings) if settings else partition.config
    facts = partition.retainer.facts(1 << 30)
    assert facts.unread_segments == 0
    findings = diagnose(facts, config, readings(now, deletion))
    for finding in findings:
        assert re.fullmatch(r"[A-Z].*\.", finding.sentence), finding.sentence
        assert "None" not in finding.sentence, finding.sentence
        assert finding.figure > 0
    return [(each.kind, each.figure, each.unit, each.remedy) for each in findings]


def sentence(log, now=NOW, **more):
    facts = log.partition.retainer.facts(1 << 30)
    (finding,) = diagnose(facts, log.partition.config, readings(now, **more))
    return finding.sentence


# --- healthy -------------------------------------------------------------------------------------


def test_a_healthy_log_has_no_findings(make_log):
    log = make_log(retention_ms=DAY, segment_bytes=150, retention_max_eventtime_ms=DAY).create(NOW)
    for hour in range(20):
        now = NOW + hour * HOUR
        log.append([now, now - DAY, -1, now + 30 * MINUTE], now=now)
    assert found(log, NOW + 20 * HOUR) == []
    assert found(make_log("empty").create(NOW)) == []


def test_what_the_settings_allow_is_no_finding(make_log):
    """A week's segments, a floor, and clocks that are adjusted by seconds."""
    log = make_log(retention_ms=DAY, retention_min_append_ms=30 * DAY).create(NOW)
    log.append([NOW], now=NOW)
    log.append([NOW + 6 * DAY], now=NOW + 6 * DAY)
    assert found(log, NOW + 6 * DAY - 9 * SECOND) == []
    last = NOW + 37 * DAY + CHECK
    assert found(log, last) == []
    assert [kind for kind, *_ in found(log, last + 1)] == [diagnosis.OUTLIVES]


# --- each illness alone --------------------------------------------------------------------------


def test_an_append_time_ahead_of_the_clock(make_log):
    log = make_log(retention_ms=-1).create(NOW)
    log.append([NOW], now=NOW + 10 * SECOND)
    assert found(log) == []
    log.append([NOW], now=NOW + 11 * SECOND)
    assert found(log) == [(diagnosis.APPEND_TIME_AHEAD, 11 * SECOND, "ms", "reset")]
    assert "2026-01-01T00:00:11.000Z, and the clock shows 2026-01-01T00:00:00.000Z" in sentence(log)
    assert "The next append corrects it" in sentence(log)
    log.partition.roles.lead(1)  # others have copies
    assert "Append times stand still" in sentence(log)


def test_a_largest_event_time_ahead_of_the_clock(make_log):
    log = make_log(retention_ms=-1, segment_bytes=100).create(NOW)
    log.append([NOW + HOUR], now=NOW)
    assert found(log) == []
    log.append([NOW + YEAR], now=NOW)  # one absurd stamp counts as an hour ahead
    assert found(log) == []
    log.append([NOW + YEAR], now=NOW + YEAR)
    both = [diagnosis.APPEND_TIME_AHEAD, diagnosis.EVENT_TIME_AHEAD]
    assert [kind for kind, *_ in found(log)] == both
    log.partition.state.last_append_time_ms = NOW  # append times have gone back
    ahead = [(diagnosis.EVENT_TIME_AHEAD, YEAR - HOUR, "ms", "reset")]
    assert found(log) == ahead
    assert "would count from there, if it were set" in sentence(log)
    assert found(log, event_time_ahead_max_ms=2 * YEAR, retention_ms=-1) == []
    kept = {"retention_ms": -1, "retention_max_eventtime_ms": DAY}
    assert found(log, **kept) == ahead
    log.partition.config = TopicConfig(**kept)
    assert "counts from there, and deletes too early" in sentence(log)


def test_a_segment_that_never_ends_by_age(make_log):
    log = make_log(retention_ms=DAY, segment_ms=LONG_MAX).create(NOW)
    log.append([NOW], now=NOW)
    assert found(log) == [(diagnosis.CANNOT_ROLL, 1, "segments", "segment.ms")]
    assert found(log, segment_ms=LONG_MAX, retention_ms=-1) == []  # nothing waits for its end
    never = {"segment_ms": LONG_MAX, "cleanup_policy": frozenset({"compact"})}
    assert [kind for kind, *_ in found(log, **never)] == [diagnosis.CANNOT_ROLL]
    assert sentence(log) == (
        "No age ends the segment at offset 0, because segment.ms sets no limit. While records are "
        "appended to it, retention deletes none of its records until the segment is full "
        "(segment.bytes)."
    )
    log.partition.config = TopicConfig(**never)
    assert "Its records are not compacted until" in sentence(log)


def test_a_compacted_segment_that_no_append_ends(make_log):
    log = make_log(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=DAY).create(NOW)
    log.append([NOW], now=NOW)
    assert found(log, NOW + DAY + CHECK + 1) == []
    late = [(diagnosis.CANNOT_ROLL, CHECK + 1, "ms", "append")]
    assert found(log, NOW + DAY + CHECK + 2) == late
    assert "max.compaction.lag.ms=1d," in sentence(log, NOW + DAY + CHECK + 2)
    assert found(log, NOW + 10 * DAY, cleanup_policy=frozenset({"compact"})) == []


def test_times_in_seconds_microseconds_and_nanoseconds(make_log):
    log = make_log(retention_ms=-1, segment_bytes=100).create(NOW)
    for time in (NOW // 1000, NOW, NOW * 1000, NOW // 1000 + 5, NOW * 1_000_000):
        log.append([time], now=NOW)
    unit = diagnosis.WRONG_UNIT
    assert found(log) == [
        (unit, 2, "segments", "message.timestamp.before.max.ms"),
        (unit, 1, "segments", "message.timestamp.after.max.ms"),
        (unit, 1, "segments", "message.timestamp.after.max.ms"),
    ]
    assert found(log, now=0) == [  # a clock at 1970 makes nothing else look mistaken
        (diagnosis.APPEND_TIME_AHEAD, NOW, "ms", "reset"),
        (diagnosis.EVENT_TIME_AHEAD, NOW, "ms", "reset"),
    ]


def test_a_wrong_unit_is_explained(make_log):
    log = make_log(retention_ms=-1).create(NOW)
    log.append([NOW // 1000], now=NOW)
    assert sentence(log) == (
        "The time 1767225600 in the segment at offset 0 looks like seconds: it means "
        "1970-01-21T10:53:45.600Z here, and 2026-01-01T00:00:00.000Z in seconds. Times are "
        "milliseconds. A window of record times refuses such records."
    )


def test_what_refuses_or_replaces_a_wrong_unit_is_not_advised_again(make_log):
    log = make_log(retention_ms=-1, segment_bytes=100).create(NOW)
    log.append([NOW // 1000], now=NOW)
    log.append([NOW * 1000], now=NOW)
    past, future = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"

    def remedies(**settings):
        return [remedy for *_, remedy in found(log, retention_ms=-1, **settings)]

    assert remedies() == [past, future]
    assert remedies(message_timestamp_before_max_ms=3650 * DAY) == ["explain", future]
    assert remedies(message_timestamp_before_max_ms=60 * YEAR) == [past, future]
    assert remedies(message_timestamp_after_max_ms=DAY) == [past, "explain"]
    assert remedies(message_timestamp_type="LogAppendTime") == ["explain", "explain"]
    facts = log.partition.retainer.facts()
    for settings, what in (
        ({"message_timestamp_before_max_ms": DAY}, "Such records are refused now. These stay as"),
        ({"message_timestamp_type": "LogAppendTime"}, "New records get the broker's time. These"),
    ):
        first = diagnose(facts, TopicConfig(retention_ms=-1, **settings), readings())[0]
        assert what in first.sentence


def test_unknown_append_times(make_log):
    log = make_log(retention_ms=-1, segment_bytes=100).create(NOW)
    for _ in range(3):
        log.append([NOW], now=NOW)
    log.close()
    for path in (*log.directory.glob("*.appendtimes"), log.directory / "partition.times"):
        path.unlink()
    (log.path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    log.open(NOW + DAY)
    log.append([NOW], now=NOW + 2 * DAY)
    now = NOW + 2 * DAY
    assert found(log, now) == [(diagnosis.UNKNOWN, 3, "segments", "explain")]
    assert sentence(log, now) == (
        "In the segments from offset 0 to 2, nobody knows when some batches were appended: they count as "
        "appended when this broker found them, at 2026-01-02T00:00:00.000Z at the latest."
    )


def test_corrections_in_force(make_log):
    log = make_log(retention_ms=-1).create(NOW)
    log.append([NOW], now=NOW)
    facts = log.partition.retainer.facts()
    corrections = (Correction(0, 1, NOW, LONG_MAX, 0, NOW),) * 2
    findings = diagnose(facts._replace(corrections=corrections), log.config, readings())
    assert [finding[:3] for finding in findings] == [(diagnosis.CORRECTED, 2, "corrections")]
    assert "before offset 1 as written at 2026-01-01T00:00:00.000Z" in findings[0].sentence
    behind = (Correction(0, 1, 0, HOUR, NOW, NOW + HOUR),)
    (finding,) = diagnose(facts._replace(corrections=behind), log.config, readings())
    assert "by a clock that was behind, as written up to 56.0 years later" in finding.sentence


# --- records that outlive their retention --------------------------------------------------------


LATEST = NOW + 8 * DAY + CHECK  # retention.ms, segment.ms and a round after the first append


def test_records_that_outlive_their_retention_behind_an_append_time_ahead(make_log):
    settings = {"retention_ms": DAY, "retention_time_basis": "append", "segment_bytes": 100}
    log = make_log(**settings).create(NOW)
    log.append([NOW], now=NOW + YEAR)
    log.partition.state.last_append_time_ms = NOW  # append times have gone back
    log.append([NOW], now=NOW)
    assert found(log, LATEST) == []
    assert found(log, LATEST + 1) == [(diagnosis.OUTLIVES, 1, "ms", "reset")]
    assert sentence(log, LATEST + DAY) == (
        "Records from offset 1 on should have been deleted by 2026-01-09T00:05:00.000Z "
        "(retention.ms=1d). They wait for the segment at offset 0: its youngest record was "
        "appended at 2027-01-01T00:00:00.000Z, by a clock that was ahead."
    )
    assert log.partition.retainer.apply_retention(LATEST + DAY) == []


def test_records_that_no_round_has_deleted(make_log):
    log = make_log(retention_ms=DAY).create(NOW)
    log.append([NOW], now=NOW)
    assert found(log, LATEST + 5) == [(diagnosis.OUTLIVES, 5, "ms", "explain")]
    assert "no round of retention has deleted them" in sentence(log, LATEST + 5)
    # While a leap of the clock is not accepted, nothing is due.
    assert found(log, LATEST + YEAR, deletion=NOW) == []


def test_records_that_consumers_have_not_been_shown(make_log):
    log = make_log(retention_ms=DAY, flush_messages=1).create(NOW)
    log.append([NOW], now=NOW)
    assert "Consumers have not been shown all of" in sentence(log, LATEST + 5)


def test_records_behind_younger_ones_of_their_segment(make_log):
    log = make_log(retention_ms=DAY).create(NOW)
    log.append([NOW], now=NOW)
    log.append([NOW + 7 * DAY], now=NOW + 7 * DAY)
    now = LATEST + 1
    log.partition.state.active.known.times.last_append = now
    log.partition.state.active.known.times.aging = now
    assert "which has younger records and stays until 2026-01-10T00:05" in sentence(log, now)


# --- open, closed, and not read -------------------------------------------------------------------


def test_all_at_once_the_same_of_a_closed_log(make_log):
    log = make_log(retention_ms=DAY, segment_bytes=150, segment_ms=LONG_MAX).create(NOW)
    log.append([NOW // 1000], now=NOW)
    log.append([NOW], now=NOW)
    log.append([NOW + YEAR], now=NOW + YEAR)
    kinds = [kind for kind, *_ in found(log)]
    assert kinds == [
        diagnosis.APPEND_TIME_AHEAD,
        diagnosis.EVENT_TIME_AHEAD,
        diagnosis.CANNOT_ROLL,
        diagnosis.WRONG_UNIT,
    ]
    open_facts = log.partition.retainer.facts()
    of_open = diagnose(open_facts, log.config, readings())
    log.partition.flush()
    assert log.store.closed_facts("t", 0) is None  # it is open
    log.close()
    log.store = LogStore([log.path], default_config=log.config)
    log.store.open(NOW)
    facts = log.store.closed_facts("t", 0)
    assert log.store.is_closed("t", 0)  # opened, it would note that the clock went back
    of_closed = diagnose(facts, log.config, readings())
    assert [each[:3] for each in of_closed] == [each[:3] for each in of_open]
    assert of_closed[2:] == of_open[2:]
    for each, verb in zip(of_closed[:2], ("corrects it", "computes it again"), strict=True):
        assert each.remedy == diagnosis.EXPLAIN
        assert each.sentence.endswith(
            " Nothing has to be done: the log is closed, and the next request or round of retention "
            f"opens it; that {verb}."
        )
    assert not log.store.keeps_everything("t", 0, NOW)  # so retention opens it
    log.store.clock.begin(NOW + YEAR)
    assert log.store.keeps_everything("t", 0, NOW)
    log.store.clock.begin(NOW)
    log.store.partition("t", 0)
    assert [kind for kind, *_ in found_in(log.store.partition("t", 0))] == [
        diagnosis.CANNOT_ROLL,
        diagnosis.WRONG_UNIT,
        diagnosis.CORRECTED,
    ]


def test_only_so_many_bytes_are_read(make_log):
    log = make_log(retention_ms=-1, segment_bytes=100).create(NOW)
    for _ in range(3):
        log.append([NOW // 1000], now=NOW)
    size = log.partition.segments[0].tail.size
    log.crash()
    (log.directory / "partition.times").unlink(missing_ok=True)
    log.open(NOW)
    retainer = log.partition.retainer
    unread = retainer.facts().unread_segments
    assert unread >= 2
    assert retainer.facts(-1).unread_segments == unread
    assert retainer.facts(size).unread_segments == unread - 1
    assert retainer.facts(1).unread_segments == unread - 2  # at least one each time
    assert retainer.facts(1 << 30).unread_segments == 0
