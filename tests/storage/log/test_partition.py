"""Appending and reading one partition: offsets, rolls, limits, duplicates, failing disks."""

import errno
import itertools
import os
import threading
import warnings

import pytest

from config.topic import TopicConfig
from protocol.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from protocol.records.batch import Compression, Record, build, records, scan
from storage import files
from storage.segment import time_search

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka.record import MemoryRecords


def test_appends_are_numbered_and_read_back(log):
    assert log.append([10, 20, 30], now=1000)[:5] == (0, 2, -1, 0, 3)
    appended = log.append([40], now=1001)
    assert (appended.base_offset, appended.last_offset, appended.count) == (3, 3, 1)
    assert (appended.duplicate, appended.converted) == (False, False)
    assert log.partition.log_end_offset == log.partition.high_watermark == 4
    assert [r[:2] for r in log.contents()] == [(0, 10), (1, 20), (2, 30), (3, 40)]
    assert log.partition.reader.append_time_of(2) == 1000
    assert log.partition.reader.append_time_of(3) == 1001
    assert log.partition.reader.append_time_of(4) is None
    assert log.partition.size == os.stat(log.partition.segments[0].path).st_size


def test_another_codec_reads_the_bytes(log):
    """kafka-python is the judge of what lies in the log."""
    log.append([10, 20], now=5)
    log.append([30], now=5, compression=Compression.GZIP)
    log.append([40, 50], now=5, compression=Compression.LZ4)
    (data,) = log.read().buffers
    found = []
    batches = MemoryRecords(bytes(data))
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    assert found == [
        (0, 10, b"k", b"v0"),
        (1, 20, b"k", b"v1"),
        (2, 30, b"k", b"v0"),
        (3, 40, b"k", b"v0"),
        (4, 50, b"k", b"v1"),
    ]


def test_an_empty_set_changes_nothing(log):
    appended = log.partition.append(b"", now_ms=5, produce_version=2)
    assert (appended.base_offset, appended.count, appended.log_append_time_ms) == (-1, 0, -1)
    assert log.partition.log_end_offset == 0
    assert log.partition.last_append_time is None


def test_segments_roll_by_size(make_log):
    log = make_log(segment_bytes=500).create()
    for i in range(30):
        log.append([i], now=i)
    segments = log.partition.segments
    assert len(segments) > 3
    for segment, following in itertools.pairwise(segments):
        assert segment.tail.end_offset == following.base_offset
        assert segment.tail.size <= 500 < segment.tail.size + 80
    assert [r[1] for r in log.contents()] == list(range(30))
    for suffix in (".log", ".index", ".appendtimes"):
        assert len(list(log.directory.glob(f"*{suffix}"))) == len(segments) - (suffix == ".index")


@pytest.mark.parametrize(
    ("index_bytes", "times", "bases"),
    [
        (16, range(9), [0, 2, 4, 6, 8]),
        (24, range(9), [0, 3, 6]),  # two entries of the time index, which is full before the other
        (24, [7] * 9, [0, 4, 8]),  # three entries of the offset index
        (48, range(9), [0, 5]),
    ],
)
def test_segments_roll_when_an_index_is_full(make_log, index_bytes, times, bases):
    log = make_log(segment_index_bytes=index_bytes, index_interval_bytes=0).create()
    for time in times:
        log.append([time])
    assert [s.base_offset for s in log.partition.segments] == bases
    assert [r[1] for r in log.contents()] == list(times)
    log.close()
    sizes = [each.stat().st_size for each in log.directory.glob("*index")]
    assert 0 < max(sizes) <= index_bytes


@pytest.mark.parametrize("lost", [".index", ".timeindex"])
def test_an_index_is_rebuilt_by_the_topics_own_interval(make_log, lost):
    log = make_log(segment_bytes=2000, index_interval_bytes=300).create()
    for time in range(50):
        log.append([time])
    log.close()
    names = sorted(log.directory.glob("*index"))
    files = {each.name: each.read_bytes() for each in names}
    for each in log.directory.glob(f"*{lost}"):
        each.unlink()
    log.open()
    assert [r[1] for r in log.contents()] == list(range(50))
    for segment in log.partition.segments:
        found = time_search.find_time(segment, 49, min_offset=0, upper_offset=50)
        assert found or segment.base_offset < 40
        segment.complete_indexes()
    log.close()
    assert {each.name: each.read_bytes() for each in sorted(log.directory.glob("*index"))} == files


def test_segments_roll_before_offsets_outgrow_the_index(log):
    segment = log.partition.segments[0]
    log.append([1])
    assert segment.has_room(10, 2**31 - 1, 1 << 30, 1000)
    assert not segment.has_room(10, 2**31, 1 << 30, 1000)


def test_a_set_no_segment_can_take_is_refused(make_log):
    log = make_log(segment_bytes=200).create()
    with pytest.raises(RecordListTooLarge, match=r"segment\.bytes is 200"):
        log.append([1], values=[b"x" * 300])
    assert log.partition.log_end_offset == 0


# --- read ----------------------------------------------------------------------------------------


def offsets_in(fetched):
    return [r.offset for data in fetched.buffers for r in records(data)]


@pytest.fixture(params=["one segment", "many segments"])
def read_log(request, make_log):
    """Offsets 0-89 in batches of three."""
    size = 1 << 20 if request.param == "one segment" else 700
    log = make_log(segment_bytes=size, index_interval_bytes=150).create()
    for i in range(30):
        log.append([i] * 3)
    return log


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 61, 200, 1000, 1 << 20])
@pytest.mark.parametrize("minimum_one", [True, False])
def test_a_read_begins_with_the_batch_of_its_offset(read_log, max_bytes, minimum_one):
    whole = b"".join(p.read_bytes() for p in sorted(read_log.directory.glob("*.log")))
    batches = scan(whole)
    for offset in [*range(90), *reversed(range(90))]:
        fetched = read_log.read(offset, max_bytes, minimum_one=minimum_one)
        batch = next(b for b in batches if b.last_offset >= offset)
        size = max(max_bytes, batch.size) if minimum_one else max_bytes
        data = b"".join(fetched.buffers)
        assert fetched.size == len(data) <= size
        assert whole.startswith(data, batch.position)
        assert len(data) >= (batch.size if minimum_one else min(max_bytes, batch.size))
        if size:
            assert fetched.first_batch_size == batch.size


def test_a_large_read_crosses_segments(read_log):
    fetched = read_log.read(0, 1 << 20)
    assert offsets_in(fetched) == list(range(90))
    assert len(fetched.buffers) == len(read_log.partition.segments)


@pytest.mark.parametrize("upper", range(0, 91, 3))
def test_nothing_at_or_above_the_upper_offset_is_read(read_log, upper):
    for offset in range(0, 90, 7):
        found = offsets_in(read_log.read(offset, 1 << 20, upper=upper))
        assert found == list(range(offset // 3 * 3, upper))
        for max_bytes in (1, 100, 250):
            one = offsets_in(read_log.read(offset, max_bytes, upper=upper))
            assert one == found[: len(one)]
            assert bool(one) == bool(found)


def test_a_batch_that_crosses_the_upper_offset_is_not_read(read_log):
    assert offsets_in(read_log.read(0, 1 << 20, upper=7)) == list(range(6))
    assert offsets_in(read_log.read(6, 1 << 20, upper=7)) == []
    assert read_log.read(6, 10, upper=7, minimum_one=False).size == 0


def test_offsets_out_of_range(read_log):
    assert read_log.read(90).buffers == []
    for offset in (-1, 91, 10**12):
        with pytest.raises(OffsetOutOfRange, match="not between 0 and 90"):
            read_log.read(offset)


def test_a_sequential_reader_needs_no_index(read_log, monkeypatch):
    searched = []
    floor = type(read_log.partition.segments[0].index).floor
    monkeypatch.setattr(
        "storage.segment.offset_index.OffsetIndex.floor",
        lambda index, offset: searched.append(offset) or floor(index, offset),
    )
    offset = 0
    while offset < 90:
        fetched = read_log.read(offset, 250)
        offset = offsets_in(fetched)[-1] + 1
    assert len(searched) <= len(read_log.partition.segments)
    searched.clear()
    for i in range(5):
        end = read_log.partition.log_end_offset
        read_log.append([i])
        assert offsets_in(read_log.read(end)) == [end]
    assert searched == []


def test_an_index_that_lies_does_not_lead_astray(make_log):
    log = make_log(index_interval_bytes=100).create()
    for i in range(20):
        log.append([i])
    index = log.partition.segments[0].index
    for i in range(len(index)):
        index._positions[i] += 5
    for offset in range(20):
        assert offsets_in(log.read(offset, 10)) == [offset]


def test_a_reader_beside_an_appender_sees_whole_batches_in_order(make_log):
    log = make_log(segment_bytes=5000, index_interval_bytes=200).create()
    partition, problems, done = log.partition, [], threading.Event()

    def reader():
        offset = 0
        while True:
            last_round = done.is_set()
            end = partition.log_end_offset
            while offset < end:
                fetched = partition.read(offset, 700, upper_offset=end, minimum_one=True)
                for batch in scan(b"".join(fetched.buffers)):
                    if batch.base_offset != offset:
                        problems.append((offset, batch))
                        return
                    offset = batch.last_offset + 1
                if not fetched.size:
                    problems.append(f"nothing at {offset} below {end}")
                    return
            if last_round:
                break
        if offset != 2000:
            problems.append(offset)

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(1000):
        log.append([i, i], now=i)
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []


# --- formats and settings ------------------------------------------------------------------------


def test_formats_change_on_a_live_partition(log):
    for version, magic in (("3.0", 2), ("0.9.0", 0), ("0.10.0", 1), ("0.11.0", 2)):
        log.partition.config = TopicConfig(message_format_version=version)
        log.append([7], now=1)
        assert scan(log.read(log.partition.log_end_offset - 1).buffers[0])[0].magic == magic
    assert [r[:2] for r in log.contents()] == [(0, 7), (1, -1), (2, 7), (3, 7)]
    log.crash()
    log.open()
    assert [r[:2] for r in log.contents()] == [(0, 7), (1, -1), (2, 7), (3, 7)]


def test_internal_appends_are_format_2(make_log):
    log = make_log(message_format_version="0.9.0").create()
    data = build([Record(0, 5, None, b"v", ((b"h", b"1"),))])
    log.partition.append(data, now_ms=1, produce_version=9, internal=True)
    assert scan(log.read().buffers[0])[0].magic == 2


# --- producers -----------------------------------------------------------------------------------


def idempotent(sequence, **more):
    return {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence, **more}


def test_a_duplicate_is_answered_as_the_first_time(make_log):
    log = make_log(message_timestamp_type="LogAppendTime").create()
    first = log.append([1, 2], now=1000, **idempotent(0))
    assert first.log_append_time_ms == 1000
    log.append([3], now=1001, **idempotent(2))
    again = log.append([1, 2], now=2000, **idempotent(0))
    assert again[:3] == first[:3]
    assert again.duplicate
    assert again.count == 2
    assert log.partition.log_end_offset == 3
    assert log.partition.last_append_time == 1001
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([1], **idempotent(7))
    assert log.partition.log_end_offset == 3


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_duplicates_are_recognized_after_a_restart(make_log, stop):
    log = make_log(message_timestamp_type="LogAppendTime").create()
    first = log.append([1, 2], now=1000, **idempotent(0))
    getattr(log, stop)()
    log.open(now=5000)
    again = log.append([1, 2], now=6000, **idempotent(0))
    assert again[:3] == first[:3]
    assert again.duplicate
    assert log.append([3], now=6000, **idempotent(2)).base_offset == 2


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
@pytest.mark.parametrize("stop", ["close", "crash"])
def test_any_of_the_last_five_batches_is_recognized_after_a_restart(make_log, stop, segment_bytes):
    log = make_log(segment_bytes=segment_bytes).create()
    for sequence in range(9):
        log.append([1], **idempotent(sequence))
        log.append([1], **idempotent(sequence, producer_id=77 + sequence // 8))
    log.append([1], **idempotent(0, producer_id=78, producer_epoch=1))
    getattr(log, stop)()
    log.open()
    for sequence in range(4, 9):
        again = log.append([1], **idempotent(sequence))
        assert (again.duplicate, again.base_offset) == (True, 2 * sequence)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([1], **idempotent(3))
    # A new epoch's producer has nothing left of the old one's.
    assert [b.first_offset for b in log.partition.state.read_producers().get(78).batches] == [18]
    assert log.append([1], **idempotent(9)).base_offset == 19


def test_the_tail_that_is_searched_for_producers_is_bounded(make_log, monkeypatch):
    monkeypatch.setattr("storage.log.producers.recovered_producers._REFILL_BYTES", 200)
    log = make_log(index_interval_bytes=0).create()
    for sequence in range(20):
        log.append([1], **idempotent(sequence))
    log.close()
    log.open()
    walked = []
    walk = type(log.partition.segments[0]).walk
    monkeypatch.setattr(
        "storage.segment.segment.Segment.walk",
        lambda segment, *where: walked.append(where) or walk(segment, *where),
    )
    batches = log.partition.state.read_producers().get(9).batches
    assert batches[-1].last_offset == 19
    assert 1 < len(batches) < 5
    assert walked[0] == ((20 - len(batches)) * log.partition.size // 20,)


def test_a_duplicate_keeps_its_stamp_when_the_topic_changes(log):
    log.append([5], now=1000, **idempotent(0))
    log.partition.config = TopicConfig(message_timestamp_type="LogAppendTime")
    log.append([5], now=1500, **idempotent(1))
    assert log.append([5], now=2000, **idempotent(0)).log_append_time_ms == -1
    log.partition.config = TopicConfig()
    assert log.append([5], now=2000, **idempotent(1)).log_append_time_ms == 1500


def test_a_refused_append_leaves_no_trace_of_its_producer(make_log):
    log = make_log(message_timestamp_after_max_ms=10).create()
    with pytest.raises(InvalidTimestamp):
        log.append([5000], now=0, **idempotent(0))
    assert log.append([5], now=0, **idempotent(0)).base_offset == 0
    assert log.partition.last_append_time == 0


def test_a_transaction_does_not_begin_without_a_guard(log):
    with pytest.raises(InvalidTxnState, match="not part of a transaction"):
        log.append([1], **idempotent(0, is_transactional=True))
    assert log.partition.log_end_offset == 0


def test_what_formats_0_and_1_cannot_carry_is_refused(make_log):
    for version in ("0.9.0", "0.10.0"):
        log = make_log(version, message_format_version=version).create()
        for more in ({}, {"is_transactional": True}):
            with pytest.raises(UnsupportedForMessageFormat):
                log.append([1], **idempotent(0, **more))
        assert log.partition.log_end_offset == 0


def test_a_producer_id_without_a_sequence_is_refused(log):
    with pytest.raises(InvalidRecord):
        log.append([1], producer_id=9, producer_epoch=0, base_sequence=-1)


# --- failing disks -------------------------------------------------------------------------------


class Disk:
    """Writes fail from the `allowed`-th byte on."""

    def __init__(self, monkeypatch, code=errno.ENOSPC):
        self.allowed, self.code, self.pwritev = None, code, os.pwritev
        monkeypatch.setattr(files.os, "pwritev", self)

    def __call__(self, number, buffers, position):
        if self.allowed is None:
            return self.pwritev(number, buffers, position)
        if self.allowed == 0:
            raise OSError(self.code, os.strerror(self.code))
        data = b"".join(buffers)[: self.allowed]
        self.allowed -= len(data)
        return self.pwritev(number, [data], position)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_leaves_the_log_as_it_was(log, monkeypatch, code):
    log.append([1, 2], now=5)
    size = log.partition.size
    disk = Disk(monkeypatch, code)
    data = b"x" * 40
    # 12 bytes are the append time's entry, then the batch.
    for allowed in range(0, 119, 3):
        disk.allowed = allowed
        with pytest.raises(KafkaStorageError, match="t-0: the records were not stored: "):
            log.append([3], now=6, values=[data])
        assert log.partition.log_end_offset == 2
        assert log.partition.segments[0].path.stat().st_size == size
        assert log.partition.last_append_time == 5
        assert [r[1] for r in log.contents()] == [1, 2]
    disk.allowed = None
    assert log.append([3], now=7, values=[data]).base_offset == 2
    assert [r[1] for r in log.contents()] == [1, 2, 3]
    assert log.partition.reader.append_time_of(2) == 7
    log.crash()
    log.open()
    assert [r[1] for r in log.contents()] == [1, 2, 3]
    assert log.partition.reader.append_time_of(2) == 7


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failed_write_takes_a_log_offline_that_others_have_too(log, monkeypatch, code):
    log.append([1, 2])
    log.partition.roles.lead(1)
    disk = Disk(monkeypatch, code)
    disk.allowed = 20
    with pytest.raises(KafkaStorageError, match="the records were not stored: "):
        log.append([3])
    assert log.partition.offline == f"the records were not stored: {os.strerror(code)}"
    assert not log.partition.is_full
    disk.allowed = None
    with pytest.raises(KafkaStorageError, match=os.strerror(code)):
        log.append([3])


def test_a_full_disk_takes_no_log_offline(log, monkeypatch):
    log.partition.roles.lead(1)
    disk = Disk(monkeypatch, errno.ENOSPC)
    disk.allowed = 20
    with pytest.raises(KafkaStorageError, match="the disk is full"):
        log.append([3])
    assert log.partition.offline is None
    assert log.partition.is_full


def test_a_short_write_is_carried_on(log, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(
        files.os,
        "pwritev",
        lambda number, buffers, position: real(number, [b"".join(buffers)[:7]], position),
    )
    log.append([1, 2])
    assert [r[1] for r in log.contents()] == [1, 2]


def test_a_roll_that_fails_refuses_the_append_and_is_tried_again(make_log, monkeypatch):
    log = make_log(segment_bytes=150).create()
    log.append([1], values=[b"x" * 30])
    real = files.Descriptor.__init__

    def full(descriptor, path, *, writable=False):
        descriptor.number = -1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files.Descriptor, "__init__", full)
    with pytest.raises(KafkaStorageError, match="No space left"):
        log.append([2], values=[b"x" * 30])
    monkeypatch.setattr(files.Descriptor, "__init__", real)
    assert log.append([3], values=[b"x" * 30]).base_offset == 1
    assert [r[1] for r in log.contents()] == [1, 3]
    log.crash()
    log.open()
    assert [r[1] for r in log.contents()] == [1, 3]


def test_an_unreadable_log_is_a_storage_error(log, monkeypatch):
    log.append([1])

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "read_at", broken)
    with pytest.raises(KafkaStorageError, match="t-0: the log cannot be read: Input/output error"):
        log.read(0)


def test_a_deleted_or_closed_partition_refuses_appends(make_log):
    log = make_log().create()
    partition = log.partition
    log.store.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition):
        log.append([1])
    log.partition = log.store.create_partition("t", partition.topic_id, 0, partition.config, 0)
    log.append([2])
    partition = log.partition
    log.close()
    log.partition = partition
    with pytest.raises(KafkaStorageError, match="closed"):
        log.append([3])


# --- epochs and times ----------------------------------------------------------------------------


def test_leader_epochs(log):
    # The epoch that is led in, though nothing is written in it yet.
    assert log.partition.reader.end_offset_for_epoch(0) == (0, 0)
    assert log.partition.reader.end_offset_for_epoch(1) == (-1, -1)
    log.append([1, 2])
    log.partition.leader_epoch = 3
    log.append([3])
    log.partition.leader_epoch = 5
    log.append([4])
    answers = {e: log.partition.reader.end_offset_for_epoch(e) for e in (-1, 0, 1, 2, 3, 4, 5, 6)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 2),
        1: (0, 2),
        2: (0, 2),
        3: (3, 3),
        4: (3, 3),
        5: (5, 4),
        6: (-1, -1),
    }
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 2\n5 3\n"
    log.crash()
    log.open()
    assert log.partition.reader.end_offset_for_epoch(4) == (3, 3)
    assert scan(log.read(3).buffers[0])[0].leader_epoch == 5


def test_list_offsets_v0(make_log):
    log = make_log(segment_bytes=200).create()
    for i in range(9):
        log.append([1000 + 10 * i])
    bases = [segment.base_offset for segment in log.partition.segments]
    assert bases == [0, 2, 4, 6, 8]
    ask = log.partition.reader.offsets_before_v0
    assert ask(-1, 10) == [9, 8, 6, 4, 2, 0]
    assert ask(-1, 2) == [9, 8]
    assert ask(-2, 10) == [0]
    assert ask(0, 10) == [0]
    assert ask(1050, 10) == [5, 4, 2, 0]
    assert ask(1051, 1) == [6]
    assert ask(10**15, 3) == [9, 8, 6]
    assert ask(-7, 10) == [0]
    assert ask(-1, 0) == []
    for special in (-3, -4, -5, -6):
        with pytest.raises(UnsupportedVersion):
            ask(special, 1)


def test_a_read_of_no_bytes_is_empty(log):
    log.append([1])
    for max_bytes in (0, -1, -(2**31)):
        assert log.read(0, max_bytes, minimum_one=False).size == 0
        assert offsets_in(log.read(0, max_bytes, minimum_one=True)) == [0]
    assert log.read(0, 2**31 - 1, minimum_one=False).size == log.partition.size


def test_a_full_disk_is_logged_once(log, monkeypatch, caplog):
    Disk(monkeypatch).allowed = 0
    for _ in range(5):
        with pytest.raises(KafkaStorageError):
            log.append([1])
    assert [r.message for r in caplog.records] == ["storage error"]
    monkeypatch.undo()
    log.append([1])
    log.partition.flush()
    Disk(monkeypatch).allowed = 0
    with pytest.raises(KafkaStorageError):
        log.append([1])
    assert len(caplog.records) == 2


def test_a_log_that_cannot_be_cut_back_is_cut_before_the_next_append(make_log, monkeypatch):
    log = make_log(message_format_version="0.10.0").create()
    log.append([1], now=5, magic=1)
    disk = Disk(monkeypatch)

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    # An append time, two of three messages, and then nothing works.
    disk.allowed = 12 + 2 * 37 + 5
    monkeypatch.setattr(os, "truncate", broken)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="Input/output error"):
            log.append([2, 3, 4], now=6, magic=1)
    assert [r[1] for r in log.contents()] == [1]
    assert log.partition.segments[0].path.stat().st_size > log.partition.size
    monkeypatch.undo()
    log.append([5], now=9, magic=1)
    for _ in range(2):
        assert [r[1] for r in log.contents()] == [1, 5]
        assert [log.partition.reader.append_time_of(o) for o in (0, 1)] == [5, 9]
        log.crash()
        log.open()


def test_snapshots_do_not_pile_up(make_log):
    log = make_log(segment_bytes=400).create()
    for _ in range(4):
        log.append([1])
        log.close()
        log.open()
    bases = {segment.base_offset for segment in log.partition.segments}
    kept = {int(path.name[:20]) for path in log.directory.glob("*.snapshot")}
    assert kept <= bases | {4}
    assert 4 in kept


def test_control_batches_have_no_event_time(log):
    log.append([1000], now=5)
    marker = build(
        [Record(0, 9000, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
        is_control=True,
        is_transactional=True,
        producer_id=3,
        producer_epoch=0,
    )
    appended = log.partition.append(marker, now_ms=6, produce_version=9, internal=True)
    assert (appended.base_offset, appended.last_offset) == (1, 1)
    log.append([2000], now=7)
    for _ in range(2):
        assert log.partition.reader.find_by_time(1500, upper_offset=3) == (2, 2000)
        assert log.partition.reader.find_by_time(5000, upper_offset=3) is None
        assert log.partition.reader.find_largest_time(upper_offset=3) == (2, 2000)
        log.crash()
        log.open()


def test_a_ragged_log_is_not_closed_as_a_clean_one(make_log, monkeypatch):
    log = make_log().create()
    log.append([1], now=5)
    disk = Disk(monkeypatch)

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    disk.allowed = 40
    monkeypatch.setattr(os, "truncate", broken)
    with pytest.raises(KafkaStorageError):
        log.append([2], now=6)
    disk.allowed = None
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        log.close()
    monkeypatch.undo()
    log.open()
    assert [r[1] for r in log.contents()] == [1]
    disk = Disk(monkeypatch)
    disk.allowed = 40
    monkeypatch.setattr(os, "truncate", broken)
    with pytest.raises(KafkaStorageError):
        log.append([2], now=6)
    monkeypatch.undo()
    log.close()  # the disk has recovered, and so has the log
    log.open()
    assert [r[1] for r in log.contents()] == [1]
    assert log.append([3], now=7).base_offset == 1


def test_a_roll_that_fails_half_way_leaves_no_segment_behind(make_log):
    """The next batch may go into the old segment, and recovery would cut it off at the new one."""

    class FewFiles(files.System):
        def open(self, path, flags):
            if path.name == f"{2:020}.appendtimes":
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, flags)

    log = make_log(segment_bytes=300).create()
    log.append([1], now=1)
    log.append([2], now=2)
    before = files.use(FewFiles())
    try:
        with pytest.raises(KafkaStorageError, match="Too many open files"):
            log.append([3], now=3, values=[bytes(120)])
    finally:
        files.use(before)
    log.append([3], now=3)
    assert len(log.partition.segments) == 1, "it was to fit"
    log.crash()
    log.open()
    assert [time for _, time, _ in log.contents()] == [1, 2, 3]
