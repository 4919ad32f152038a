"""The model: a list of records with both their times, and where segments ought to begin.

It is written from the rules alone (KIP-32, KIP-33, KIP-79, KIP-228, event-time retention) and shares
nothing with `storage` but the size of what was stored. Whatever a life does to a log it does to the
model, and compares what both then are.
"""

import itertools
import random
import shutil
from itertools import count

from tests.storage.conftest import TOPIC_ID
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

FORMATS = ("0.9.0", "0.10.2", "3.0")
LOWEST, HIGHEST = -(2**63), 2**63 - 1

seen = {
    "lives": 0,
    "lookups": 0,
    "lookups below 1970": 0,
    "lookups by append time": 0,
    "of them in doubt": 0,
    "appends": 0,
    "roll decisions": 0,
    "rolls": 0,
    "retention rounds": 0,
    "retention decisions": 0,
    "deleted": 0,
    "deleted by event time": 0,
    "reopened": 0,
}
"""What all lives of this process have seen."""


def cap(append):
    """As which time an event appended then counts at most: an hour later; -1 would be no time."""
    latest = min(append + 3_600_000, HIGHEST)
    return 0 if latest == -1 else latest


class Row:
    """A record: its time and its append time, None where there is none or nobody knows."""

    def __init__(self, time, append):
        self.time, self.append = time, append
        self.adopted = None  # when the log was opened first without a known append time
        self.event = None if time is None else min(time, cap(append))  # as far as it counts


def latest_event(events):
    """The latest of events that may be missing."""
    return max((event for event in events if event is not None), default=None)


class Piece:
    """A segment as the model plans it."""

    def __init__(self, base):
        self.base, self.size = base, 0
        self.clock = None  # what the clock showed at the first append
        self.is_ended = False  # the next append begins another one, whatever the settings say


class Life:
    def __init__(self, path, seed):
        self.random, self.root = random.Random(seed), path
        self.copies = count()
        self.now, self.boot = self.random.choice([1_000_000, 1_000_000, -2_000_000, -300]), 0
        self.origin = self.now
        # Events far ahead count at most an hour beyond their append time. Where that gets lost, they count
        # beyond the moment of their adoption: such a life has the ones or the other.
        self.has_absurd_times = self.random.random() < 0.5
        self.max_event = None
        self.rows, self.pieces = [], [Piece(0)]
        self.log_start, self.last_append = 0, None
        self.durable = 0  # before this offset append times outlive a power loss
        self.in_flight = None  # (end offset, active size) before the append that was the last step
        self.lookups = 0
        self.order = "mixed"
        self.choose()
        self.path = path / "0"
        self.open()
        self.partition = self.store.create_partition("t", TOPIC_ID, 0, self.config, self.now)

    # --- settings ---

    def choose(self):
        pick = self.random.choice
        self.set = {
            "segment_bytes": pick([700, 1500, 6000]),
            "index_interval_bytes": pick([0, 120, 400]),
            "segment_ms": pick([300, 5000, 10**13]),
            "segment_min_roll_interval_ms": pick([0, 100, 10_000]),
            "retention_ms": pick([-1, HIGHEST, 0, 1500, 30_000]),
            "retention_bytes": pick([-1, -1, -1, 1000, 4000]),
            "retention_time_basis": pick(["record", "append"]),
            "retention_max_eventtime_ms": pick([-1, -1, 0, 2000, 60_000]),
            "retention_max_eventtime_grace_ms": pick([0, 100, 5000]),
            "message_format_version": pick([*FORMATS, FORMATS[2]]),
            "message_timestamp_type": pick(["CreateTime", "CreateTime", "LogAppendTime"]),
        }
        self.config = TopicConfig(**self.set)

    def alter(self):
        self.choose()
        self.store.set_config("t", self.config)
        self.order = self.random.choice(
            [
                "ascending",
                "descending",
                "equal",
                "missing",
                "negative",
                "extreme",
                "future",
                "mixed",
            ]
        )

    @property
    def end(self):
        return len(self.rows)

    # --- times ---

    def time(self):
        pick, now = self.random, self.now
        order = self.order
        if order == "mixed":
            order = pick.choice(["ascending", "spread", "spread", "missing", "negative", "future"])
        return {
            "ascending": lambda: now,
            "descending": lambda: self.origin + 1_000_000 - 7 * self.end,
            "equal": lambda: 777,
            "missing": lambda: -1,
            "negative": lambda: -pick.choice([2, 3, 7, 1000, 10**12]),
            "extreme": lambda: pick.choice([LOWEST, LOWEST + 1, -(2**62), 0]),
            "future": lambda: now + pick.choice([1, 10**6, 2**50 if self.has_absurd_times else 5]),
            "spread": lambda: now - pick.randrange(5000),
        }[order]()

    # --- what happens to it ---

    def append(self):
        pick = self.random
        self.now += pick.choice([0, 0, 1, 20, 150, -40])
        if -400 < self.now < 0 and not pick.randrange(4):
            self.now = -1  # the millisecond that is no time
        magic, target = pick.choice([0, 1, 2, 2]), FORMATS.index(self.config.message_format_version)
        codec = pick.choice([0, 0, 1, 2, 3, 4 if magic == target == 2 else 0])
        times = [self.time() for _ in range(pick.choice([1, 1, 2, 5]))]
        if self.order == "extreme" and self.has_absurd_times and not pick.randrange(4):
            times = [HIGHEST]
        records = [Record(i, t, None, b"v" * pick.randrange(20), ()) for i, t in enumerate(times)]
        data = build(records, magic=magic, compression=codec)
        version = 9 if magic == 2 else 2
        stamp = self.now if self.last_append is None else max(self.now, self.last_append)
        stamp = 0 if stamp == -1 else stamp  # as a stamp -1 would be no time
        if target == 0:
            kept = [None] * len(times)
        elif self.set["message_timestamp_type"] == "LogAppendTime":
            kept = [stamp] * len(times)
        else:
            kept = [None if magic == 0 or t == -1 else t for t in times]
        before = self.partition.size
        answer = self.partition.append(data, now_ms=self.now, produce_version=version)
        size = self.partition.size - before
        assert (answer.base_offset, answer.count) == (self.end, len(times))
        self.in_flight = (self.end, self.pieces[-1].size)
        rows = self.rows[self.pieces[-1].base :]
        if rows:  # an empty segment is not judged: it takes any batch
            seen["roll decisions"] += 1
        if rows and self.rolls(rows, kept, stamp, size):
            self.pieces.append(Piece(self.end))
            self.in_flight = (self.end, 0)
            seen["rolls"] += 1
        if not self.pieces[-1].size:
            self.pieces[-1].clock = self.now
        self.pieces[-1].size += size
        self.rows += [Row(t, stamp) for t in kept]
        self.max_event = latest_event([self.max_event, *(r.event for r in self.rows[-len(kept) :])])
        self.last_append = stamp
        self.segments_agree()
        seen["appends"] += 1

    def rolls(self, rows, kept, stamp, size):
        if self.pieces[-1].is_ended:
            return True
        if self.pieces[-1].size + size > self.set["segment_bytes"]:
            return True
        clock = self.pieces[-1].clock
        created = next((r.append for r in rows if r.append is not None), clock)
        age = max(stamp - created, self.now - clock)
        if age < self.set["segment_min_roll_interval_ms"]:
            return False
        first = next((r.time for r in rows if r.time is not None), None)
        new = [t for t in kept if t is not None]
        if first is None or not new:
            return age > self.set["segment_ms"]
        reached = min(max(new), stamp)
        return max(age, reached - min(first, created)) > self.set["segment_ms"]

    def segments_agree(self):
        found = [(s.base_offset, s.tail.size) for s in self.partition.segments]
        assert found == [(p.base, p.size) for p in self.pieces]

    def trim(self):
        self.log_start = self.random.randint(self.log_start, min(self.end, self.log_start + 12))
        assert self.partition.retainer.delete_records_before(self.log_start) == self.log_start
        self.in_flight = None

    def retain(self):
        self.in_flight = None
        expected = self.due()
        found = [
            (d.base_offset, d.policy) for d in self.partition.retainer.apply_retention(self.now)
        ]
        assert found == expected
        del self.pieces[: len(expected)]
        if not self.pieces:
            self.pieces = [Piece(self.end)]
        self.log_start = max(self.log_start, self.pieces[0].base)
        assert self.partition.log_start_offset == self.log_start
        self.segments_agree()
        seen["retention rounds"] += 1
        seen["deleted"] += len(expected)

    def due(self):
        due, left = [], sum(p.size for p in self.pieces)
        keep_ms, keep_bytes = self.set["retention_ms"], self.set["retention_bytes"]
        ends = [p.base for p in self.pieces[1:]] + [self.end]
        for piece, end in zip(self.pieces, ends, strict=True):
            rows = self.rows[piece.base : end]
            if not rows:
                break
            seen["retention decisions"] += 1
            appended = [r.adopted if r.append is None else r.append for r in rows]
            if self.set["retention_time_basis"] == "append":
                newest = appended[-1]
            else:
                pairs = zip(rows, appended, strict=True)
                newest = max(a if r.time is None else min(r.time, a) for r, a in pairs)
            if end <= self.log_start:
                due.append((piece.base, "log start offset"))
            elif keep_bytes != -1 and left - piece.size >= keep_bytes:
                due.append((piece.base, "retention.bytes"))
            elif keep_ms not in {-1, HIGHEST} and self.now - newest > keep_ms:
                due.append((piece.base, "retention.ms"))
            elif self.is_outdated(piece):
                due.append((piece.base, "retention.max.eventtime.ms"))
                seen["deleted by event time"] += 1
            else:
                break
            left -= piece.size
        return due

    def is_outdated(self, piece):
        """Whether event time deletes a segment; one without any is judged by the next that has one."""
        keep_ms = self.set["retention_max_eventtime_ms"]
        grace_ms = self.set["retention_max_eventtime_grace_ms"]
        bases = [p.base for p in self.pieces[self.pieces.index(piece) :]] + [self.end]
        for base, end in itertools.pairwise(bases):
            rows = self.rows[base:end]
            event = latest_event(r.event for r in rows)
            if event is not None:
                break
        else:
            return False
        if keep_ms == -1 or self.max_event - event <= keep_ms:
            return False
        appended = rows[-1].adopted if rows[-1].append is None else rows[-1].append
        return grace_ms == 0 or self.now - appended > grace_ms

    def wait(self):
        self.now += self.random.choice([10, 400, 4000])

    def flush(self):
        self.partition.flush()
        self.durable, self.in_flight = self.end, None

    def checkpoint(self):
        self.store.checkpoint()
        self.durable, self.in_flight = self.end, None

    # --- stops ---

    def open(self):
        self.store = LogStore([self.path], default_config=self.config, boot_id=f"b{self.boot}")
        self.store.open(self.now)

    def reopen(self):
        self.open()
        for row in self.rows:
            if row.append is None and row.adopted is None:
                row.adopted = self.now
        self.partition = self.store.partition("t", 0)
        self.in_flight = None
        assert self.partition.log_end_offset == self.end
        assert self.partition.log_start_offset == self.log_start
        self.segments_agree()
        self.judge_clock()
        self.judge_largest_event()
        self.judge_end()
        seen["reopened"] += 1

    def judge_end(self):
        """A segment takes no appends where it is not known that this broker has written all of it."""
        piece = self.pieces[-1]
        piece.is_ended = self.partition.segments[-1].is_ended
        assert piece.size or not piece.is_ended

    def judge_clock(self):
        """What the clock showed as the last segment began is known, or it counts from this start."""
        found = self.partition.segments[-1].known_times[0].created_clock
        piece = self.pieces[-1]
        rows = self.rows[piece.base :]
        assert found in ({piece.clock, self.now, rows[0].adopted} if rows else {None})
        piece.clock = found

    def judge_largest_event(self):
        """It is at least that of the records, and at most what was lost with a torn end."""
        found = self.partition.reader.read_max_event_time()
        least = latest_event(r.event for r in self.rows)
        assert found in {least, self.max_event} or least < found < self.max_event
        self.max_event = found

    def copy(self):
        """Leave the directory as it is, open, and go on in a copy of it."""
        path = self.root / str(next(self.copies) + 1)
        shutil.copytree(self.path, path)
        self.store._release()
        shutil.rmtree(self.path)
        self.path = path

    def let_time_go_on(self):
        """Have the next append after all others, for how far time had come may be lost."""
        latest = self.now if self.last_append is None else max(self.now, self.last_append)
        self.now, self.last_append = latest + 50, None

    def log_of(self, piece):
        return self.path / "t-0" / f"{piece.base:020}.log"

    # --- what the model knows ---

    def count(self, time):
        self.lookups += 1
        seen["lookups"] += 1
        seen["lookups below 1970"] += time < 0

    def visible(self, upper):
        return list(enumerate(self.rows))[self.log_start : upper]

    def first_at(self, time, upper):
        hits = ((o, r.time) for o, r in self.visible(upper) if r.time is not None)
        return next((hit for hit in hits if hit[1] >= time), None)
