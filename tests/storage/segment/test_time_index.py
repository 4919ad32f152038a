"""`.timeindex` and `partition.times`: their bytes, what a start reads of the log, and what it need not."""

import os
import random
import shutil
import struct
import threading
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.broker.subject import eventually
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import OffsetOutOfRange
from tidelog.protocol.records.batch import records
from tidelog.storage import files
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.partition_times import PartitionTimes
from tidelog.storage.segment.segment_line import SegmentLine
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.segment_times import SegmentTimes

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"


def index_of(path, entries, base=100):
    index = TimeIndex(path, base)
    for entry in entries:
        index.append(*entry)
    index.flush()
    return index


def test_the_bytes_are_kafkas(tmp_path):
    path = tmp_path / "i"
    index_of(path, [(None, 100), (-5, 101), (7, 103), (7, 104), (6, 105), (9, 110)])
    assert path.read_bytes() == struct.pack(">qiqi", 7, 3, 9, 10)


@pytest.mark.parametrize("cut", range(37))
def test_a_torn_index_keeps_its_whole_entries(tmp_path, cut):
    path, entries = tmp_path / "i", [(7, 103), (9, 110), (12, 111)]
    index_of(path, entries)
    data = path.read_bytes()
    for end in (data[:cut], data[:cut] + bytes(40)):
        path.write_bytes(end)
        index = TimeIndex(path, 100)
        assert index.load()
        kept = index.entries()
        assert kept[: cut // 12] == entries[: cut // 12]
        if end == data[:cut]:
            assert len(kept) == cut // 12
        index.truncate(110)
        index.append(50, 120)
        index.flush()
        again = TimeIndex(path, 100)
        assert again.load()
        assert again.entries() == [e for e in kept if e[1] < 110] + [(50, 120)]


def test_a_missing_index_says_so(tmp_path):
    index = TimeIndex(tmp_path / "i", 0)
    assert not index.load()
    assert (index.last(), index.first_reaching(0)) == (None, None)


def test_an_emptied_index_replaces_its_file(tmp_path):
    path = tmp_path / "i"
    index = index_of(path, [(7, 103)])
    index.clear()
    index.flush()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("name", sorted(p.name for p in VECTORS.iterdir() if p.is_dir()))
def test_the_indexes_of_a_real_kafka_mean_what_ours_mean(name):
    """Every record later than an entry's time lies behind the entry's offset."""
    for path in sorted((VECTORS / name).glob("*.timeindex")):
        index = TimeIndex(path, int(path.stem))
        assert index.load()
        log = path.with_suffix(".log").read_bytes()
        found = [(r.offset, r.timestamp) for r in records(log)]
        for time, offset in index.entries():
            assert max(t for o, t in found if o <= offset) == time


def times_with(**fields):
    times = SegmentTimes()
    for name, value in fields.items():
        setattr(times, name, value)
    return times


def test_partition_times_come_back(tmp_path):
    times = PartitionTimes(
        -5,
        77,
        3,
        12,
        "4f2c\u00e9",
        (
            SegmentLine(0, 10, 500, times_with(first=-9, largest=-2, aging=-9), 3, 0, is_true=True),
            SegmentLine(
                10,
                12,
                80,
                times_with(has_missing=True, aging=5, created=5, created_clock=4),
                0,
                1,
                is_true=False,
            ),
            SegmentLine(12, 12, 0, SegmentTimes(), 0, 0, is_true=True),
        ),
    )
    data = partition_times.pack(times)
    assert data[:8] == b"tidp\0\0\0\3"
    assert struct.unpack(">I", data[8:12])[0] == crc32c(data[12:])
    partition_times.write(tmp_path, data, durable=False)
    assert partition_times.read(tmp_path) == times
    path = tmp_path / "partition.times"
    for at in range(len(data)):
        path.write_bytes(data[:at])
        assert partition_times.read(tmp_path) is None
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        assert partition_times.read(tmp_path) is None
    path.unlink()
    assert partition_times.read(tmp_path) is None


# --- what is read ---


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("stop", ["close", "crash"])
def test_lookups_after_a_start_read_an_index_interval_not_the_log(make_log, reads, stop):
    log = make_log(segment_bytes=200_000, index_interval_bytes=4096).create()
    chance, rows = random.Random(5), []
    for i in range(1500):
        times = [1_000_000 + 10 * i + chance.randint(-500, 500) for _ in range(4)]
        rows += times
        log.append(times, now=i, values=[b"x" * 150] * 4)
    log.store.checkpoint()
    getattr(log, stop)()
    log.open()
    size, end = log.partition.size, log.partition.log_end_offset
    assert size > 900_000
    for target in [1_000_000 + chance.randint(0, 15_000) for _ in range(50)]:
        reads.bytes = 0
        expected = next(((o, t) for o, t in enumerate(rows) if t >= target), None)
        assert log.partition.reader.find_by_time(target, upper_offset=end) == expected
        # The header before the entry, up to two windows of a walk, and a batch or so of slack.
        assert reads.bytes <= 8192 + 16_384 + 2000
    reads.bytes = 0
    assert log.partition.reader.find_by_time(10**12, upper_offset=end) is None
    assert reads.bytes == 0
    assert log.partition.retainer.apply_retention(0) == []
    assert reads.bytes == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_log_of_kafkas_is_verified_once(tmp_path, reads):
    name = "f-0.10.2-CreateTime-none-c0102-0"
    shutil.copytree(VECTORS / name, tmp_path / name)
    target, found = 1_500_000_000_000, []
    for _ in range(3):
        store = LogStore([tmp_path], default_config=TopicConfig())
        store.open(0)
        partition = store.partition(name[:-2], 0)
        assert partition.segments[-1].indexes.is_true == bool(found)
        reads.bytes = 0
        for i in (0, 30, 77):
            answer = partition.reader.find_by_time(target + 1000 * i, upper_offset=200)
            assert answer == (i, target + 1000 * i)
        found.append(reads.bytes)
        partition.reader.find_largest_time(upper_offset=200)
        verified = [segment.indexes.is_true for segment in partition.segments]
        store.close()
    assert all(verified)
    assert found[1] < found[0]
    assert found[2] == found[1]


# --- descriptors ---


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_few_descriptors_are_held(make_log, monkeypatch):
    monkeypatch.setattr(files, "RECENT", files.Recent(10))
    log = make_log(segment_bytes=100).create()
    stores = [
        log.store.create_partition(f"u{n}", log.partition.topic_id, 0, log.config, 0)
        for n in range(30)
    ]
    before = len(os.listdir("/proc/self/fd"))
    for i in range(40):
        log.append([i], now=i)
    main = log.partition
    for _ in range(2):
        for partition in stores:
            log.partition = partition
            log.append([5], now=5)
        assert len(os.listdir("/proc/self/fd")) <= before + 2 * 10
    log.partition = main
    assert [r[1] for r in log.contents()] == list(range(40))
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * 10
    for partition in stores:
        assert partition.reader.find_by_time(0, upper_offset=2) == (0, 5)


# --- retention beside readers and appends ---


def test_retention_beside_readers_and_appends(make_log):
    log = make_log(segment_bytes=150, retention_ms=20, file_delete_delay_ms=0).create()
    partition, problems, done = log.partition, [], threading.Event()

    def reader():
        while not done.is_set():
            start, end = partition.log_start_offset, partition.log_end_offset
            try:
                if start < end:
                    fetched = partition.read(start, 300, upper_offset=end, minimum_one=True)
                    if not fetched.size:
                        problems.append(f"nothing at {start} below {end}")
                    found = partition.reader.find_by_time(0, upper_offset=end)
                    if found is not None and found[0] != found[1]:
                        problems.append(found)
                    partition.reader.find_largest_time(upper_offset=end)
            except OffsetOutOfRange:
                if partition.log_start_offset <= start:
                    problems.append(f"{start} out of range")
            except Exception as error:
                problems.append(error)

    def keeper():
        while not done.is_set():
            try:
                partition.retainer.apply_retention(partition.log_end_offset)
                partition.flush()
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=work) for work in (reader, reader, keeper)]
    for thread in threads:
        thread.start()
    for i in range(300):
        assert log.append([i], now=i).base_offset == i
    eventually(lambda: partition.log_start_offset > 200 or problems, 200, "retention")
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert partition.log_start_offset > 200
    log.close()
    log.open(now=300)
    assert [r[1] for r in log.contents()] == list(range(log.partition.log_start_offset, 300))


def test_producers_outlive_the_segments_of_their_batches(make_log):
    log = make_log(segment_bytes=100, retention_ms=10).create()
    for i in range(4):
        log.append([i], now=i, producer_id=9, producer_epoch=0, base_sequence=i)
    log.partition.retainer.apply_retention(100)
    assert log.partition.log_start_offset == 4
    for stop in (log.close, log.crash):
        stop()
        log.open(now=100)
        known = log.partition.state.read_producers().get(9)
        assert known.last_sequence == 3
    assert log.append([9], producer_id=9, producer_epoch=0, base_sequence=4).base_offset == 4
