"""Cutting a segment: the log, both indexes, append times and aborted transactions end together."""

import pytest

from tidelog.protocol.records.batch import Record, build, scan
from tidelog.storage import filenames
from tidelog.storage.log.replication.received import receive
from tidelog.storage.segment import transaction_index
from tidelog.storage.segment.searching import end_before
from tidelog.storage.segment.transaction_index import Aborted

SIZES = range(10)


def fill(make_log, **build_settings):
    """A log of ten appends of two records, a millisecond apart, an index entry for each."""
    log = make_log(segment_bytes=1 << 20, index_interval_bytes=0).create()
    for i in SIZES:
        log.append([1_000 + i, 900], now=10 * i, **build_settings)
    return log


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", [0, 1])
def test_the_end_before_an_offset_is_the_end_of_a_whole_batch(make_log, magic, compression):
    release = ("0.9.0", "0.10.2", "3.0")[magic]
    log = make_log(index_interval_bytes=0, message_format_version=release).create()
    for _ in SIZES:
        log.append([5, 6] if magic else [-1, -1], magic=magic, compression=compression)
    (segment,) = log.partition.segments
    ends = [0, *(batch.last_offset + 1 for batch in scan(segment.path.read_bytes()))]
    for offset in range(25):
        wanted = max(end for end in ends if end <= offset)
        tail = end_before(segment, offset)
        assert tail.end_offset == wanted
        assert [b.last_offset + 1 for b in scan(segment.path.read_bytes()[: tail.size])] == [
            end for end in ends[1:] if end <= wanted
        ]


def test_an_index_that_lies_does_not_move_the_end(make_log):
    log = fill(make_log)
    (segment,) = log.partition.segments
    wanted = end_before(segment, 9)
    segment.index.clear()
    segment.index.append(7, 3)  # no batch begins there
    assert end_before(segment, 9) == wanted


def test_everything_ends_with_the_log(make_log):
    log = fill(make_log)
    (segment,) = log.partition.segments
    aborted = [Aborted(0, 7, i, i + 1, 0) for i in range(0, 20, 2)]
    path = log.directory / filenames.segment_file(0, filenames.TXN_INDEX_SUFFIX)
    path.write_bytes(transaction_index.pack(aborted))
    tail = end_before(segment, 9)
    assert tail.end_offset == 8
    segment.cut(tail)
    assert segment.path.stat().st_size == tail.size
    assert segment.index.last().offset <= 7
    assert segment.index.last().position < tail.size
    assert segment.time_index.last().offset <= 7
    assert [entry.time for entry in segment.append_times.entries()] == [0, 10, 20, 30]
    assert transaction_index.parse(path.read_bytes()) == aborted[:4]
    assert (segment.times.largest, segment.times.last_append) == (1_003, 30)


def test_an_index_of_transactions_that_lies_before_the_cut_is_not_written(make_log):
    log = fill(make_log)
    (segment,) = log.partition.segments
    path = log.directory / filenames.segment_file(0, filenames.TXN_INDEX_SUFFIX)
    path.write_bytes(transaction_index.pack([Aborted(0, 7, 0, 1, 0)]))
    before = path.stat().st_mtime_ns
    segment.aborted.truncate(2)
    assert (path.stat().st_mtime_ns, len(segment.aborted.entries)) == (before, 1)
    segment.aborted.truncate(1)
    assert (path.read_bytes(), list(segment.aborted.entries)) == (b"", [])


@pytest.mark.parametrize(
    "behind",
    [b"torn", bytes(34), bytes(100), transaction_index.pack([Aborted(0, 7, 3, 1, 0)])],
)
def test_what_cannot_be_an_entry_is_dropped(make_log, behind):
    log = fill(make_log)
    (segment,) = log.partition.segments
    first, second = Aborted(0, 7, 0, 1, 0), Aborted(0, 8, 2, 4, 2)
    path = log.directory / filenames.segment_file(0, filenames.TXN_INDEX_SUFFIX)
    path.write_bytes(transaction_index.pack([first]) + behind)
    assert list(segment.aborted.entries) == [first]
    segment.aborted.append(second)
    assert path.read_bytes() == transaction_index.pack([first, second])
    assert list(segment.aborted.since(2)) == [second]


def test_a_batch_of_unknown_append_time_ages_from_the_time_it_came(make_log):
    log = fill(make_log)
    (segment,) = log.partition.segments
    data = build([Record(20, 5_000, b"k", b"v")])
    (batch,) = scan(data)

    (received,) = receive(data, [])
    assert received.append_time_ms is None
    assert batch.base_offset == 20
    segment.append((data,), len(data), (received.prepared,), 700, 10_000, 0, is_time_known=False)
    assert segment.append_times.at(20) is None
    assert segment.append_times.last_time == 90
    assert segment.times.has_unknown
    assert segment.times.last_append == 700
