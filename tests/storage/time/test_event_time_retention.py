"""Event-time retention in every combination with what else decides, each row explained in words.

The proposal's test plan asks for all combinations of properties, and for topics from before and after the
change. A row is a topic, its settings and what was written to it; what a round should delete comes from
`Model`, written from the design's sentences over a plain list of records, and from a short list of
telling rows by hand. Where segments begin and how large they are is asked of the log.
"""

import functools
import itertools
import os
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.time_rules import time_rules
from tidelog.config import BrokerConfig, topic_config
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, scan
from tidelog.storage.log.partition import Partition
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.time.retention import _EventTimes, expires_from
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import later

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = 1_600_000_000_000
ABSURD = 9_000_000_000_000_000

EVENT = "retention.max.eventtime.ms"
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}

# What is written: (append time, times of the records, is it a transaction's marker?)
LOADS = {
    "live": [(START + i * 15 * HOUR, [START + i * 15 * HOUR - 5_000] * 3, False) for i in range(8)],
    "backfill": [
        (START + i * MINUTE, [START - 30 * DAY + i * 15 * HOUR + j for j in range(3)], False)
        for i in range(8)
    ],
    "interleaved": [
        (START + i * MINUTE, [START + i * MINUTE - (10 * DAY if i % 2 else 0)] * 3, False)
        for i in range(8)
    ],
    "absurd": [
        (START + i * HOUR, [START + i * HOUR, ABSURD if i == 2 else START + i * HOUR, -1], False)
        for i in range(8)
    ],
    "transactions": [
        (
            START + i * 15 * HOUR,
            [START + 20 * DAY] if i % 2 else [START + i * 15 * HOUR] * 3,
            i % 2 == 1,
        )
        for i in range(8)
    ],
}
IN_WORDS = {
    "live": "gets live data for five days",
    "backfill": "is backfilled in order with five days of a month ago",
    "interleaved": "gets live and ten days old data in turn",
    "absurd": "gets live data with one absurd stamp from the future",
    "transactions": "gets transactions, whose markers carry times of twenty days ahead",
}


@functools.cache
def batches(magic, load):
    """What producers send, in order."""
    made, sequence = [], 0
    for _, times, is_marker in LOADS[load]:
        producer = {}
        if load == "transactions":
            producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
            if is_marker:
                producer["is_control"] = True
            else:
                producer["base_sequence"] = sequence
                sequence += len(times)
            magic = 2
        value = b"\0\0\0\0\0\0" if is_marker else b"v" * 40
        key = b"\0\0\0\1" if is_marker else None
        records = [Record(i, time, key, value, ()) for i, time in enumerate(times)]
        made.append(build(records, magic=magic, **producer))
    return made


@functools.cache
def settings(event, basis, ms, size, kind, magic):
    """A topic's settings, as a broker would have them."""
    own = {"segment.bytes": "500", "message.timestamp.type": kind}
    own |= {"message.format.version": FORMATS[magic], "segment.min.roll.interval.ms": "0"}
    own |= {"segment.ms": str(14 * HOUR)}
    own |= {"retention.ms": str(ms), "retention.bytes": str(size), EVENT: str(event)}
    if basis is not None:
        own["retention.time.basis"] = basis
    config = topic_config(BrokerConfig(), own)
    if config.lacks_basis:
        config = topic_config(BrokerConfig(), own | {"retention.time.basis": "append"})
    return config


class Row:
    """One combination."""

    def __init__(self, event, basis, ms, size, kind, magic, age, load):
        self.load, self.age, self.magic, self.kind = load, age, magic, kind
        self.before = 0 if magic == 2 else 2  # the format of a topic from before
        self.given = basis
        self.basis = basis or ("append" if event >= 0 else "record")
        self.event, self.ms, self.size = event, ms, size
        self.config = settings(event, basis, ms, size, kind, magic)
        assert self.config.retention_time_basis == self.basis

    def words(self):
        """Say the row."""
        age = (
            "A new topic"
            if self.age == "new"
            else f"A plain topic in format {self.before}, changed,"
        )
        keeps = []
        if self.ms >= 0:
            since = "the last append" if self.basis == "append" else "the newest record"
            why = "" if self.given else " (nobody gave a basis)"
            keeps.append(f"{self.ms // HOUR} hours from {since} on{why}")
        elif self.given:
            keeps.append(f"no matter how long (basis {self.given})")
        if self.size >= 0:
            keeps.append(f"up to {self.size} bytes")
        if self.event >= 0:
            keeps.append(f"{self.event // HOUR} hours of event time")
        kept = "keeps " + ", ".join(keeps) if keeps else "keeps everything"
        return f"{age} in format {self.magic} with {self.kind} {kept}, and {IN_WORDS[self.load]}"


def rows():
    """Every combination of the proposal's test plan."""
    for parts in itertools.product(
        (DAY, -1),
        ("record", "append", None),
        (2 * DAY, -1),
        (1_000, -1),
        ("CreateTime", "LogAppendTime"),
        (0, 1, 2),
        ("new", "from before"),
        LOADS,
    ):
        yield Row(*parts)


class Model:
    """Design section 3, over records; segments are offset ranges."""

    def __init__(self, row):
        self.row = row
        self.records = []  # (event time or None, append time), by offset

    def write(self, times, append, is_marker, kind, magic):
        for time in times:
            event = append if kind == "LogAppendTime" else time
            if is_marker or magic == 0 or (time == -1 and kind == "CreateTime"):
                event = None
            self.records.append((event, append))

    @staticmethod
    def counted(event, append):
        """At most as an hour beyond the append time, where there is no limit."""
        return min(event, append + HOUR)

    def event_of(self, segment):
        found = self.records[segment[0] : segment[1]]
        return max((self.counted(e, a) for e, a in found if e is not None), default=None)

    def goes(self, segments, number, now):
        """Which policy deletes the oldest segment that is left, None if none does."""
        row, (first, end, size) = self.row, segments[number]
        found = self.records[first:end]
        last = max(a for _, a in found)
        if row.size >= 0 and sum(s for _, _, s in segments[number:]) - size >= row.size:
            return "retention.bytes"
        # A record from the future was written now, and one without a time, too.
        newest = (
            last if row.basis == "append" else max(a if e is None else min(e, a) for e, a in found)
        )
        if row.ms >= 0 and now - newest > row.ms:
            return "retention.ms"
        if row.event >= 0:
            # What has no event time goes with what follows it.
            for later in segments[number:]:
                event = self.event_of(later)
                if event is not None:
                    ever = max(self.counted(e, a) for e, a in self.records if e is not None)
                    last = max(a for _, a in self.records[later[0] : later[1]])
                    return EVENT if ever - event > row.event and now - last > HOUR else None
        return None

    def round(self, segments, now):
        gone = []
        for number, segment in enumerate(segments):
            policy = self.goes(segments, number, now) if segment[2] else None
            if policy is None:
                break
            gone.append((segment[0], policy))
        return gone


def write(row, directory):
    """Make the log and its model."""
    model = Model(row)
    plain = TopicConfig(
        message_format_version=FORMATS[row.before],
        segment_bytes=500,
        retention_ms=-1,
        segment_min_roll_interval_ms=0,
        segment_ms=10**15,
    )
    was_there = row.age == "from before"
    partition = Partition(
        directory, "t", 0, uuid.UUID(int=1), plain if was_there else row.config, now_ms=START
    )
    for number, (append, times, is_marker) in enumerate(LOADS[row.load]):
        if number == len(LOADS[row.load]) // 2:
            partition.config = row.config
        config = partition.config
        magic = config.target_magic
        is_internal = row.load == "transactions"
        data = batches(magic, row.load)[number]
        version = 9 if magic == 2 or is_internal else 2
        first = scan(data)[0]
        guard = (
            partition.verification(first.producer_id, first.producer_epoch, first.base_sequence)
            if is_internal and not first.is_control
            else None
        )
        partition.append(
            data, now_ms=append, produce_version=version, internal=is_internal, guard=guard
        )
        kept_magic = 2 if is_internal else magic
        model.write(times, append, is_marker, config.message_timestamp_type, kept_magic)
    return partition, model


def moments(row):
    """When rounds are made, in words: at once, after the grace, and days later."""
    last = LOADS[row.load][-1][0]
    return [
        ("at once", last),
        ("an hour later", last + HOUR),
        ("a millisecond after that", last + HOUR + 1),
        ("two days later", last + 2 * DAY + 1),
    ]


def shown(gone):
    by_policy = {}
    for base, policy in gone:
        by_policy.setdefault(policy, []).append(str(base))
    parts = (f"{', '.join(bases)} by {policy}" for policy, bases in by_policy.items())
    return " and ".join(parts) or "nothing"


def live_through(row, directory):
    """What goes in each round: (words, by the log, by the model)."""
    partition, model = write(row, directory)
    result = []
    for words, now in moments(row):
        segments = [(s.base_offset, s.tail.end_offset, s.tail.size) for s in partition.segments]
        expected = model.round(segments, now)
        told = partition.retainer.apply_retention(now)
        assert all(deletion.largest_time != -1 for deletion in told)
        result.append((words, [(each.base_offset, each.policy) for each in told], expected))
    return result


@pytest.fixture
def fast_directory(tmp_path):
    """A directory in memory, where there is one: the combinations make twenty thousand files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


def test_every_combination_deletes_what_its_sentence_says(fast_directory, capsys):
    sentences, deleted, wrong = (
        set(),
        dict.fromkeys(("retention.ms", "retention.bytes", EVENT), 0),
        [],
    )
    for number, row in enumerate(rows()):
        directory = fast_directory / str(number)
        directory.mkdir()
        rounds = live_through(row, directory)
        sentence = row.words() + ": " + "; ".join(f"{w}, {shown(e)}" for w, _, e in rounds) + "."
        sentences.add(sentence)
        for words, gone, expected in rounds:
            for _, policy in gone:
                deleted[policy] += 1
            if gone != expected:
                wrong.append(f"{sentence} But {words}, the log lost {shown(gone)}.")
    assert not wrong, f"{len(wrong)} of {number + 1}:\n" + "\n".join(wrong[:5])
    with capsys.disabled():
        print(f"\n{number + 1} combinations, {len(sentences)} sentences; deleted: {deleted}")
    assert number + 1 == len(sentences) == 2 * 3 * 2 * 2 * 2 * 3 * 2 * 5
    assert min(deleted.values()) > 200


def counted(times, append_time_ms):
    """Take a control batch's time for an event's."""
    NOTE_CONTROL(times, append_time_ms)
    times.event = later(append_time_ms + 5 * DAY, times.event)


NOTE_CONTROL, EXPIRES_FROM = SegmentTimes.note_control, expires_from
MISTAKES = {
    "control batches are counted": (SegmentTimes, "note_control", counted),
    "an absurd stamp counts as it came": (time_rules, "event_slack", lambda _: 2**62),
    "there is no grace": (
        time_rules,
        "expires_from",
        lambda times, rules, largest: EXPIRES_FROM(times, rules._replace(grace_ms=0), largest),
    ),
    "segments without event time hold back others": (
        _EventTimes,
        "times",
        lambda dated, number: dated._candidates[number].times(),
    ),
    "there is no largest event time": (LargestEvent, "below", lambda *_: None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_contradicts_a_sentence(mistake, fast_directory, monkeypatch):
    monkeypatch.setattr(*MISTAKES[mistake])
    alone = (row for row in rows() if row.event >= 0 and row.ms < 0 and row.size < 0)
    for number, row in enumerate(alone):
        directory = fast_directory / str(number)
        directory.mkdir()
        if any(gone != expected for _, gone, expected in live_through(row, directory)):
            return
    pytest.fail(f"no sentence noticed that {mistake}")


# --- by hand -------------------------------------------------------------------------------------


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


OLD = START - 365 * DAY

TELLING = {
    "a backfill of a year ago is kept, although retention.ms is a week: it was written just now": (
        {"retention_max_eventtime_ms": 5 * DAY, "retention_ms": 7 * DAY},
        [(START + i, [OLD + i * DAY]) for i in range(4)],
        START + 3,
        [],
    ),
    "without event time and basis the same backfill goes at once, as in Kafka": (
        {"retention_time_basis": "record", "retention_ms": 7 * DAY},
        [(START + i, [OLD + i * DAY]) for i in range(4)],
        START + 3,
        [(i, "retention.ms") for i in range(4)],
    ),
    "a backfill of ten days keeps the last two days of its event time, once its grace is over": (
        {"retention_max_eventtime_ms": 2 * DAY},
        [(START, [OLD + i * DAY]) for i in range(10)],
        START + HOUR + 1,
        [(i, EVENT) for i in range(7)],
    ),
    "a millisecond earlier nothing has been read for longer than the grace": (
        {"retention_max_eventtime_ms": 2 * DAY},
        [(START, [OLD + i * DAY]) for i in range(10)],
        START + HOUR,
        [],
    ),
    "with a grace of 0 it goes at once": (
        {"retention_max_eventtime_ms": 2 * DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [OLD + i * DAY]) for i in range(10)],
        START,
        [(i, EVENT) for i in range(7)],
    ),
    "exactly as far behind as the setting allows is kept": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [OLD]), (START, [OLD + DAY])],
        START,
        [],
    ),
    "a millisecond more is not": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [OLD]), (START, [OLD + DAY + 1])],
        START,
        [(0, EVENT)],
    ),
    "one absurd stamp counts as an hour from its append, and expires nothing of the last day": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START + i * HOUR, [START + i * HOUR]) for i in range(3)] + [(START + 3 * HOUR, [ABSURD])],
        START + 3 * HOUR,
        [],
    ),
    "nor does it hold back what comes after it": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [ABSURD]), (START + HOUR, [START]), (START + 2 * DAY, [START + 2 * DAY])],
        START + 2 * DAY,
        [(0, EVENT), (1, EVENT)],
    ),
    "where event.time.ahead.max.ms is five days, a stamp five days ahead counts": (
        {
            "retention_max_eventtime_ms": DAY,
            "retention_max_eventtime_grace_ms": 0,
            "event_time_ahead_max_ms": 5 * DAY,
        },
        [(START, [START]), (START, [START + 5 * DAY])],
        START,
        [(0, EVENT)],
    ),
    "a late record keeps its segment, and the round ends there": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [START - 9 * DAY]), (START, [START, START - 8 * DAY]), (START, [START - 7 * DAY])],
        START,
        [(0, EVENT)],
    ),
    "records without a time have no event time: they go with what follows them": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [-1]), (START, [-1]), (START, [START - 2 * DAY]), (START, [START])],
        START,
        [(0, EVENT), (1, EVENT), (2, EVENT)],
    ),
    "and stay where nothing that follows goes": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [START - 2 * DAY]), (START, [-1]), (START, [START])],
        START,
        [(0, EVENT)],
    ),
    "format 0 has no event time at all, so nothing goes by it": (
        {
            "retention_max_eventtime_ms": 0,
            "retention_max_eventtime_grace_ms": 0,
            "message_format_version": "0.9.0",
            "segment_bytes": 40,
        },
        [(START, [OLD]), (START, [START])],
        START + 9 * DAY,
        [],
    ),
    "on a LogAppendTime topic the event time is the append time": (
        {
            "retention_max_eventtime_ms": DAY,
            "message_timestamp_type": "LogAppendTime",
        },
        [(START, [OLD]), (START + DAY, [OLD]), (START + DAY + 1, [OLD])],
        START + DAY + 1,
        [(0, EVENT)],
    ),
    "event times before 1970 count like others": (
        {"retention_max_eventtime_ms": DAY, "retention_max_eventtime_grace_ms": 0},
        [(START, [-9 * DAY]), (START, [-DAY - 3]), (START, [-2])],
        START,
        [(0, EVENT), (1, EVENT)],
    ),
    "what is compacted and not deleted keeps all its event time": (
        {
            "retention_max_eventtime_ms": 0,
            "retention_max_eventtime_grace_ms": 0,
            "cleanup_policy": ("compact",),
        },
        [(START, [OLD]), (START, [START])],
        START,
        [],
    ),
    "size, age and event time delete each on its own, and each says so": (
        {
            "retention_max_eventtime_ms": DAY,
            "retention_max_eventtime_grace_ms": 0,
            "retention_ms": 3 * DAY,
            "retention_bytes": 4 * 69,
        },
        [
            (START - 5 * DAY, [START]),
            (START - 4 * DAY, [START]),
            (START, [START - 2 * DAY]),
            (START, [START]),
            (START, [START]),
        ],
        START,
        [(0, "retention.bytes"), (1, "retention.ms"), (2, EVENT)],
    ),
}


@pytest.mark.parametrize("sentence", TELLING)
def test_telling_rows(sentence, make_log):
    settings, appends, now, expected = TELLING[sentence]
    log = log_of(make_log, appends, **settings)
    going = log.partition.retainer.explain(now).going
    gone = log.partition.retainer.apply_retention(now)
    assert [(each.base_offset, each.policy) for each in gone] == expected, sentence
    assert going.segments == len(expected)
    assert going.bytes == sum(each.size for each in gone)


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
    (line,) = [record for record in caplog.records if record.message == "segment deleted"]
    assert {name: getattr(line, name) for name in expected} == expected


# --- partition.maxEventTime ----------------------------------------------------------------------


def test_control_batches_are_not_counted(log):
    log.append([1000], now=5)
    marker = build(
        [Record(0, 9000, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
        is_control=True,
        is_transactional=True,
        producer_id=3,
        producer_epoch=0,
    )
    log.partition.append(marker, now_ms=6, produce_version=9, internal=True)
    for _ in range(2):
        assert log.partition.reader.read_max_event_time() == 1000
        log.crash()
        log.open()


def test_it_survives_its_segment_a_stop_and_a_crash(make_log):
    log = log_of(make_log, [(1, [500]), (2, [100]), (3, [90])], retention_max_eventtime_ms=10**6)
    log.partition.retainer.delete_records_before(1)
    assert [each.base_offset for each in log.partition.retainer.apply_retention(4)] == [0]
    for stop in (log.close, log.crash, log.close):
        assert log.partition.max_event_time == 500
        stop()
        log.open()
    assert log.partition.max_event_time == 500


def test_of_a_segment_that_goes_unread_its_event_time_stays(make_log):
    log = log_of(make_log, [(1, [500]), (2, [100]), (3, [90])], retention_bytes=2 * 69)
    log.close()
    (log.directory / "partition.times").unlink()
    log.open()
    assert log.partition.max_event_time is None  # nothing is read before it is needed
    assert [each.base_offset for each in log.partition.retainer.apply_retention(4)] == [0]
    assert log.partition.reader.read_max_event_time() == 500


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
    assert "times of a segment not read" in caplog.text


def test_lost_it_is_made_again_from_the_log_as_far_as_that_goes_and_this_is_said(make_log, caplog):
    settings = {"retention_max_eventtime_ms": 50, "retention_max_eventtime_grace_ms": 0}
    log = log_of(make_log, [(1, [500]), (2, [100]), (3, [90]), (4, [160])], **settings)
    log.partition.retainer.delete_records_before(1)
    log.partition.config = TopicConfig(retention_ms=-1)
    log.partition.retainer.apply_retention(4)
    log.crash()
    (log.directory / "partition.times").unlink()
    log.open()
    assert "partition.times missing: the largest event time is that of what the log holds" in (
        record.message for record in caplog.records
    )
    assert log.partition.reader.read_max_event_time() == 160
    gone = log.partition.retainer.apply_retention(10**15)
    assert [each.base_offset for each in gone] == [1, 2]


def test_made_again_it_is_counted_at_most_as_the_topic_allows(make_log):
    for settings, counted in (
        ({}, START + HOUR),
        ({"message_timestamp_after_max_ms": 2**63 - 1}, START + HOUR),
        ({"message_timestamp_after_max_ms": 2**63 - 2}, START + HOUR),
        ({"event_time_ahead_max_ms": DAY}, START + 20 * HOUR),
        ({"event_time_ahead_max_ms": 2**63 - 1}, START + 20 * HOUR),
    ):
        log = make_log(str(settings), **settings).create()
        log.append([START + 20 * HOUR], now=START)
        for stop in (None, log.crash, log.close):
            if stop is not None:
                stop()
                log.open()
            assert log.partition.reader.read_max_event_time() == counted


def test_capped_at_minus_one_it_is_still_a_time(make_log):
    log = make_log().create()
    log.append([5], now=-HOUR - 1)
    for _ in range(2):
        assert log.partition.reader.read_max_event_time() == 0
        log.close()
        log.open()


def test_above_the_high_watermark_nothing_counts(make_log):
    log = make_log(flush_messages=1, segment_bytes=200).create()
    log.append([100], now=1)
    assert log.partition.max_event_time is None
    log.partition.commit()
    assert log.partition.max_event_time == 100
    for number in range(6):  # rolls on the way
        log.append([900 + number], now=2)
    assert log.partition.high_watermark == 1
    assert len(log.partition.segments) > 2
    assert log.partition.max_event_time == 100
    log.partition.commit()
    assert log.partition.max_event_time == 905


def test_what_a_crash_takes_before_anybody_saw_it_never_counted(make_log):
    log = make_log(flush_messages=1).create()
    log.append([100], now=1)
    log.partition.commit()
    size = log.partition.size
    log.append([900], now=2)
    log.partition.retainer.delete_records_before(0)  # has partition.times written
    log.crash()
    path = log.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:size])
    log.open()
    assert log.partition.log_end_offset == 1
    assert log.partition.reader.read_max_event_time() == 100


def test_a_topic_that_begins_to_flush_keeps_what_was_seen(make_log):
    log = make_log().create()
    log.append([700], now=1)
    log.partition.config = TopicConfig(flush_messages=1)
    log.append([900], now=2)
    assert log.partition.max_event_time == 700
    log.partition.config = TopicConfig()
    log.append([100], now=3)
    assert log.partition.high_watermark == 3
    assert log.partition.max_event_time == 900


def test_nothing_above_the_high_watermark_goes_by_event_time(make_log):
    settings = {"retention_max_eventtime_ms": 10, "retention_max_eventtime_grace_ms": 0}
    log = log_of(make_log, [(1, [100]), (2, [200])], flush_messages=1, **settings)
    log.append([300], now=3)
    assert log.partition.retainer.apply_retention(4) == []
    assert {s.held_by for s in log.partition.retainer.explain(4).segments} == {"high watermark"}
    log.partition.commit()
    assert [each.base_offset for each in log.partition.retainer.apply_retention(4)] == [0, 1]
