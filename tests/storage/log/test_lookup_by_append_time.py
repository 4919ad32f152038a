"""Lookups by append time against a plain model: a list of offsets, and when each was appended or None.

Lives mix appends with clocks that stand still, go back and lie before 1970, an operator who lets append
times go back, rolls, trims, retention, clean stops, kills, torn ends, power losses, and segments whose append
times somebody has removed. Planted bugs must be caught.

TIDELOG_APPEND_SEED=n replays one life, TIDELOG_APPEND_LOOKUPS=n says how many lookups are asked.
"""

import os
import random
import shutil
import struct
import threading
from itertools import count

import pytest

from tests.broker.subject import eventually
from tests.storage.conftest import TOPIC_ID
from tests.time_rules import time_rules
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import OffsetOutOfRange
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log import lookup
from tidelog.storage.log.lookup import AppendedSince
from tidelog.storage.log.recovery import unknown_append_times
from tidelog.storage.segment.append_times import AppendTimes, Reached
from tidelog.storage.segment.appended.layout import UNKNOWN

LOOKUPS = int(os.environ.get("TIDELOG_APPEND_LOOKUPS", "4000"))
SEED = os.environ.get("TIDELOG_APPEND_SEED")
LOOKUPS_OF_A_LIFE = 250
RIGHT_REACH = lookup._reach
LOWEST, HIGHEST = -(2**63), 2**63 - 1

seen = {"lives": 0, "lookups": 0, "unknown": 0, "none": 0, "times": 0}


def expected(rows, bases, back, start, upper, time):
    """What the rules say of the rows in the segments with these bases, the log's start in the first.

    The first offset known to be at or after a time, and where doubt begins. What is unknown is in no
    doubt where a known earlier time follows, unless that one, in another segment, has gone back, or
    times were let go back at an offset between.
    """
    offset, doubt, unknown, last = len(rows), None, None, None
    begun = bases[0]
    for number in range(begun, len(rows)):
        append = rows[number]
        begun = number if number in bases else begun
        if append is None:
            unknown = number if unknown is None else unknown
            continue
        is_back = unknown is not None and unknown < back <= begun
        if is_back or (None not in (unknown, last) and unknown < begun and append < last):
            doubt = unknown if doubt is None else doubt
        if append >= time:
            offset = number
            break
        unknown, last = None, append
    doubt = unknown if doubt is None else doubt
    offset = max(offset, start)
    if doubt is not None:
        doubt = max(doubt, start) if max(doubt, start) < min(offset, upper) else None
    return AppendedSince(*((offset, rows[offset]) if offset < upper else (None, None)), doubt)


class Life:
    def __init__(self, path, seed):
        self.random, self.root = random.Random(seed), path
        self.copies, self.boot = count(1), 0
        self.now = self.random.choice([1_000_000, 50, -1_000, -(10**12)])
        self.rows, self.sizes, self.own = [], {}, []
        self.last, self.durable, self.lookups = None, 0, 0
        self.back = 0  # where append times were last let go back
        self.in_flight = None  # where the segments ended before the append that was the last change
        self.config = TopicConfig(
            segment_bytes=self.random.choice([300, 900, 4000]),
            index_interval_bytes=self.random.choice([0, 200]),
            retention_bytes=self.random.choice([-1, -1, 3000]),
            retention_ms=-1,
            flush_messages=self.random.choice([1, 2**63 - 1, 2**63 - 1]),
            message_timestamp_type=self.random.choice(["CreateTime", "LogAppendTime"]),
            message_format_version=self.random.choice(["0.9.0", "0.10.2", "3.0", "3.0"]),
        )
        self.path = path / "0"
        self.open()
        self.partition = self.store.create_partition("t", TOPIC_ID, 0, self.config, self.now)

    def open(self):
        self.store = LogStore([self.path], default_config=self.config, boot_id=f"b{self.boot}")
        self.store.open(self.now)

    def reopen(self):
        self.open()
        self.partition = self.store.partition("t", 0)
        self.in_flight = None
        self.last = self.partition.last_append_time  # a cut may take how far time had come
        assert self.partition.log_end_offset == len(self.rows)

    def copy(self):
        path = self.root / str(next(self.copies))
        shutil.copytree(self.path, path)
        self.store._release()
        shutil.rmtree(self.path)
        self.path = path

    # --- what happens to it ---

    def append(self):
        pick = self.random
        self.now += pick.choice([0, 0, 0, 1, 1, 3, 40, -30])
        times = [pick.choice([-1, 5, -7, self.now]) for _ in range(pick.choice([1, 1, 3]))]
        version = self.config.message_format_version
        data = build(
            [Record(i, t, None, b"v" * pick.randrange(30), ()) for i, t in enumerate(times)],
            magic=2 if version == "3.0" else 1,
            compression=pick.choice([0, 0, 1]),
        )
        before = {s.base_offset: s.tail.size for s in self.partition.segments}
        self.partition.append(data, now_ms=self.now, produce_version=9 if version == "3.0" else 2)
        if self.config.flush_messages == 1:
            self.partition.commit()
            self.durable = len(self.rows) + len(times)
        self.in_flight = None if self.config.flush_messages == 1 else before
        now = 0 if self.now == -1 else self.now
        stamp = now if self.last is None else max(now, self.last)
        self.last = stamp
        self.rows += [stamp] * len(times)
        if version == "0.9.0":
            times = [None] * len(times)
        elif self.config.message_timestamp_type == "LogAppendTime":
            times = [stamp] * len(times)
        self.own += [None if t == -1 else t for t in times]

    def go_back(self):
        """The clock was wrong, is set right, and the operator lets append times follow."""
        self.now -= 500
        if self.partition.append_clock.reset(self.now) is not None:
            self.last, self.back = None, len(self.rows)
            self.partition.flusher.save_times()
            self.store.checkpoint()
            self.durable = len(self.rows)
        self.append()

    def trim(self):
        start = self.partition.log_start_offset
        self.partition.retainer.delete_records_before(
            self.random.randint(start, min(start + 9, len(self.rows)))
        )

    def retain(self):
        self.partition.retainer.apply_retention(self.now)

    def flush(self):
        self.partition.flush()
        self.durable = len(self.rows)

    def stop(self):
        self.store.close()
        self.durable = len(self.rows)
        if self.random.random() < 0.3:
            self.lose_file()
        self.reopen()

    def kill(self):
        self.copy()
        self.reopen()

    def kill_in_write(self):
        """The last batch never came whole, though its append time did."""
        if self.in_flight is None:
            return
        self.copy()
        path = max((self.path / "t-0").glob("*.log"))
        data = path.read_bytes()
        keep = data[: self.random.randint(self.in_flight.get(int(path.stem), 0), len(data))]
        end, position = int(path.stem), 0
        while len(keep) - position >= 27:
            offset, size = struct.unpack_from(">qi", keep, position)
            if position + 12 + size > len(keep):
                break
            delta = struct.unpack_from(">i", keep, position + 23)[0]
            end = offset + 1 + (delta if keep[position + 16] == 2 else 0)
            position += 12 + size
        path.write_bytes(keep)
        del self.rows[end:], self.own[end:]
        self.reopen()

    def lose_power(self):
        active = self.partition.segments[-1]  # those before it are closed, and their files whole
        durable = max(self.durable, active.base_offset, active.append_times.end_offset)
        self.copy()
        self.boot += 1
        self.rows[durable:] = [None] * (len(self.rows) - durable)
        self.reopen()

    def lose_file(self):
        """Somebody has removed a segment's append times, though not the last one's."""
        bases = [segment.base_offset for segment in self.partition.segments]
        if len(bases) < 2:
            return
        number = self.random.randrange(len(bases) - 1)
        (self.path / "t-0" / f"{bases[number]:020}.appendtimes").unlink(missing_ok=True)
        for offset in range(bases[number], bases[number + 1]):
            self.rows[offset] = None

    # --- questions ---

    def look_up(self):
        start, end = self.partition.log_start_offset, len(self.rows)
        segments = (s for s in self.partition.segments if s.tail.end_offset > start)
        bases = [s.base_offset for s in segments] or [start]
        near = [t for t in self.random.choices(self.rows, k=6) if t is not None] if end else []
        uppers = [end, self.random.randint(start, end), start]
        for time in {t + d for t in near for d in (-1, 0, 1)} | {LOWEST, HIGHEST, -1, self.now}:
            for upper in uppers[: self.random.choice([1, 2, 3])]:
                found = self.partition.reader.find_by_append_time(time, upper_offset=upper)
                right = expected(self.rows, bases, self.back, start, upper, time)
                assert found == right, f"{time} below {upper}"
                self.lookups += 1
                seen["lookups"] += 1
                seen["unknown"] += not found.is_exact
                seen["none"] += found.offset is None
        for offset in self.random.choices(range(start, end), k=4) if start < end else ():
            found = self.partition.reader.times_of(offset)
            assert found[:3] == (lookup.DATA, self.own[offset], self.rows[offset]), offset
            seen["times"] += 1
        for offset in (start - 1, end):
            with pytest.raises(OffsetOutOfRange):
                self.partition.reader.times_of(offset)

    def step(self):
        names = ["append"] * 20 + ["look_up"] * 4
        names += ["trim", "retain", "flush", "stop", "stop", "kill", "kill_in_write", "lose_power"]
        names += ["go_back"]
        name = self.random.choice(names)
        if name not in ("append", "look_up", "kill_in_write"):
            self.in_flight = None
        getattr(self, name)()


def live(path, seed, lookups=LOOKUPS_OF_A_LIFE):
    life, step = Life(path / f"life{seed}", seed), 0
    try:
        while life.lookups < lookups:
            life.step()
            step += 1
    except Exception as error:
        raise AssertionError(f"seed: TIDELOG_APPEND_SEED={seed}, step {step}: {error!r}") from error
    finally:
        life.store._release()
        shutil.rmtree(path / f"life{seed}", ignore_errors=True)
    seen["lives"] += 1


@pytest.mark.timeout(1200)
def test_lives(tmp_path):
    if SEED is not None:
        live(tmp_path, int(SEED))
        return
    for seed in count():
        if seen["lookups"] >= LOOKUPS:
            break
        live(tmp_path, seed)
    assert seen["unknown"] > seen["lookups"] // 50, "lives in which all is known show little"
    print(f"no mismatch: {seen}")


def test_a_known_way_back_leaves_what_is_unknown_before_it_in_doubt(make_log):
    """A clock was ahead, its append times were lost, and the operator let them go back."""
    log = make_log().create()
    log.append([5], now=1000)
    log.append([5], now=900_000)
    log.partition.append_clock.reset(2000)
    log.append([5], now=2000)
    log.append([5], now=7000)
    before, after = log.partition.segments
    before.append_times.mark_unknown(1)

    def ask(time, back_offset):
        return lookup.find_append_time(
            (before, after), time, start_offset=0, upper_offset=4, back_offset=back_offset
        )

    assert ask(5000, after.base_offset) == AppendedSince(3, 7000, 1)
    assert ask(1000, after.base_offset) == AppendedSince(0, 1000, None)
    assert ask(5000, 0) == AppendedSince(3, 7000, None)  # where nobody has noted it


def test_lookups_beside_appends(make_log):
    """What is told while batches come and segments roll is true of what had been acknowledged."""
    log = make_log(segment_bytes=600).create()
    partition, told, stop = log.partition, [], threading.Event()

    def ask():
        pick = random.Random(5)
        while not stop.is_set():
            end = partition.high_watermark
            time = pick.randint(0, end + 1)
            told.append((time, end, partition.reader.find_by_append_time(time, upper_offset=end)))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for now in range(3000):
            log.append([5], now=now)
        eventually(lambda: len(told) > 20, what="lookups")
    finally:
        stop.set()
        asking.join()
    for time, end, found in told:
        right = AppendedSince(time, time, None) if time < end else AppendedSince(None, None, None)
        assert found == right, (time, end)


# --- planted bugs: each must be caught ---


def keep_times_when_cutting(monkeypatch):
    monkeypatch.setattr(AppendTimes, "truncate", lambda self, end_offset: None)


def let_time_go_back(monkeypatch):
    monkeypatch.setattr(time_rules, "append_time", lambda _, now_ms: 0 if now_ms == -1 else now_ms)


def forget_the_first_of_a_segment(monkeypatch):
    right = AppendTimes.append

    def append(self, append_time_ms, offset):
        if not self._count:
            right(self, UNKNOWN, offset)  # known only from the next millisecond on
        elif append_time_ms != self._last.time:
            right(self, append_time_ms, offset)

    monkeypatch.setattr(AppendTimes, "append", append)


def guess_what_is_unknown(monkeypatch):
    right = AppendTimes.first_reaching
    monkeypatch.setattr(
        AppendTimes, "first_reaching", lambda *a: right(*a)._replace(unknown_from=None)
    )


def doubt_what_lies_before_an_earlier_time(monkeypatch):
    def first_reaching(self, time):
        entries = [e for e in self.entries() if e.time != UNKNOWN and e.time >= time]
        offset = entries[0].offset + self.base_offset if entries else None
        unknown = [e.offset + self.base_offset for e in self.entries() if e.time == UNKNOWN]
        unknown = [o for o in unknown if offset is None or o < offset]
        return Reached(offset, unknown[0] if unknown or not len(self) else None)

    monkeypatch.setattr(AppendTimes, "first_reaching", first_reaching)


def pass_over_an_equal_time(monkeypatch):
    right = AppendTimes.first_reaching
    monkeypatch.setattr(AppendTimes, "first_reaching", lambda self, time: right(self, time + 1))


def begin_with_the_second_segment(monkeypatch):
    right = lookup._reach
    monkeypatch.setattr(lookup, "_reach", lambda s, *more: right(s[1:] or s, *more))


def halve_the_segments(monkeypatch):
    def reach(segments, time, back):  # right as long as no time ever goes back
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            last = segments[middle].append_times.last_time
            low, high = (low, middle) if last is not None and last >= time else (middle + 1, high)
        return RIGHT_REACH(segments[max(low - 1, 0) :], time, back)

    monkeypatch.setattr(lookup, "_reach", reach)


def clear_doubts_where_times_went_back(monkeypatch):
    monkeypatch.setattr(AppendTimes, "first_known_time", None)


def answer_before_the_start(monkeypatch):
    monkeypatch.setattr(lookup, "_first_present", lambda segments, *_: segments[0].base_offset)


def believe_after_a_power_loss(monkeypatch):
    monkeypatch.setattr(unknown_append_times, "mark_unknown", lambda *_: None)


@pytest.mark.parametrize(
    "plant",
    [
        keep_times_when_cutting,
        let_time_go_back,
        forget_the_first_of_a_segment,
        guess_what_is_unknown,
        doubt_what_lies_before_an_earlier_time,
        pass_over_an_equal_time,
        begin_with_the_second_segment,
        halve_the_segments,
        clear_doubts_where_times_went_back,
        answer_before_the_start,
        believe_after_a_power_loss,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_caught(plant, tmp_path, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        live_all(tmp_path, 30)


def live_all(path, seeds):
    for seed in range(seeds):
        live(path, seed)
