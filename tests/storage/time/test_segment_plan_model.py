"""Lookups, rolls and retention against a second model, which plans every segment by itself.

The model is written from the rules alone (KIP-32, KIP-33, KIP-79, KIP-228, event-time retention): a list of
records with both their times, before 1970 too, and where segments ought to begin. It shares nothing with
`storage` but the size of what was stored, so a roll too many or too few is a difference like any other.
Lives mix formats, codecs, kinds of time, orders, trims, clean stops, kills (the directory is copied while
open), torn ends, power losses and damaged indexes; logs of somebody else have headers that lie. Planted
bugs must be caught.

A decision is one append judged for a roll, or one segment judged by one round of retention; the
model comes to its own answer for each, and they are compared. TIDELOG_MODEL_SEED=n replays one
life, TIDELOG_MODEL_LOOKUPS=n says how many lookups are asked, TIDELOG_MODEL_DECISIONS=n how many
decisions of either kind at least.
"""

import itertools
import os
import random
import shutil
import struct
import zlib
from itertools import count

import crc32c
import pytest

from config.topic import TopicConfig
from protocol.records.batch import Record, build
from storage.directory.store import LogStore
from storage.log import partition_times
from storage.log.largest_event import LargestEvent
from storage.log.lookup import AppendedSince
from storage.segment import survey
from storage.segment.append_times import AppendTimes
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import Segment
from storage.segment.time_index import TimeIndex
from storage.time.retention import _EventTimes
from storage.time.timestamp import or_none
from tests.storage.conftest import TOPIC_ID
from tests.time_rules import time_rules

LOOKUPS = int(os.environ.get("TIDELOG_MODEL_LOOKUPS", "6000"))
DECISIONS = int(os.environ.get("TIDELOG_MODEL_DECISIONS", str(LOOKUPS // 30)))
SEED = os.environ.get("TIDELOG_MODEL_SEED")
LOOKUPS_OF_A_LIFE = 400
LONGEST_LIFE = 400  # steps, for a life that hardly looks anything up
FORMATS = ("0.9.0", "0.10.2", "3.0")
LOWEST, HIGHEST = -(2**63), 2**63 - 1
LATER = 2**70  # an append time nobody knows: the file's date stands in, and that is today

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


def cap(append):
    """As which time an event appended then counts at most: an hour later; -1 would be no time."""
    latest = min(append + 3_600_000, HIGHEST)
    return 0 if latest == -1 else latest


class Row:
    """A record: its time and its append time, None where there is none or nobody knows."""

    def __init__(self, time, append):
        self.time, self.append = time, append
        self.event = None if time is None else min(time, cap(append))  # as far as it counts


def latest_event(events):
    """The latest of events that may be missing."""
    return max((event for event in events if event is not None), default=None)


class Piece:
    """A segment as the model plans it."""

    def __init__(self, base):
        self.base, self.size = base, 0


def headers(data):
    """Walk over whole batches: (position, size, magic, last offset)."""
    position = 0
    while len(data) - position >= 26:
        offset, size = struct.unpack_from(">qi", data, position)
        magic = data[position + 16]
        if position + 12 + size > len(data):
            return
        last = offset
        if magic == 2:
            last += struct.unpack_from(">i", data, position + 23)[0]
        yield position, 12 + size, magic, last
        position += 12 + size


class Life:
    def __init__(self, path, seed):
        self.random, self.root = random.Random(seed), path
        self.copies = count()
        self.now, self.boot = self.random.choice([1_000_000, 1_000_000, -2_000_000, -300]), 0
        self.origin = self.now
        # Events far ahead count at most an hour beyond their append time. Where that gets lost the file's
        # date stands in, which no model knows: such a life has the ones or the other.
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
        self.pieces[-1].size += size
        self.rows += [Row(t, stamp) for t in kept]
        self.max_event = latest_event([self.max_event, *(r.event for r in self.rows[-len(kept) :])])
        self.last_append = stamp
        self.segments_agree()
        seen["appends"] += 1

    def rolls(self, rows, kept, stamp, size):
        if self.pieces[-1].size + size > self.set["segment_bytes"]:
            return True
        created = next((r.append for r in rows if r.append is not None), None)
        if created is None or stamp - created < self.set["segment_min_roll_interval_ms"]:
            return False
        first = next((r.time for r in rows if r.time is not None), None)
        new = [t for t in kept if t is not None]
        if first is None or not new:
            return stamp - created > self.set["segment_ms"]
        return max(new) > first + self.set["segment_ms"]

    def segments_agree(self):
        found = [(s.base_offset, s.tail.size) for s in self.partition.segments]
        assert found == [(p.base, p.size) for p in self.pieces]

    def trim(self):
        self.log_start = self.random.randint(self.log_start, min(self.end, self.log_start + 12))
        assert self.partition.delete_records_before(self.log_start) == self.log_start
        self.in_flight = None

    def retain(self):
        self.in_flight = None
        expected = self.due()
        found = [(d.base_offset, d.policy) for d in self.partition.apply_retention(self.now)]
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
            appended = [LATER if r.append is None else r.append for r in rows]
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
        appended = LATER if rows[-1].append is None else rows[-1].append
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
        self.partition = self.store.partition("t", 0)
        self.in_flight = None
        assert self.partition.log_end_offset == self.end
        assert self.partition.log_start_offset == self.log_start
        self.segments_agree()
        self.judge_largest_event()
        seen["reopened"] += 1

    def judge_largest_event(self):
        """It is at least that of the records, and at most what was lost with a torn end."""
        found = self.partition.read_max_event_time()
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

    def stop(self):
        self.store.close()
        self.durable = self.end
        if self.random.random() < 0.4:
            self.damage()
        self.reopen()

    def kill(self):
        self.copy()
        if self.random.random() < 0.3:
            self.damage(within_entries=False)
        self.reopen()

    def kill_in_write(self):
        """Killed while the last append was being written: a part of it is there."""
        if self.in_flight is None:
            return
        (offset, size), piece = self.in_flight, self.pieces[-1]
        self.copy()
        self.tear(size, piece)
        assert self.end >= offset
        self.let_time_go_on()
        self.reopen()

    def lose_power(self):
        """What was not durable may be gone, and nobody knows when the rest was appended."""
        if self.has_absurd_times:
            return
        self.copy()
        self.boot += 1
        piece, floor = self.pieces[-1], 0
        data, first = self.log_of(piece).read_bytes(), piece.base
        for position, size, _, last in headers(data):
            if first < max(self.durable, self.log_start):  # a trim leaves no half of a batch
                floor = position + size
            first = last + 1
        if self.random.random() < 0.6:
            self.tear(floor, piece)
        for row in self.rows[self.durable :]:
            row.append = None
        self.let_time_go_on()
        self.reopen()

    def let_time_go_on(self):
        """Have the next append after all others, for how far time had come may be lost."""
        latest = self.now if self.last_append is None else max(self.now, self.last_append)
        self.now, self.last_append = latest + 50, None

    def log_of(self, piece):
        return self.path / "t-0" / f"{piece.base:020}.log"

    def tear(self, floor, piece):
        path = self.log_of(piece)
        data = path.read_bytes()
        cut = self.random.randint(floor, len(data))
        zeros = self.random.choice([0, 0, len(data) - cut])
        torn = data[:cut] + bytes(zeros)
        path.write_bytes(torn)
        while cut < len(torn) and torn[cut] == data[cut]:
            cut += 1  # what was zero before has not been lost
        piece.size, end = 0, piece.base
        for position, size, _, last in headers(data[:cut]):
            piece.size, end = position + size, last + 1
        del self.rows[end:]

    def damage(self, *, within_entries=True):
        """Remove, cut or zero some of the files that can be made again.

        Recovery believes the last entry that was durable, for a crash leaves no half of that one; zeros
        at the end of the last segment's index are what a Kafka that was killed leaves, not we.
        """
        last_index = self.log_of(self.pieces[-1]).with_suffix(".index")
        for path in sorted((self.path / "t-0").glob("*index")):
            data = path.read_bytes()
            cut = self.random.randint(0, len(data))
            if not within_entries:
                cut -= cut % (8 if path.suffix == ".index" else 12)
            match self.random.randrange(6):
                case 0:
                    path.unlink()
                case 1:
                    path.write_bytes(data[:cut])
                case 2:
                    zeros = 0 if path == last_index and not within_entries else len(data) - cut
                    path.write_bytes(data[:cut] + bytes(zeros))

    # --- questions ---

    def look_up(self):
        nearby = [r.time for r in self.random.choices(self.rows, k=6)] if self.rows else []
        wanted = {t + d for t in nearby if t is not None for d in (-1, 0, 1)}
        wanted |= {LOWEST, HIGHEST, -7, 0, self.now, self.time(), -self.random.randrange(10**4)}
        uppers = [self.end, self.random.randint(self.log_start, self.end), self.log_start]
        for time in sorted(wanted):
            if time == -1 or not LOWEST <= time <= HIGHEST:
                continue
            for upper in uppers[: self.random.choice([1, 2, 3])]:
                expected = self.first_at(time, upper)
                found = self.partition.find_by_time(time, upper_offset=upper)
                assert found == expected, f"find_by_time({time}, upper_offset={upper})"
                self.count(time)
            if not -6 <= time < 0:
                self.look_up_v0(time)
        for upper in uppers:
            known = [(r.time, -o) for o, r in self.visible(upper) if r.time is not None]
            expected = (-max(known)[1], max(known)[0]) if known else None
            assert self.partition.find_largest_time(upper_offset=upper) == expected, upper
            self.count(0 if expected is None else expected[1])
        for target, answer in ((-1, self.end), (-2, self.log_start)):
            assert self.partition.offsets_before_v0(target, 1) == [answer]

    def count(self, time):
        self.lookups += 1
        seen["lookups"] += 1
        seen["lookups below 1970"] += time < 0

    def look_up_v0(self, time):
        most = self.random.choice([0, 1, 2, 100])
        found = self.first_at(time, self.end)
        first = self.end if found is None else found[0]
        bases = sorted({max(p.base, self.log_start) for p in self.pieces}, reverse=True)
        expected = [first, *(b for b in bases if b < first)][:most]
        assert self.partition.offsets_before_v0(time, most) == expected, f"v0 {time}"
        self.count(time)

    def look_up_appended(self):
        """Ask when appending reached a time, which may be unknown."""
        nearby = [r.append for r in self.random.choices(self.rows, k=5)] if self.rows else []
        wanted = {t + d for t in nearby if t is not None for d in (0, 1)}
        wanted |= {LOWEST, HIGHEST, -1, self.now}
        for time in sorted(wanted):
            upper = self.random.choice([self.end, self.end, self.random.randint(0, self.end)])
            expected = self.first_appended(time, max(upper, self.log_start))
            found = self.partition.find_by_append_time(
                time, upper_offset=max(upper, self.log_start)
            )
            assert found == expected, f"find_by_append_time({time}, upper_offset={upper})"
            seen["lookups by append time"] += 1
            seen["of them in doubt"] += found.unknown_from is not None

    def first_appended(self, time, upper):
        """The first row surely appended at a time or later, and the first before it in doubt.

        Witnesses are all rows from the beginning of the segment on in which the log begins. An unknown
        row lies between the known ones around it, which is no help where these go back.
        """
        ends = [*(p.base for p in self.pieces[1:]), self.end]
        base = next(
            (p.base for p, e in zip(self.pieces, ends, strict=True) if e > self.log_start), 0
        )
        before, after, following = None, {}, None
        for number in range(self.end - 1, base - 1, -1):
            after[number] = following
            following = following if self.rows[number].append is None else self.rows[number].append
        doubt = None
        for number in range(base, upper):
            append = self.rows[number].append
            known, latest = append is not None, before if append is None else append
            if latest is not None and latest >= time:
                if number >= self.log_start:
                    return AppendedSince(number, append, doubt)
            elif not known:
                surely_not = after[number] is not None and after[number] < time
                if before is not None and surely_not and after[number] < before:
                    surely_not = False
                if not surely_not and doubt is None and number >= self.log_start:
                    doubt = number
            before = latest
        return AppendedSince(None, None, doubt)

    def visible(self, upper):
        return list(enumerate(self.rows))[self.log_start : upper]

    def first_at(self, time, upper):
        hits = ((o, r.time) for o, r in self.visible(upper) if r.time is not None)
        return next((hit for hit in hits if hit[1] >= time), None)

    def ask_append_times(self):
        assert self.partition.read_max_event_time() == self.max_event
        for offset in range(max(self.log_start, self.end - 40), self.end):
            assert self.partition.append_time_of(offset) == self.rows[offset].append, offset

    def step(self):
        names = ["append"] * 24 + ["look_up"] * 3 + ["ask_append_times"] * 2 + ["wait"] * 2
        names += ["look_up_appended"] * 3
        names += [
            "retain",
            "retain",
            "retain",
            "retain",
            "alter",
            "alter",
            "trim",
            "flush",
            "checkpoint",
        ]
        names += ["stop", "kill", "kill_in_write", "kill_in_write", "lose_power"]
        getattr(self, self.random.choice(names))()


def live(path, seed, lookups=LOOKUPS_OF_A_LIFE):
    """Live until enough has been asked; what fails names the seed."""
    life = Life(path / f"life{seed}", seed)
    step = 0
    try:
        while life.lookups < lookups and step < LONGEST_LIFE:
            life.step()
            step += 1
        life.look_up()
        life.look_up_appended()
        life.ask_append_times()
    except Exception as error:
        raise AssertionError(f"seed: TIDELOG_MODEL_SEED={seed}, step {step}: {error!r}") from error
    finally:
        life.store._release()
        shutil.rmtree(path / f"life{seed}", ignore_errors=True)
    seen["lives"] += 1


@pytest.mark.timeout(1200)
def test_lives(tmp_path):
    """Enough lives for the lookups wanted, or the one that is asked for."""
    if SEED is not None:
        live(tmp_path, int(SEED))
        return
    for seed in count():
        decisions = min(seen["roll decisions"], seen["retention decisions"])
        negative = seen["lookups below 1970"]
        appended = seen["lookups by append time"]
        enough = seen["lookups"] >= LOOKUPS and negative >= LOOKUPS // 5
        enough = enough and seen["deleted by event time"] >= DECISIONS // 20
        if enough and appended >= LOOKUPS // 10 and decisions >= DECISIONS:
            break
        live(tmp_path, seed)
    print(f"no mismatch: {seen}")


# --- logs of somebody else ---


def lie(data, pick):
    """Give batches of formats 1 and 2 another largest time, with a checksum that holds."""
    data = bytearray(data)
    for position, size, magic, _ in list(headers(data)):
        attributes = data[position + 22] if magic == 2 else data[position + 17]
        if attributes & 8 or pick.random() < 0.5:
            continue  # with LogAppendTime the header's time is the records'
        told = pick.choice([-1, 0, 5, 10**6, 2**61, -9])
        if magic == 2:
            struct.pack_into(">q", data, position + 35, told)
            told_crc = crc32c.crc32c(bytes(data[position + 21 : position + size]))
            struct.pack_into(">I", data, position + 17, told_crc)
        elif magic == 1 and attributes & 7:
            struct.pack_into(">q", data, position + 18, told)
            told_crc = zlib.crc32(bytes(data[position + 16 : position + size]))
            struct.pack_into(">I", data, position + 12, told_crc)
    return bytes(data)


def visit(path, seed):
    """Open what somebody else has written, with headers that lie, and look things up."""
    life = Life(path / f"foreign{seed}", seed)
    life.has_absurd_times = False
    try:
        for _ in range(life.random.choice([10, 40])):
            life.append()
            if not life.random.randrange(6):
                life.alter()
        life.store.close()
        (life.path / "t-0" / partition_times.FILE_NAME).unlink()
        for file in sorted((life.path / "t-0").iterdir()):
            if file.suffix == ".appendtimes":
                file.unlink()
            elif file.suffix == ".log":
                file.write_bytes(lie(file.read_bytes(), life.random))
            elif file.suffix in {".index", ".timeindex"} and life.random.random() < 0.3:
                file.unlink()
        for row in life.rows:
            row.append = None
        life.let_time_go_on()
        life.reopen()
        life.look_up()
        life.look_up_appended()
        life.ask_append_times()
        for _ in range(8):  # a log may be gone on with
            life.now += 50
            life.append()
        life.look_up()
        life.look_up_appended()
        life.ask_append_times()
        life.stop()
        life.look_up()
    except Exception as error:
        raise AssertionError(f"foreign log, seed {seed}: {error!r}") from error
    finally:
        life.store._release()
        shutil.rmtree(path / f"foreign{seed}", ignore_errors=True)


@pytest.mark.parametrize("seed", range(max(12, LOOKUPS // 400)))
def test_logs_of_somebody_else(seed, tmp_path):
    visit(tmp_path, seed)


# --- planted bugs: each must be caught ---


def believe_headers(monkeypatch):
    def note(segment, found, times, fallback_ms):
        time = or_none(found.batch.max_timestamp)
        times.note(time, time, found.batch.last_offset, time is None, fallback_ms, HIGHEST)
        return True

    def largest_of(self, found):
        return or_none(found.batch.max_timestamp)

    monkeypatch.setattr(survey, "_note", note)
    monkeypatch.setattr(Segment, "largest_of", largest_of)


def keep_append_times_when_cutting(monkeypatch):
    monkeypatch.setattr(AppendTimes, "truncate", lambda self, end_offset: None)


def skip_segments_by_their_last_entry(monkeypatch):
    def largest_time(self):
        last = self.time_index.last()
        return None if last is None else last.timestamp

    monkeypatch.setattr(Segment, "largest_time", largest_time)


def search_behind_the_last_entry_alone(monkeypatch):
    monkeypatch.setattr(TimeIndex, "first_reaching", lambda self, timestamp: self.last())


def one_index_entry_too_far(monkeypatch):
    floor = OffsetIndex.floor
    monkeypatch.setattr(OffsetIndex, "floor", lambda self, offset: floor(self, offset + 1))


def one_time_entry_too_far(monkeypatch):
    def first_reaching(self, timestamp):
        return next((e for e in self.entries() if e.timestamp > timestamp), None)

    monkeypatch.setattr(TimeIndex, "first_reaching", first_reaching)


def age_by_record_times_alone(monkeypatch):
    def has_aged(times, now_ms, retention):
        limit = retention.retention_ms
        return limit is not None and times.largest is not None and now_ms - times.largest > limit

    monkeypatch.setattr(time_rules, "has_aged", has_aged)


def delete_beyond_the_first_that_stays(monkeypatch):
    right = time_rules.segments_to_delete

    def segments_to_delete(candidates, retention, **more):
        for first in range(len(candidates)):  # as if nothing were older
            found = right(candidates[first:], retention, **more)
            if found:
                return right(candidates[:first], retention, **more) + found
        return []

    monkeypatch.setattr(time_rules, "segments_to_delete", segments_to_delete)


def delete_one_millisecond_early(monkeypatch):
    right = time_rules.has_aged
    monkeypatch.setattr(time_rules, "has_aged", lambda t, now_ms, r: right(t, now_ms + 1, r))


def roll_by_the_largest_time_so_far(monkeypatch):
    right = time_rules.should_roll

    def should_roll(times, largest, append_time_ms, segment_ms, min_interval_ms):
        times = times.copy()
        times.first = times.largest
        return right(times, largest, append_time_ms, segment_ms, min_interval_ms)

    monkeypatch.setattr(time_rules, "should_roll", should_roll)


def roll_without_an_interval(monkeypatch):
    right = time_rules.should_roll

    def should_roll(times, largest, append_time_ms, segment_ms, min_interval_ms):
        return right(times, largest, append_time_ms, segment_ms, 0)

    monkeypatch.setattr(time_rules, "should_roll", should_roll)


def find_nothing_below_1970(monkeypatch):
    right = time_rules.reaches
    monkeypatch.setattr(time_rules, "reaches", lambda t, target: target >= 0 and right(t, target))


def begin_largest_times_at_minus_one(monkeypatch):
    """As Kafka does."""
    right = time_rules.exceeds
    monkeypatch.setattr(
        time_rules, "exceeds", lambda t, largest: right(t, -1 if largest is None else largest)
    )


def take_the_unknown_for_earlier(monkeypatch):
    right = AppendTimes.first_reaching
    monkeypatch.setattr(
        AppendTimes, "first_reaching", lambda times, t: right(times, t)._replace(unknown_from=None)
    )


def find_what_was_appended_later(monkeypatch):
    right = AppendTimes.first_reaching
    monkeypatch.setattr(AppendTimes, "first_reaching", lambda times, t: right(times, t + 1))


def count_events_as_they_claim(monkeypatch):
    monkeypatch.setattr(time_rules, "capped", lambda append_time_ms, slack_ms: HIGHEST)


def forget_the_largest_event_with_its_segment(monkeypatch):
    monkeypatch.setattr(LargestEvent, "keep", lambda largest, event: None)


def forget_the_largest_event_at_a_start(monkeypatch):
    right = partition_times.pack
    monkeypatch.setattr(
        partition_times, "pack", lambda times: right(times._replace(max_event_time=None))
    )


def ignore_the_grace(monkeypatch):
    right = time_rules.retention_of
    monkeypatch.setattr(time_rules, "retention_of", lambda c: right(c)._replace(grace_ms=0))


def expire_events_one_millisecond_early(monkeypatch):
    right = time_rules.outdated_by

    def outdated_by(times, retention):
        outdated = right(times, retention)
        return None if outdated is None else outdated - 1

    monkeypatch.setattr(time_rules, "outdated_by", outdated_by)


def hold_events_back_by_what_has_none(monkeypatch):
    monkeypatch.setattr(
        _EventTimes, "times", lambda dated, number: dated._candidates[number].times()
    )


def stamp_with_no_time(monkeypatch):
    monkeypatch.setattr(
        time_rules, "append_time", lambda last, now: now if last is None else max(last, now)
    )


@pytest.mark.parametrize(
    ("plant", "run", "seeds"),
    [
        (believe_headers, visit, 10),
        (keep_append_times_when_cutting, live, 20),
        (skip_segments_by_their_last_entry, live, 10),
        (search_behind_the_last_entry_alone, live, 20),
        (one_index_entry_too_far, live, 20),
        (one_time_entry_too_far, live, 20),
        (age_by_record_times_alone, live, 20),
        (delete_beyond_the_first_that_stays, live, 20),
        (delete_one_millisecond_early, live, 60),
        (roll_by_the_largest_time_so_far, live, 20),
        (roll_without_an_interval, live, 20),
        (find_nothing_below_1970, live, 20),
        (begin_largest_times_at_minus_one, live, 40),
        (stamp_with_no_time, live, 40),
        (take_the_unknown_for_earlier, live, 40),
        (find_what_was_appended_later, live, 20),
        (count_events_as_they_claim, live, 20),
        (forget_the_largest_event_with_its_segment, live, 60),
        (forget_the_largest_event_at_a_start, live, 60),
        (ignore_the_grace, live, 60),
        (expire_events_one_millisecond_early, live, 60),
        (hold_events_back_by_what_has_none, live, 60),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_is_caught(plant, run, seeds, tmp_path, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        run_all(run, tmp_path, seeds)


def run_all(run, path, seeds):
    for seed in range(seeds):
        run(path, seed)
