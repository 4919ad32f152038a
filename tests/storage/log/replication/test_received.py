"""What a follower makes of the bytes that its leader sends."""

import pytest

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log.replication.received import AppendedFrom, receive, unpacked
from tidelog.storage.segment.appended.layout import ENTRY, UNKNOWN


def batch(*times, first=0, magic=2, **settings):
    rows = [Record(first + i, time, b"k", b"v") for i, time in enumerate(times)]
    return build(rows, magic=magic, **settings)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", [0, 1])
def test_offsets_are_those_of_the_batches(magic, compression):
    parts = [batch(5, 7, first=40, magic=magic, compression=compression)]
    parts.append(batch(6, first=42, magic=magic, compression=compression))
    received = receive(b"".join(parts), [AppendedFrom(0, 10), AppendedFrom(42, 11)])
    prepared = [each.prepared for each in received]
    assert (prepared[0].base_offset, prepared[-1].last_offset) == (40, 42)
    assert b"".join(each.data for each in received) == b"".join(parts)
    assert {each.append_time_ms for each in received[:-1]} == {10}
    assert received[-1].append_time_ms == 11
    largest = [None, None, 7, 6] if not magic else [7, 6]
    assert [each.largest for each in prepared][-1] == (None if not magic else largest[-1])


def test_a_batch_that_only_began_is_left_out():
    whole, torn = batch(1), batch(2, first=1)
    for size in range(len(torn)):
        assert len(receive(whole + torn[:size], [])) == 1


def test_a_broken_batch_is_refused():
    data = bytearray(batch(1) + batch(2, first=1))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        receive(data, [])


@pytest.mark.parametrize("first", [0, 3, 4])
def test_offsets_that_do_not_grow_are_refused(first):
    with pytest.raises(CorruptMessage):
        receive(batch(1, 1, first=3) + batch(2, first=first), [])


def test_a_header_that_lies_is_noticed():
    data = batch(7)
    (received,) = receive(data, [])
    assert received.is_true
    control = batch(7, is_control=True)
    (received,) = receive(control, [])
    assert received.is_true
    assert received.prepared.largest is None


def test_append_times_come_slice_by_slice():
    one = ENTRY.pack(100, 0) + ENTRY.pack(UNKNOWN, 5)
    assert unpacked([(10, one), (30, b""), (40, ENTRY.pack(7, 3))]) == [
        (10, 100),
        (15, None),
        (30, None),
        (40, None),
        (43, 7),
    ]
    with pytest.raises(CorruptMessage):
        unpacked([(0, one[:-1])])
