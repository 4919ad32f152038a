"""Every file of a partition, cut short or zeroed from some byte on: the log opens and is right.

Kills, power losses and clean stops of a small log of each format. Whatever is damaged, what is
there is what was appended, from the first record on without a hole; lookups are exact for it; an
append time is the true one or unknown; appending goes on; and opening again changes nothing. Where
the log itself is damaged behind its recovery point it ends at its last whole batch.

TIDELOG_CUTS=n says how many damages are tried, TIDELOG_CUTS_SEED from which number on.
"""

import os
import random
import shutil
import struct

import pytest

from config.topic import TopicConfig
from protocol.records.batch import Record, build, records
from storage.store import LogStore
from tests.storage.conftest import TOPIC_ID

CUTS = int(os.environ.get("TIDELOG_CUTS", "100"))
FIRST = int(os.environ.get("TIDELOG_CUTS_SEED", "0"))
FORMATS = ("0.9.0", "0.10.2", "3.0")
DAMAGED = (".log", ".index", ".timeindex", ".appendtimes", ".snapshot", "checkpoint", ".times")
CLEAN_MARK = ".kafka_cleanshutdown"


class Made:
    """A log as it was before the damage."""

    def __init__(self, path, magic):
        self.path, self.magic = path, magic
        self.rows = []  # (time, value, append time)
        self.config = TopicConfig(
            segment_bytes=700, index_interval_bytes=100, message_format_version=FORMATS[magic]
        )
        self.now, self.sequence = 1000, 0
        self.store = self.open(path, "same")
        self.partition = self.store.create_partition("t", TOPIC_ID, 0, self.config, self.now)
        self.partition.leader_epoch = 3
        self.append(20)
        shutil.copytree(path, path.with_name("young"))  # never flushed
        self.store.checkpoint()
        self.durable = {"young": 0, "killed": len(self.rows)}
        self.durable_size = {
            p.name: p.stat().st_size for p in (path / "t-0").iterdir() if p.suffix != ".times"
        }
        self.count_young = len(self.rows)
        self.append(15)
        shutil.copytree(path, path.with_name("killed"))
        self.store.close()
        self.durable["clean"] = len(self.rows)
        shutil.copytree(path, path.with_name("clean"))

    def open(self, path, boot):
        store = LogStore([path], default_config=self.config, boot_id=boot)
        store.open(self.now)
        return store

    def append(self, batches):
        for number in range(batches):
            append(self.partition, self.rows, self.magic, self.now, number)
            self.now += number % 3

    def rows_of(self, state):
        return self.rows[: self.count_young] if state == "young" else self.rows


def append(partition, rows, magic, now, number):
    """Append a batch; now and then idempotent, packed, out of order, without times."""
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
        patch.setattr("storage.files.os.fsync", lambda _: None)
        return [Made(tmp_path_factory.mktemp(f"format{m}") / "made", m) for m in range(3)]


def choose(made, pick):
    """Pick a log, how it stopped, and a file and byte whose loss such a stop may cause."""
    log = pick.choice(made)
    state = pick.choice(["young", "young", "killed", "clean"])
    root = log.path.with_name(state)
    files = [p for p in sorted(root.rglob("*")) if p.name.endswith(DAMAGED) or p.name == CLEAN_MARK]
    kind = pick.choice(sorted({p.suffix or p.name for p in files}))
    file = pick.choice([p for p in files if (p.suffix or p.name) == kind])
    how = pick.choice(["cut", "zeros", "gone"])
    lowest = 0
    if file.suffix in {".log", ".appendtimes"}:  # data: what was durable is not lost
        how = "cut" if how == "gone" else how
        if state == "killed":
            lowest = log.durable_size.get(file.name, 0)
        elif state == "clean":
            how, kind = "nothing", "nothing"
    return log, state, file.relative_to(root), how, pick.randint(lowest, file.stat().st_size)


def damage(path, how, at):
    """Do it; return the byte from which on the file is another."""
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
        return 0
    left = {"cut": data[:at], "zeros": data[:at] + bytes(len(data) - at), "nothing": data}[how]
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
            assert record.offset == offset
            found.append((None if record.timestamp == -1 else record.timestamp, record.value))
            offset += 1
    return found


def agree(partition, rows):
    """Compare everything that can be asked with what was appended; return the append times."""
    assert partition.log_start_offset == 0
    assert partition.log_end_offset == len(rows)
    assert contents(partition) == [row[:2] for row in rows]
    timed = [(o, t) for o, (t, *_) in enumerate(rows) if t is not None]
    for wanted in (-(2**63), -6, -5, -4, 0, 7, 8, 100, 101, 450, 700, 8990, 8999, 9000, 9001):
        expected = next(((o, t) for o, t in timed if t >= wanted), None)
        assert partition.find_by_time(wanted, upper_offset=len(rows)) == expected, wanted
    largest = max(((t, -o) for o, t in timed), default=None)
    expected = None if largest is None else (-largest[1], largest[0])
    assert partition.find_largest_time(upper_offset=len(rows)) == expected
    times = [partition.append_time_of(offset) for offset in range(len(rows))]
    for offset, (time, row) in enumerate(zip(times, rows, strict=True)):
        assert time in {None, row[2]}, (offset, time, row)
    return times


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
    changed = damage(root / file, how, at)
    is_data = file.suffix in {".log", ".appendtimes"}
    loses_power = state != "clean" and (is_data or pick.random() < 0.3)
    store = log.open(root, "another" if loses_power else "same")
    try:
        del rows[expected_end(log, state, root, file, changed, rows) :]
        partition = store.partition("t", 0)
        times = agree(partition, rows)
        if not loses_power and not is_data and state != "clean" and file.suffix != ".times":
            assert None not in times
        before = len(rows)
        for number in range(6):
            append(partition, rows, log.magic, now + 10, number)
        after = agree(partition, rows)
        assert after[:before] == times
        assert None not in after[before:]
        store.close()
        store = log.open(root, "another" if loses_power else "same")
        assert agree(store.partition("t", 0), rows) == after
        store._release()
        store = log.open(root, "another" if loses_power else "same")
        assert agree(store.partition("t", 0), rows) == after
    except Exception as error:
        what = f"{file} {how} at {at}, format {log.magic}, {state}, power={loses_power}"
        raise AssertionError(f"TIDELOG_CUTS_SEED={seed}: {what}: {error!r}") from error
    finally:
        store._release()
        shutil.rmtree(root)
    return state, file.suffix or file.name, how


@pytest.mark.timeout(1200)
def test_whatever_is_cut_the_log_opens_and_is_right(made, tmp_path):
    tried = [survive(made, tmp_path, seed) for seed in range(FIRST, FIRST + CUTS)]
    assert len(tried) == CUTS
    assert {suffix for _, suffix, _ in tried} >= {".log"} if CUTS > 50 else tried
