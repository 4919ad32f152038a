"""Every combination of event-time retention with what else decides, each row in words.

The proposal's test plan asks for all combinations of properties, and for topics from before and after the
change. A row is a topic, its settings and what was written to it; what a round should delete comes from
`Model`, written from the design's sentences over a plain list of records. Where segments begin and how large
they are is asked of the log.
"""

import functools
import itertools
import uuid

from tidelog.config import BrokerConfig, topic_config
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, scan
from tidelog.storage.log.partition import Partition

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
