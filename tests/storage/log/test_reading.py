"""Reading one partition: where a read begins and ends, with true and with lying indexes, beside appends."""

import threading

import pytest

from tests.storage.conftest import entries_of
from tidelog.protocol.errors import OffsetOutOfRange
from tidelog.protocol.records.batch import records, scan


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
        "tidelog.storage.segment.offset_index.OffsetIndex.floor",
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
    entries = entries_of(index)
    index.clear()
    for entry in entries:
        index.append(entry.offset, entry.position + 5)
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


def test_a_read_of_no_bytes_is_empty(log):
    log.append([1])
    for max_bytes in (0, -1, -(2**31)):
        assert log.read(0, max_bytes, minimum_one=False).size == 0
        assert offsets_in(log.read(0, max_bytes, minimum_one=True)) == [0]
    assert log.read(0, 2**31 - 1, minimum_one=False).size == log.partition.size
