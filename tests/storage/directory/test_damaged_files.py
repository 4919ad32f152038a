"""Every file of a log directory, cut short, zeroed from some byte on, or gone: the log opens and is right.

Kills, power losses and clean stops of small logs of each format, and of one whose start has moved.
Whatever is damaged, what is there is what was appended, from the log's start on without a hole; lookups
are exact for it; an append time is the true one or unknown; a batch sent again is known again;
appending goes on; and opening again changes nothing. Where the log itself is damaged behind its
recovery point, or cut short anywhere in its last segment, it ends at its last whole batch. Planted
mistakes must be caught.

TIDELOG_CUTS=n says how many damages are tried, TIDELOG_CUTS_SEED from which number on.
"""

import os
import random
import shutil
import struct
from collections import Counter

import pytest

from tests.storage.conftest import TOPIC_ID
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, records
from tidelog.storage.directory import log_directory
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.recovery import clean_stop, unknown_append_times, verification
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended import layout
from tidelog.storage.segment.segment import Segment

CUTS = int(os.environ.get("TIDELOG_CUTS", "100"))
FIRST = int(os.environ.get("TIDELOG_CUTS_SEED", "0"))
FORMATS = ("0.9.0", "0.10.2", "3.0")
LOCK = ".lock"  # held, never read
KINDS = {
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".appendtimes",
    ".snapshot",
    ".times",
    ".metadata",
    ".deleted",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "max-latency-checkpoint",
    ".kafka_cleanshutdown",
}
EPOCH = 3
PLANT_SEEDS = 4000


class Made:
    """A log as it was before the damage."""

    def __init__(self, path, magic, *, is_trimmed=False):
        self.path, self.magic = path, magic
        self.rows = []  # (time, value, append time)
        self.sent = []  # (base offset, end offset, idempotent batch)
        self.start = {"young": 0, "killed": 0, "clean": 0}
        self.config = TopicConfig(
            segment_bytes=700, index_interval_bytes=100, message_format_version=FORMATS[magic]
        )
        self.now, self.sequence = 1000, 0
        self.store = self.open(path, "same")
        self.partition = self.store.create_partition("t", TOPIC_ID, 0, self.config, self.now)
        self.partition.leader_epoch = EPOCH
        self.append(20)
        (path / "t-0" / f"{0:020}.txnindex").write_bytes(bytes(range(34)))  # as Kafka leaves one
        shutil.copytree(path, path.with_name("young"))  # never flushed
        if is_trimmed:
            second = self.partition.segments[1]
            start = self.partition.retainer.delete_records_before(second.base_offset + 3)
            assert [d.base_offset for d in self.partition.retainer.apply_retention(self.now)] == [0]
            self.start |= {"killed": start, "clean": start}
        self.store.checkpoint()
        self.durable_size = {
            p.name: p.stat().st_size for p in (path / "t-0").iterdir() if p.suffix != ".times"
        }
        self.count_young = len(self.rows)
        self.append(15)
        shutil.copytree(path, path.with_name("killed"))
        self.store.close()
        shutil.copytree(path, path.with_name("clean"))

    def open(self, path, boot):
        store = LogStore([path], default_config=self.config, boot_id=boot)
        store.open(self.now)
        return store

    def append(self, batches):
        for number in range(batches):
            before = len(self.rows)
            data = append(self.partition, self.rows, self.magic, self.now, number)
            if data is not None:
                self.sent.append((before, len(self.rows), data))
            self.now += number % 3

    def rows_of(self, state):
        return self.rows[: self.count_young] if state == "young" else self.rows


def append(partition, rows, magic, now, number):
    """Append a batch; now and then idempotent (then it is returned), packed, without times."""
    times = [[50 * number], [9000 - number, -5, -1], [-1], [7, 7]][number % 4]
    values = [b"%d" % (len(rows) + i) for i in range(len(times))]
    extra = {"compression": [0, 0, 1][number % 3]}
    if magic == 2 and number % 2:
        extra |= {"producer_id": 5 + len(rows), "producer_epoch": 0, "base_sequence": 0}
    sent = [Record(i, t, b"k", v, ()) for i, (t, v) in enumerate(zip(times, values, strict=True))]
    data = build(sent, magic=magic, **extra)
    answer = partition.append(data, now_ms=now, produce_version=9 if magic == 2 else 2)
    assert answer.base_offset == len(rows)
    known = [None if magic == 0 or t == -1 else t for t in times]
    rows += [(t, v, now) for t, v in zip(known, values, strict=True)]
    return data if "producer_id" in extra else None


def whole(data):
    """Walk over batches: (end position, end offset)."""
    position = 0
    while position + 26 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        if data[position + 16] == 2 and position + 27 <= len(data):
            offset += struct.unpack_from(">i", data, position + 23)[0]
        position += 12 + size
        if position > len(data):
            return
        yield position, offset + 1


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.storage.files.os.fsync", lambda _: None)
        patch.setattr("tidelog.storage.files.os.fdatasync", lambda _: None)
        logs = [Made(tmp_path_factory.mktemp(f"format{m}") / "made", m) for m in range(3)]
        trimmed = Made(tmp_path_factory.mktemp("trimmed") / "made", 2, is_trimmed=True)
        return [*logs, trimmed]


def choose(made, pick):
    """Pick a log, how it stopped, and a file and byte whose loss such a stop may cause."""
    log = pick.choice(made)
    state = pick.choice(["young", "young", "killed", "clean"])
    root = log.path.with_name(state)
    files = [p for p in sorted(root.rglob("*")) if p.is_file() and p.name != LOCK]
    kind = pick.choice(sorted({p.suffix or p.name for p in files}))
    file = pick.choice([p for p in files if (p.suffix or p.name) == kind])
    how = pick.choice(["cut", "zeros", "gone"])
    lowest = 0
    if file.suffix in {".log", ".appendtimes"}:  # data
        how = "cut" if how == "gone" else how
        if state == "killed":  # what was durable is not lost
            lowest = log.durable_size.get(file.name, 0)
        elif state == "clean" and file.suffix == ".log":
            file, how = max(p for p in files if p.suffix == ".log"), "cut"
    size = file.stat().st_size
    at = pick.choice([pick.randint(lowest, size), max(lowest, size - pick.randint(0, 12))])
    return log, state, file.relative_to(root), how, at


def damage(path, how, at):
    """Do it; return the byte from which on the file is another."""
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
        return 0
    left = {"cut": data[:at], "zeros": data[:at] + bytes(len(data) - at)}[how]
    path.write_bytes(left)
    same = min(len(left), len(data))
    return next((i for i in range(same) if left[i] != data[i]), same)


def contents(partition):
    found, offset = [], partition.log_start_offset
    while offset < partition.log_end_offset:
        end = partition.log_end_offset
        fetched = partition.read(offset, 4096, upper_offset=end, minimum_one=True)
        assert fetched.size, offset
        for record in (r for data in fetched.buffers for r in records(data)):
            if record.offset < partition.log_start_offset:
                continue  # a trim leaves no half of a batch
            assert record.offset == offset
            found.append((None if record.timestamp == -1 else record.timestamp, record.value))
            offset += 1
    return found


def agree(partition, rows, start):
    """Compare everything that can be asked with what was appended; return the append times."""
    assert partition.log_start_offset == start
    assert partition.log_end_offset == len(rows)
    assert contents(partition) == [row[:2] for row in rows[start:]]
    timed = [(o, t) for o, (t, *_) in enumerate(rows) if t is not None and o >= start]
    for wanted in (-(2**63), -6, -5, -4, 0, 7, 8, 100, 101, 450, 700, 8990, 8999, 9000, 9001):
        expected = next(((o, t) for o, t in timed if t >= wanted), None)
        assert partition.reader.find_by_time(wanted, upper_offset=len(rows)) == expected, wanted
    largest = max(((t, -o) for o, t in timed), default=None)
    expected = None if largest is None else (-largest[1], largest[0])
    assert partition.reader.find_largest_time(upper_offset=len(rows)) == expected
    times = [partition.reader.append_time_of(offset) for offset in range(start, len(rows))]
    for offset, time in enumerate(times, start):
        assert time in {None, rows[offset][2]}, (offset, time, rows[offset])
    assert partition.topic_id in {None, TOPIC_ID}
    assert partition.reader.end_offset_for_epoch(EPOCH) in {(EPOCH, len(rows)), (-1, -1)}
    return times


def indexes_agree(partition):
    """Check that every index entry leads to a batch, and says of it what it is."""
    for segment in partition.segments:
        batches = {f.position: f.batch for f in segment.walk()}
        ends = {batch.last_offset for batch in batches.values()}
        offsets, positions = segment.index._offsets, segment.index._positions
        for relative, position in zip(offsets, positions, strict=True):
            assert batches[position].last_offset == segment.base_offset + relative
        assert all(entry.offset in ends for entry in segment.time_index.entries())


def sent_again(partition, log, rows):
    """The last idempotent batch that is there is known as one that was sent before."""
    found = [sent for sent in log.sent if sent[1] <= len(rows)]
    for first, end, data in found[-1:]:
        answer = partition.append(data, now_ms=log.now + 5, produce_version=9)
        assert answer.duplicate
        assert (answer.base_offset, answer.last_offset) == (first, end - 1)


def expected_end(log, state, root, file, changed, rows):
    """Say where the log ends: at its last whole batch before the first damaged byte."""
    if file.suffix != ".log":
        return len(rows)
    original = (log.path.with_name(state) / file).read_bytes()
    if changed == len(original):
        return len(rows)
    end = int(file.stem)
    for position, end_offset in whole(original):
        if position <= changed:
            end = end_offset
    return end


def survive(made, path, seed):
    pick = random.Random(seed)
    log, state, file, how, at = choose(made, pick)
    root = path / str(seed)
    shutil.copytree(log.path.with_name(state), root)
    rows, now = list(log.rows_of(state)), log.now
    start = log.start[state]
    changed = damage(root / file, how, at)
    is_data = file.suffix in {".log", ".appendtimes"}
    loses_power = state != "clean" and (is_data or pick.random() < 0.3)
    boot = "another" if loses_power else "same"
    opened = log.open(root, boot)
    try:
        del rows[expected_end(log, state, root, file, changed, rows) :]
        partition = opened.partition("t", 0)
        times = agree(partition, rows, start)
        indexes_agree(partition)
        if not loses_power and not is_data and file.suffix != ".times":
            assert None not in times
        sent_again(partition, log, rows)
        before = len(times)
        for number in range(6):
            append(partition, rows, log.magic, now + 10, number)
        after = agree(partition, rows, start)
        assert after[:before] == times
        assert None not in after[before:]
        opened.close()
        opened = log.open(root, boot)
        assert agree(opened.partition("t", 0), rows, start) == after
        opened._release()
        opened = log.open(root, boot)
        assert agree(opened.partition("t", 0), rows, start) == after
        indexes_agree(opened.partition("t", 0))
    except Exception as error:
        what = f"{file} {how} at {at}, format {log.magic}, {state}, power={loses_power}"
        raise AssertionError(f"TIDELOG_CUTS_SEED={seed}: {what}: {error!r}") from error
    finally:
        opened._release()
        shutil.rmtree(root)
    return state, file.suffix or file.name, how


@pytest.mark.timeout(1200)
def test_whatever_is_cut_the_log_opens_and_is_right(made, tmp_path):
    tried = Counter(survive(made, tmp_path, seed) for seed in range(FIRST, FIRST + CUTS))
    kinds = Counter(kind for _, kind, _ in tried.elements())
    print(f"{tried.total()} damages: {dict(kinds)}")
    assert set(kinds) <= KINDS
    assert set(kinds) == KINDS or CUTS < 400


# --- planted mistakes: each must be caught ---


class Anything(int):
    """A checksum that is always right."""

    __hash__ = None

    def __xor__(self, _):
        return self

    def __eq__(self, _):
        return True

    def __ne__(self, _):
        return False


def patched(target, name, replacement):
    return lambda monkeypatch: monkeypatch.setattr(target, name, replacement)


READ = log_directory._read
PLANTS = {  # what is patched, and which files' damages can show it
    "a torn batch is accepted": (patched(verification, "verify", lambda *_: None), ".log"),
    "a log that has been cut is taken to be clean": (
        patched(clean_stop, "clean_end", lambda _, recovery_point, __: recovery_point),
        ".log",
    ),
    "index entries behind the log's end are believed": (
        patched(Segment, "truncate_indexes", lambda *_: None),
        ".log",
    ),
    "append times are not cut with the log": (
        patched(AppendTimes, "truncate", lambda *_: None),
        ".log",
    ),
    "append times are believed after a power loss": (
        patched(unknown_append_times, "mark_unknown", lambda *_: None),
        ".appendtimes",
    ),
    "damaged append times are believed": (
        patched(layout, "crc32c", lambda *_: Anything()),
        ".appendtimes",
    ),
    "append times cut short are believed": (
        patched(AppendTimes, "confirm", lambda *_: None),
        ".appendtimes",
    ),
    "half an index entry is believed": (
        patched(Segment, "_is_index_true", lambda _: True),
        ".index",
    ),
    "partition.times needs no checksum": (
        patched(partition_times, "crc32c", lambda _: Anything()),
        ".times",
    ),
    "a log's start is not kept twice": (
        patched(
            log_directory, "_read", lambda path: {} if "log-start" in path.name else READ(path)
        ),
        ".times",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_mistake_is_caught(plant, made, tmp_path, monkeypatch):
    patch, suffix = PLANTS[plant]
    patch(monkeypatch)
    for seed in range(PLANT_SEEDS):
        if choose(made, random.Random(seed))[2].suffix != suffix:
            continue
        try:
            survive(made, tmp_path, seed)
        except Exception:
            return
    pytest.fail("no damage noticed")
