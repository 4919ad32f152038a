"""Random logs, compacted again and again, beside a model that fits on one screen.

Every format, codec and time type, records without a key, a value or a time, idempotent producers and
transactions, settings that change, a clock that is far ahead or behind for one append. After each
cleaning: what is left, its offsets, times and append times; lookups by both times; what producers may
send next. Then the same after a stop and after a crash.
"""

import os
import random
import struct
from typing import NamedTuple

import pytest

from tests.storage.cleaning import clean
from tests.storage.log_model import agreement
from tests.storage.log_model import model as log_model
from tests.storage.log_model.model import ModelLog
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records import survivors
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.compaction import (
    cleaned_segment,
    cleaner,
    compared_times,
    decided_transactions,
    plan,
)
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.compaction.due_tombstones import DueTombstones
from tidelog.storage.log.compactor import Compactor
from tidelog.storage.segment.appended.entries import Cursor
from tidelog.storage.time.timestamp import or_none

LOGS = int(os.environ.get("TIDELOG_COMPACTED_LOGS", "12"))
DELETE_RETENTION_MS = 500
FAR_MS = 1_000_000  # ahead or behind is a wrong clock
CODECS = {0: (0, 1, 2, 3), 1: (0, 1, 2, 3), 2: (0, 1, 2, 3, 4)}
RELEASES = ("0.9.0", "0.10.2", "3.0")


class Row(NamedTuple):
    """A record as a consumer sees it, and what the cleaner has to know of its batch."""

    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    append: int
    batch: int  # the last offset of its batch when it was appended
    magic: int
    aborted: bool = False
    control: bool = False
    stamped: bool = False  # the broker gave the time


class Model:
    """What must be left: rows, and the delete horizons of batches of format 2."""

    def __init__(self, by_time, ahead):
        self.rows = []
        self.steps = []  # where the clock went back, and what it showed then
        self.by_time = by_time
        self.ahead = ahead
        self.first_dirty = 0
        self.horizons = {}
        self.old_horizon = (
            None  # of the tombstones of formats 0 and 1 that are clean; not known after a start
        )

    def beats(self, row, other):
        """Whether a record replaces one before it."""
        if not self.by_time or NO_TIMESTAMP in (row.time, other.time):
            return True
        return (row.stamped and other.stamped) or self.counted(row) >= self.counted(other)

    def counted(self, row):
        written = self.written(row.offset, row.append)
        return written if row.stamped else min(row.time, max(written + self.ahead, 0))

    def written(self, offset, append):
        """When a record was written at the latest, by what the clock showed since."""
        return min([append, *(shown for end, shown in self.steps if offset < end)])

    def clock(self, now):
        """What the clock shows at the next append."""
        if self.rows and self.rows[-1].append - now > 10_000:
            self.steps.append((self.rows[-1].offset + 1, now))

    def is_followed(self, row):
        """Whether a record of a key in the row's batch is behind it."""
        last = {each.key: each.offset for each in self.rows if each.batch == row.batch}
        return any(
            each.offset > last.get(each.key, each.offset) and not each.control
            for each in self.rows
            if not (each.aborted and each.offset < self.upper)
        )

    def clean(self, upper, old_horizon_of, now):
        self.upper, clean_until = upper, -1
        if self.old_horizon is not None and now >= self.old_horizon:
            clean_until = self.first_dirty
        stands = {}
        for row in self.rows:
            if row.offset >= upper or row.key is None or row.aborted or row.control:
                continue
            if row.key not in stands or self.beats(row, stands[row.key]):
                stands[row.key] = row
        left = []
        for row in self.rows:
            if row.control or row.offset >= upper:
                left.append(row)
                continue
            if row.aborted or row.key is None or stands[row.key] is not row:
                continue
            if row.value is None and not (self.by_time and self.is_followed(row)):
                if row.magic < 2:
                    if row.offset < clean_until or old_horizon_of(row.offset):
                        continue
                elif row.batch in self.horizons and now >= self.horizons[row.batch]:
                    continue
            left.append(row)
        for row in left:
            if row.offset < upper and row.magic == 2 and row.value is None and not row.control:
                self.horizons.setdefault(row.batch, now + DELETE_RETENTION_MS)
        old = [row for row in left if clean_until <= row.offset < upper and row.magic < 2]
        is_waiting = any(row.value is None for row in old)
        self.old_horizon = now + DELETE_RETENTION_MS if is_waiting else None
        self.rows, self.first_dirty = left, upper


def as_log(rows):
    """What is left, as the model of a log that lookups are compared with; a mark has no time."""
    log = ModelLog()
    for row in rows:
        time = None if row.control or row.time == NO_TIMESTAMP else row.time
        kept = log_model.Row(row.offset, time, row.value)
        log.append([log_model.Batch((kept,), row.append, -1, None)])
    return log


class Play:
    """One random log and its model."""

    def __init__(self, make_log, rng):
        self.rng, self.now = rng, 1_000
        self.settings = {
            "cleanup_policy": ("compact",),
            "segment_bytes": rng.choice([400, 1_000, 3_000]),
            "index_interval_bytes": rng.choice([0, 100, 4096]),
            "delete_retention_ms": DELETE_RETENTION_MS,
            "compaction_strategy": rng.choice(["offset", "timestamp"]),
            "event_time_ahead_max_ms": rng.choice([0, 300, 3_600_000]),
            "file_delete_delay_ms": 0,
        }
        self.log = make_log(f"log{rng.random()}", **self.settings).create()
        self.model = Model(
            self.settings["compaction_strategy"] == "timestamp",
            self.settings["event_time_ahead_max_ms"],
        )
        self.sequences = {}
        self.keys = rng.choice([2, 6, 40])

    @property
    def partition(self):
        return self.log.partition

    def change(self, magic):
        config = TopicConfig(
            **self.settings,
            message_format_version=RELEASES[magic],
            message_timestamp_type=self.rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        )
        self.log.config = self.partition.config = config
        self.log.store.set_config("t", config)
        return config.message_timestamp_type == "LogAppendTime"

    def append(self):
        rng, magic = self.rng, self.rng.choice([0, 1, 2, 2, 2])
        stamped = self.change(magic)
        self.now += rng.choice([0, 0, 1, 7, 100])
        now = self.now + (rng.choice([-FAR_MS, FAR_MS]) if rng.random() < 0.04 else 0)
        self.model.clock(now)
        count = rng.choice([1, 1, 2, 3, 6])
        sent = [
            Record(
                i,
                rng.choice([-1, -7, 5, 5, 900, self.now, 3_000]) if magic else -1,
                b"k%d" % rng.randrange(self.keys),
                None if rng.random() < 0.25 else rng.randbytes(rng.randrange(30)),
            )
            for i in range(count)
        ]
        more, pid = {}, rng.choice([None, 1, 2])
        if magic == 2 and pid is not None:
            sequence = self.sequences.get(pid, 0)
            more = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[pid] = sequence + count
        data = build(sent, magic=magic, compression=rng.choice(CODECS[magic]), **more)
        self.sent = data
        self.partition.append_clock.note_step_back(now)
        told = self.partition.append(data, now_ms=now, produce_version=9 if magic == 2 else 2)
        codec = scan(data)[0].attributes & 7
        for i, record in enumerate(sent):
            offset = told.base_offset + i
            time = record.timestamp if magic else NO_TIMESTAMP
            if stamped and magic:
                time = now
            batch = offset if magic < 2 and not codec else told.last_offset
            row = Row(offset, time, record.key, record.value, now, batch, magic)
            self.model.rows.append(row._replace(stamped=stamped and magic > 0))

    def transact(self):
        """A transaction of producer 9, of one or two batches, committed or aborted."""
        rng, pid = self.rng, 9
        self.change(2)
        aborted = rng.random() < 0.5
        common = {"producer_id": pid, "producer_epoch": 0, "is_transactional": True}
        for _ in range(rng.choice([1, 2])):
            sequence = self.sequences.get(pid, 0)
            record = Record(
                0, self.now, b"k%d" % rng.randrange(self.keys), rng.choice([None, b"x"])
            )
            data = build([record], base_sequence=sequence, **common)
            self.sequences[pid] = sequence + 1
            self.put(data, record, aborted=aborted)
        key, value = struct.pack(">hh", 0, not aborted), struct.pack(">hi", 0, 0)
        marker = Record(0, self.now, key, value)
        self.put(build([marker], is_control=True, **common), marker, control=True)

    def put(self, data, record, **kind):
        self.model.clock(self.now)
        self.partition.append_clock.note_step_back(self.now)
        told = self.partition.append(
            data,
            now_ms=self.now,
            produce_version=9,
            internal=True,
            guard=self.partition.verification(9, 0, scan(data)[0].base_sequence),
        )
        stamped = self.log.config.message_timestamp_type == "LogAppendTime"
        time, offset = self.now if stamped else record.timestamp, told.base_offset
        row = Row(offset, time, record.key, record.value, self.now, offset, 2, **kind)
        self.model.rows.append(row._replace(stamped=stamped))
        return offset

    def clean(self):
        partition, model = self.partition, self.model
        segments = partition.segments
        partition.flush()
        last = [(s.base_offset, s.tail.end_offset - 1, s.append_times.last_time) for s in segments]
        written = {base: time and model.written(offset, time) for base, offset, time in last}
        before = [s.base_offset for s in segments[:-1] if s.base_offset < model.first_dirty]
        horizon = written[before[-1]] if before else None

        def old_horizon_of(offset):
            if horizon is None:
                return False
            base = max(base for base in written if base <= offset)
            return written[base] <= horizon - DELETE_RETENTION_MS

        done = clean(partition, self.now)
        if done is None:
            return
        # An empty segment has no append time; the file's date is today's.
        assert done.first_dirty_offset == segments[-1].base_offset
        model.clean(done.first_dirty_offset, old_horizon_of, self.now)

    def check(self):
        partition, rows = self.partition, self.model.rows
        end = partition.log_end_offset
        found, offset = [], 0
        while offset < end:
            fetched = partition.read(offset, 700, upper_offset=end, minimum_one=True)
            if not fetched.size:
                break
            data = b"".join(fetched.buffers)
            batches = scan(data)
            found += [
                (r.offset, r.timestamp, r.key, r.value)
                for batch in batches
                for r in records(data, batch)
                if r.offset >= offset
            ]
            offset = batches[-1].last_offset + 1
        # Markers of transactions go some time: `test_compaction` says when.
        controls = {row.offset for row in rows if row.control}
        there = {row[0] for row in found}
        assert [row for row in found if row[0] not in controls] == [
            row[:4] for row in rows if not row.control
        ]
        rows = self.model.rows = [r for r in rows if r.offset in there]
        for row in rows:
            times = partition.reader.times_of(row.offset)
            none = row.time == NO_TIMESTAMP or row.control
            assert times.record_time == (None if none else row.time)
            assert times.append_time == row.append
        agreement.lookups(partition, as_log(rows), by_append_time=not self.model.steps)
        for time in (self.now - 50, self.now):
            since = partition.reader.find_by_append_time(time, upper_offset=end)
            if since.absent_from is not None:
                assert not [r for r in rows if since.absent_from <= r.offset < since.offset]
        assert sum(s.size for s in partition.retainer.explain(self.now).segments) == partition.size
        for segment in partition.segments:
            assert segment.indexes.is_true
        names = os.listdir(self.log.directory)
        assert not [n for n in names if n.endswith((".cleaned", ".swap"))]

    def reopen(self):
        if self.rng.random() < 0.5:
            self.log.close()
        else:
            self.log.crash()
        if self.rng.random() < 0.5:  # then the log alone tells of the producers
            for snapshot in self.log.directory.glob("*.snapshot"):
                snapshot.unlink()
        self.log.open(self.now)
        self.model.old_horizon = None
        assert self.partition.cleaned_offset == (self.model.first_dirty or None)

    def go_on_producing(self):
        """Each producer's last batch is a duplicate, and the next one follows."""
        self.change(2)
        for pid, sequence in self.sequences.items():
            producer = self.partition.state.read_producers().get(pid)
            assert producer.next_sequence == sequence, pid


def run(make_log, number):
    play = Play(make_log, random.Random(number))
    for _ in range(play.rng.randrange(2, 5)):
        for _ in range(play.rng.randrange(5, 40)):
            play.append() if play.rng.random() < 0.85 else play.transact()
        play.check()
        play.now += play.rng.choice([0, 100, 600])
        play.clean()
        play.check()
        if play.rng.random() < 0.6:
            play.log.store.checkpoint()
            play.reopen()
            play.check()
            play.go_on_producing()


@pytest.mark.parametrize("number", range(LOGS))
def test_random_logs(make_log, number):
    run(make_log, number)


def believed(data, batch, sifted):
    """A batch written anew, with the largest time it had before."""
    return OF(data, batch, sifted)._replace(largest=or_none(batch.max_timestamp))


OF = cleaned_segment.Survivor.of
BUGS = {
    "times are not compared": (plan, "TIMESTAMP", "never"),
    "tombstones never go": (cleaner, "is_past_horizon", lambda *_: False),
    "tombstones go at once": (cleaner, "is_past_horizon", lambda *_: True),
    "a producer's last batch goes": (Cleaner, "_is_last_of_producer", lambda *_: False),
    "what was aborted stays": (decided_transactions.Transactions, "is_aborted", lambda *_: False),
    "a time from the future wins": (compared_times, "comparison_limit", lambda *_: 2**63 - 1),
    "stamps count as they are": (compared_times, "compared_stamp", lambda stamp, *_, **__: stamp),
    "tombstones go whatever follows": (DueTombstones, "follow", lambda *_: None),
    "append times are those before": (
        Cursor,
        "at",
        lambda self, _: None if self._next_entry is None else self._next_entry.time,
    ),
    "a largest time is believed": (cleaned_segment.Survivor, "of", believed),
    "a horizon moves no time": (
        survivors.kernels,
        "select",
        lambda *args: SELECT(*args[:-1], args[6]),
    ),
    "segments are taken for one too many": (
        Compactor,
        "_sources_of",
        lambda self, c: self._state.version.segments[: c.sources],
    ),
}
SELECT = survivors.kernels.select


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_an_injected_bug_is_caught(make_log, monkeypatch, bug):
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(Exception) as caught:  # noqa: PT012
        for number in range(25):
            run(make_log, number)
        pytest.fail("nobody noticed", pytrace=False)
    assert "nobody noticed" not in str(caught.value)
