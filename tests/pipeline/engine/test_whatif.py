"""Policies, guards, rounds over a horizon, what is killed early, and what a time from the future holds."""

import os
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config import BrokerConfig, topic_config
from tidelog.pipeline import retention_inputs
from tidelog.pipeline.engine import guards, whatif
from tidelog.pipeline.engine.whatif import Future, LogSegment, PolicyError
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log.partition import Partition
from tidelog.storage.time.event_time import EVENT_SLACK_MS
from tidelog.storage.time.retention import Retention
from tidelog.storage.time.segment_times import SegmentTimes

NOW = 1_767_225_600_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def written(directory, appends, *, close=True, producer=None, **own):
    """A partition directory `t-0` to which (append time, record times) were written."""
    own = {"segment.bytes": "300", "retention.ms": "-1"} | {
        key.replace("_", "."): str(value) for key, value in own.items()
    }
    config = topic_config(BrokerConfig(), own)
    path = directory / "t-0"
    path.mkdir(parents=True)
    log = Partition(path, "t", 0, uuid.UUID(int=3), config, now_ms=appends[0][0])
    for number, (append, times) in enumerate(appends):
        more = {}
        if producer is not None:
            more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": number}
            assert len(times) == 1
        records = [Record(i, time, b"k", b"v" * 90, ()) for i, time in enumerate(times)]
        log.append(build(records, **more), now_ms=append, produce_version=9)
    if close:
        log.close()
        (directory / ".kafka_cleanshutdown").touch()
    return path, log


def read(path, now_ms=NOW, margin_ms=0):
    partition = retention_inputs.PartitionDirectory("t", 0, path)
    slack = EVENT_SLACK_MS
    return retention_inputs.read(
        partition, event_slack_ms=slack, now_ms=now_ms, margin_ms=margin_ms
    )


def judged(log, text, moments, **more):
    return whatif.judge(log, whatif.parse_policy(text), moments, **more)


def test_a_horizon_deletes_segment_by_segment(tmp_path):
    path, _ = written(tmp_path, [(NOW + i * HOUR, [NOW + i * HOUR] * 2) for i in range(5)])
    log = read(path)
    assert len(log.segments) == 5
    rounds = range(NOW + DAY, NOW + DAY + 6 * HOUR, HOUR)
    outcome = judged(log, "day:retention.ms=1d", rounds)
    assert [(e.base_offset, e.at_ms) for e in outcome.deleted] == [
        (2 * i, NOW + DAY + (i + 1) * HOUR) for i in range(5)
    ]
    assert [kept.first_offset for kept in outcome.rounds] == [0, 2, 4, 6, 8, 10]
    assert [kept.records for kept in outcome.rounds] == [10, 8, 6, 4, 2, 0]
    assert [kept.first_time for kept in outcome.rounds] == [
        *(NOW + i * HOUR for i in range(5)),
        None,
    ]
    assert outcome.rounds[-1].deleted_size == log.size
    assert outcome.rounds[-1].size == 0


def test_what_is_killed_early_is_counted_by_append_time(tmp_path):
    """A backfill of a year ago, appended within two hours: all of it goes, part of it is an hour old."""
    appends = [(NOW + i * 10 * MINUTE, [NOW - 365 * DAY + i]) for i in range(12)]
    path, _ = written(tmp_path, appends, segment_bytes=10_000)
    log = read(path)
    assert len(log.segments) == 1
    now = NOW + 2 * HOUR
    for early in (0, 10 * MINUTE, HOUR, HOUR + 1, DAY):
        outcome = judged(log, "week:retention.ms=7d", [now], early_ms=early)
        expected = sum(now - append < early for append, _ in appends)
        assert [each.killed_early for each in outcome.deleted] == [expected]
    assert judged(log, "a:retention.ms=7d,retention.time.basis=append", [now]).deleted == ()


def test_the_floor_holds_what_was_written_recently_and_kafka_has_none(tmp_path):
    appends = [(NOW + i * HOUR, [NOW - 365 * DAY + i]) for i in range(3)]
    path, _ = written(tmp_path, appends)
    log = read(path)
    policy = "week:retention.ms=7d,retention.min.append.ms=7d"
    for at, bases in ((7 * DAY, []), (7 * DAY + 1, [0]), (7 * DAY + 2 * HOUR, [0, 1])):
        found = judged(log, policy, [NOW + at]).deleted
        assert [each.base_offset for each in found] == bases
    found = judged(log, f"{policy},rules=kafka", [NOW + 3 * HOUR]).deleted
    assert [each.base_offset for each in found] == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 50)), max_size=9),
    st.integers(0, 3),
    st.integers(-10, 120),
)
def test_records_appended_after_a_moment_are_counted(runs, unknown, moment):
    """Against every offset on its own."""
    appended, times, offset, now = [], [None] * unknown, unknown, 0
    for count, later in runs:
        now += later
        if not appended or appended[-1][1] != now:
            appended.append((offset, now))
        times += [now] * count
        offset += count
    segment = LogSegment(0, offset, 100, SegmentTimes(), tuple(appended), 60)
    expected = sum((60 if time is None else time) > moment for time in times)
    assert segment.appended_after(moment) == expected


def test_kafkas_rules_let_a_time_from_the_future_hold_all_behind_it(tmp_path):
    appends = [(NOW + i, [NOW + i]) for i in range(3)]
    appends[1] = (NOW + 1, [NOW + 400 * DAY])
    path, _ = written(tmp_path, appends, producer=77, segment_bytes="200")
    now = NOW + 30 * DAY
    log = read(path, now)
    sizes = [segment.size for segment in log.segments]
    assert len(sizes) == 3
    kafka = judged(log, "k:retention.ms=7d,rules=kafka", [now])
    ours = judged(log, "o:retention.ms=7d", [now])
    assert [each.base_offset for each in kafka.deleted] == [0]
    assert [each.base_offset for each in ours.deleted] == [0, 1, 2]
    (pinned,) = kafka.pinned
    assert pinned.future == Future(1, NOW + 400 * DAY, 77)
    assert (pinned.base_offset, pinned.size, pinned.held_size) == (1, sizes[1], sum(sizes[1:]))
    assert pinned.until_ms == NOW + 407 * DAY + 1
    assert judged(log, "k:retention.ms=-1,rules=kafka", [now]).pinned == ()
    late = judged(log, "k:retention.ms=7d,rules=kafka", [pinned.until_ms - 1, pinned.until_ms])
    assert [(e.base_offset, e.at_ms) for e in late.deleted] == [
        (0, pinned.until_ms - 1),
        (1, pinned.until_ms),
        (2, pinned.until_ms),
    ]


@pytest.mark.parametrize("known", [True, False])
def test_the_record_that_holds_a_segment_is_named_within_its_batch(tmp_path, known):
    times = [NOW, NOW + 9 * DAY, NOW + 2, NOW + 3]
    path, _ = written(tmp_path, [(NOW, [NOW] * 3), (NOW, times)], segment_bytes=10_000)
    if not known:
        (path / "partition.times").unlink()
    (segment,) = read(path).segments
    assert segment.future == Future(4, NOW + 9 * DAY, -1)
    assert read(path, margin_ms=9 * DAY).segments[0].future is None


def test_kafkas_rules_know_neither_basis_nor_event_time():
    text = "k:retention.ms=7d,retention.time.basis=append,retention.max.eventtime.ms=1d,rules=kafka"
    retention = whatif.parse_policy(text).retention
    assert (retention.by_append, retention.event_ms, retention.retention_ms) == (
        False,
        None,
        7 * DAY,
    )


def test_a_log_without_append_times_counts_as_appended_now_whatever_its_files_dates(tmp_path):
    """As Apache Kafka leaves it: no append times, no partition.times."""
    path, _ = written(tmp_path, [(NOW + i * DAY, [NOW + i * DAY, -1]) for i in range(3)])
    for file in [*path.glob("*.appendtimes"), path / "partition.times"]:
        file.unlink()
    for number, file in enumerate(sorted(path.glob("*.log"))):
        os.utime(file, (0, (NOW + (10 + number) * DAY) / 1000))
    log = read(path, now_ms=NOW + 11 * DAY)
    assert log.is_estimated
    assert [segment.file_ms for segment in log.segments] == [NOW + (10 + n) * DAY for n in range(3)]
    now = NOW + 18 * DAY
    # A record without a time is as old as its adoption.
    assert judged(log, "week:retention.ms=7d", [now]).deleted == ()
    outcome = judged(log, "week:retention.ms=7d", [now + 1], early_ms=8 * DAY)
    assert [each.base_offset for each in outcome.deleted] == [0, 2, 4]
    assert outcome.is_estimated
    # What is killed early goes by the dates of files: the first is 8 days old.
    assert [each.killed_early for each in outcome.deleted] == [0, 2, 2]
    kafka = judged(log, "week:retention.ms=7d,rules=kafka", [now])
    assert [each.base_offset for each in kafka.deleted] == [0, 2, 4]


def contents(directory: Path):
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    "left", ["stopped", "running", "crashed", "foreign", "torn", "contradicted"]
)
def test_nothing_is_changed_by_reading(tmp_path, left):
    """Indexes and append times that a broker would put right are left as they are."""
    appends = [(NOW + i * HOUR, [NOW + i * HOUR, NOW - i]) for i in range(6)]
    path, _ = written(tmp_path, appends, close=left not in ("running", "crashed"))
    if left == "crashed":
        for file in path.glob("*.index"):
            file.unlink()
    if left == "foreign":
        for file in [*path.glob("*.appendtimes"), path / "partition.times"]:
            file.unlink()
    last = max(path.glob("*.log"))
    if left == "torn":
        last.write_bytes(last.read_bytes()[:-7])
    if left == "contradicted":
        for file in path.glob("*.appendtimes"):
            file.write_bytes(file.read_bytes()[:-12])
    before = contents(tmp_path)
    log = read(path)
    judged(log, "day:retention.ms=1d,retention.max.eventtime.ms=1d", [NOW + 9 * DAY])
    assert contents(tmp_path) == before
    whole = 10 if left == "torn" else 12
    assert (log.records, log.high_watermark) == (whole, whole)
    assert log.is_estimated == (left in ("foreign", "contradicted"))


def test_a_segment_that_goes_while_it_is_read_is_not_missed(tmp_path, monkeypatch):
    path, _ = written(tmp_path, [(NOW + i, [NOW, NOW]) for i in range(4)])
    retain, seen = retention_inputs._described, []  # between two segments there is no other step

    def and_one_goes(segment, future_ms):
        seen.append(segment.base_offset)
        if seen == [0]:
            for file in path.glob("00000000000000000002.*"):
                file.unlink()
            for file in path.glob("00000000000000000000.*"):
                file.unlink()
        return retain(segment, future_ms)

    monkeypatch.setattr(retention_inputs, "_described", and_one_goes)
    log = read(path)
    assert [segment.base_offset for segment in log.segments] == [4, 6]
    assert log.log_start_offset == 4
    monkeypatch.setattr(retention_inputs, "_described", lambda *_: path.joinpath("none").stat())
    with pytest.raises(FileNotFoundError):
        read(path)


def test_a_broken_batch_in_the_middle_is_said(tmp_path):
    path, _ = written(tmp_path, [(NOW, [NOW, NOW]), (NOW, [NOW, NOW])], segment_bytes=10_000)
    (path / "partition.times").unlink()
    (file,) = path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[8:12] = b"\x7f\xff\xff\xff"
    file.write_bytes(data)
    written_more = path / "00000000000000000004.log"
    written_more.write_bytes(b"")
    with pytest.raises(CorruptMessage):
        read(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("retention.ms=7d", "'retention.ms=7d' is no policy: write NAME:retention.ms=7d"),
        (":retention.ms=7d", "is no policy"),
        ("a:retention.ms", "'retention.ms' in policy 'a' is no setting: write name=value"),
        ("a:retention.ms=soon", "retention.ms=soon: expected an integer"),
        ("a:rules=mine", "rules='mine' in policy 'a': tidelog or kafka"),
        ("a:retention.mss=7d", "policy 'a': "),
        ("a:retention.bytes=many", "policy 'a': "),
    ],
)
def test_a_policy_that_is_none_is_refused_in_a_sentence(text, sentence):
    with pytest.raises(PolicyError) as raised:
        whatif.parse_policy(text)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_policy_lies_over_the_topics_own_settings():
    base = {"retention.ms": "1000", "retention.bytes": "5"}
    policy = whatif.parse_policy("a: retention.ms = 7d ,", base)
    assert (policy.retention.retention_ms, policy.retention.retention_bytes) == (7 * DAY, 5)
    event = whatif.parse_policy("a:retention.max.eventtime.ms=1d", base).retention
    assert event.by_append
    assert (event.event_ms, event.grace_ms) == (DAY, HOUR)
    plain = whatif.parse_policy("a:cleanup.policy=compact", base).retention
    assert plain == Retention(None, None, by_append=False)


def test_what_compaction_left_empty_goes_with_what_follows():
    def segment(number, size, append):
        times = SegmentTimes()
        if size:
            times.note(append, append, number, False, append, append)
            times.note_append(append)
        return LogSegment(number, number + 1, size, times, (), append)

    kept = [segment(0, 100, NOW), segment(1, 0, NOW), segment(2, 100, NOW + HOUR)]
    log = whatif.SimulatedLog("t", 0, (*kept, segment(3, 100, NOW + DAY)), 0, 4, None)
    moments = [NOW + DAY + 1, NOW + DAY + HOUR, NOW + DAY + HOUR + 1]
    for text in ("a:retention.ms=1d", "a:retention.ms=1d,rules=kafka"):
        outcome = judged(log, text, moments)
        assert [(each.base_offset, each.at_ms) for each in outcome.deleted] == [
            (0, moments[0]),
            (1, moments[2]),
            (2, moments[2]),
        ]


def test_guards_hold_or_are_broken_by_name(tmp_path):
    path, _ = written(tmp_path, [(NOW + i, [NOW - 9 * DAY + i]) for i in range(4)])
    log = read(path)
    outcomes = [judged(log, f"{n}:retention.ms={n}d", [NOW + HOUR]) for n in (1, 7, 30)]
    size = sum(each.size for each in outcomes[0].deleted)
    assert size == log.size
    assert not outcomes[2].deleted

    def names(text):
        return [(b.policy, b.value) for b in guards.broken([guards.parse_guard(text)], outcomes)]

    assert names(f"max_deleted_bytes={size}") == []
    assert names(f"max_deleted_bytes={size - 1}") == [("1", size), ("7", size)]
    assert names("7:max_deleted_records=3") == [("7", 4)]
    assert names("30:max_deleted_records=0") == []
    assert names("max_killed_early=0") == [("1", 4), ("7", 4)]
    assert names("max_pinned_bytes=0") == []
    with pytest.raises(PolicyError, match="there is no policy '9'"):
        names("9:max_deleted_bytes=1")


@pytest.mark.parametrize(
    "text", ["max_deleted=1", "max_deleted_bytes", "max_deleted_bytes=1.5", "a:=3"]
)
def test_a_guard_that_is_none_is_refused(text):
    with pytest.raises(PolicyError):
        guards.parse_guard(text)
