"""Both times of an offset, and how much lies before one: marks of transactions, holes, halves of batches."""

import pytest

from tests.storage.cleaning import clean
from tidelog.protocol.errors import OffsetOutOfRange
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log import lookup
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.times.partition_times import FILE_NAME
from tidelog.storage.segment.append_times import AppendTimes


def record(offset, time):
    return Record(offset, time, b"k%d" % offset, b"v", ())


def holed(make_log, *, with_times, magic=2, compression=0):
    """A log of which compaction has removed 1, 2 and 5: batches of 0; 3 and 4; 6 and 8, without 7."""
    log = make_log(cleanup_policy="compact").create()
    log.append([1], now=1)
    log.close()
    data = b"".join(
        build(
            [record(offset, 10 * offset) for offset in offsets],
            magic=magic,
            compression=compression,
        )
        for offsets in ((0,), (3, 4), (6, 8))
    )
    path = log.directory / f"{0:020}.log"
    path.write_bytes(data)
    for suffix in (".index", ".timeindex", ".appendtimes"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    (log.directory / FILE_NAME).unlink()
    log.open()
    if with_times:
        times = AppendTimes(path.with_suffix(".appendtimes"), 0)
        for offset, time in ((0, 100), (1, 200), (3, 300), (5, 400), (6, 500)):
            times.append(time, offset)
        log.partition.segments[0].append_times.load()
    return log.partition


@pytest.mark.parametrize("compression", [0, 1, 3])
@pytest.mark.parametrize("magic", [1, 2])
def test_a_hole_has_no_record_time(make_log, magic, compression):
    partition = holed(make_log, with_times=True, magic=magic, compression=compression)
    found = [partition.reader.times_of(offset) for offset in range(9)]
    kept = {0, 3, 4, 6, 8}
    assert [each.kind == lookup.DATA for each in found] == [n in kept for n in range(9)]
    assert {each.kind for n, each in enumerate(found) if n not in kept} == {lookup.ABSENT}
    assert [each.record_time for each in found if each.kind == lookup.DATA] == [0, 30, 40, 60, 80]
    assert found[1].record_time is None
    # Of a batch that is gone the append time is gone, too; 7 was in one with 6 and 8.
    seven = None if (magic, compression) == (1, 0) else 500
    times = [100, None, None, 300, 300, None, 500, seven, 500]
    assert [each.append_time for each in found] == times


def test_what_compaction_left_first_is_the_answer(make_log):
    partition = holed(make_log, with_times=True)
    answers = {100: (0, 100), 101: (3, 300), 201: (3, 300), 301: (6, 500), 401: (6, 500)}
    for time, (offset, append_time) in answers.items():
        found = partition.reader.find_by_append_time(time, upper_offset=9)
        assert (found.offset, found.append_time, found.unknown_from) == (offset, append_time, None)
    for time, upper in ((401, 6), (501, 9)):
        found = partition.reader.find_by_append_time(time, upper_offset=upper)
        assert found == (None, None, None, None)


def test_what_compaction_removed_before_the_answer_is_named(make_log):
    partition = holed(make_log, with_times=True)
    for time, absent_from in ((100, None), (101, 1), (201, 1), (301, 5), (401, 5)):
        found = partition.reader.find_by_append_time(time, upper_offset=9)
        assert found.absent_from == absent_from, time


@pytest.mark.parametrize("compression", [0, 1])
def test_the_answer_is_a_record_where_the_first_of_its_batch_is_gone(make_log, compression):
    """In format 2 a batch keeps its first offset when the record there is removed."""
    log = make_log(cleanup_policy="compact").create()
    for now, keys in ((1, b"ab"), (2, b"cd"), (3, b"c")):
        data = [Record(i, now, bytes([key]), b"v", ()) for i, key in enumerate(keys)]
        built = build(data, compression=compression)
        log.partition.append(built, now_ms=now, produce_version=9)
    roll(log.partition.state)
    assert clean(log.partition, 4) is not None
    assert [log.partition.reader.times_of(offset).kind for offset in (2, 3)] == ["absent", "data"]
    for start in (0, 2):
        log.partition.retainer.delete_records_before(start)
        assert log.partition.reader.find_by_append_time(2, upper_offset=5) == (3, 2, None, 2)


def test_somebody_elses_holes_have_no_append_time(make_log):
    partition = holed(make_log, with_times=False)
    assert [partition.reader.times_of(n).append_time for n in range(9)] == [None] * 9
    assert partition.reader.find_by_append_time(0, upper_offset=9)[:3] == (None, None, 0)


def test_a_mark_of_a_transaction_has_no_record_time(log):
    log.append([5], now=1)
    mark = build(
        [Record(0, 7, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
        producer_id=4,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    log.partition.append(mark, now_ms=2, produce_version=9, internal=True)
    assert log.partition.reader.times_of(1) == (lookup.CONTROL, None, 2, False)
    assert log.partition.reader.find_by_append_time(2, upper_offset=2).offset == 1


@pytest.mark.parametrize("compression", [0, 1, 3])
@pytest.mark.parametrize("magic", [1, 2])
def test_the_first_record_from_an_offset_on(make_log, magic, compression):
    """What compaction has removed is passed over."""
    partition = holed(make_log, with_times=True, magic=magic, compression=compression)
    found = {offset: partition.reader.first_record(offset) for offset in range(-1, 10)}
    kept = {-1: 0, 0: 0, 1: 3, 2: 3, 3: 3, 4: 4, 5: 6, 6: 6, 7: 8, 8: 8}
    assert {offset: each[0] for offset, each in found.items() if each is not None} == kept
    assert found[9] is None
    for at in kept.values():
        assert found[at][1] == partition.reader.times_of(at)


def test_the_first_record_is_no_mark_of_a_transaction(make_log):
    log = make_log(segment_bytes=150).create()
    mark = build(
        [Record(0, 7, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
        producer_id=4,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    for now in (1, 2):
        log.append([5 * now], now=now)
        log.partition.append(mark, now_ms=10 * now, produce_version=9, internal=True)
    assert len(log.partition.segments) > 1
    assert [log.partition.reader.first_record(n)[0] for n in range(3)] == [0, 2, 2]
    assert log.partition.reader.first_record(1)[1] == (lookup.DATA, 10, 10, False)
    assert log.partition.reader.first_record(3) is None
    log.partition.retainer.delete_records_before(1)
    assert log.partition.reader.first_record(0)[0] == 2


def test_outside_the_log_there_are_no_times(log):
    with pytest.raises(OffsetOutOfRange, match="the log is empty, and its next offset is 0"):
        log.partition.reader.times_of(0)
    log.append([5, 6], now=1)
    log.partition.retainer.delete_records_before(1)
    for offset in (-1, 0, 2, 2**63 - 1):
        with pytest.raises(OffsetOutOfRange, match="the log holds 1 to 1"):
            log.partition.reader.times_of(offset)


def test_the_bytes_before_an_offset_are_those_of_whole_batches(make_log):
    log = make_log(segment_bytes=300).create()
    for _ in range(6):
        log.append([5, 6], now=1)
    assert len(log.partition.segments) > 1
    batch = log.partition.size // 6
    sizes = [log.partition.reader.size_before(offset) for offset in range(13)]
    assert sizes == [offset // 2 * batch for offset in range(13)]
    log.partition.retainer.delete_records_before(5)  # in the middle of the third
    sizes = [log.partition.reader.size_before(offset) for offset in range(13)]
    assert sizes == [max(offset // 2 - 2, 0) * batch for offset in range(13)]
