"""The offset index against a naive scan, and against bytes spelt out by hand."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.conftest import entries_of
from tidelog.storage.segment.offset_index import OffsetIndex


def test_the_file_is_kafkas(tmp_path):
    path = tmp_path / "00000000000000000100.index"
    index = OffsetIndex(path, 100)
    index.append(104, 4200)
    index.flush()
    assert path.read_bytes() == bytes.fromhex("00000004 00001068")
    index.append(110, 9000)
    index.flush()
    assert path.read_bytes() == bytes.fromhex("00000004 00001068 0000000a 00002328")


def test_an_empty_index_has_an_empty_file(tmp_path):
    index = OffsetIndex(tmp_path / "i", 0)
    index.flush()
    assert index.path.read_bytes() == b""
    assert index.load(100)
    assert index.floor(5) is None
    assert index.last() is None


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=30),
    st.integers(-5, 1600),
)
def test_floor_is_the_last_entry_at_or_before(steps, wanted):
    index = OffsetIndex(None, 7)
    offset, position, naive = 7, 0, None
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.append(offset, position)
        if offset <= wanted:
            naive = (offset, position)
    assert index.floor(wanted) == naive


def filled(path, count=10):
    index = OffsetIndex(path, 1000)
    for i in range(1, count + 1):
        index.append(1000 + 10 * i, 500 * i)
    return index


@pytest.mark.parametrize("cut", range(81))
def test_a_torn_file_loads_its_whole_entries(tmp_path, cut):
    index = filled(tmp_path / "i")
    index.flush()
    index.path.write_bytes(index.path.read_bytes()[:cut])
    again = OffsetIndex(index.path, 1000)
    assert again.load(10_000)
    assert entries_of(again) == entries_of(index)[: cut // 8]
    again.append(5000, 9999)
    again.flush()
    assert index.path.read_bytes()[-8:] == struct.pack(">ii", 4000, 9999)
    assert len(index.path.read_bytes()) == 8 * len(again)


@pytest.mark.parametrize("zeros", [8, 8000, 65_536 - 80, 65_536, 131_080, 10 << 20])
def test_the_zeros_of_a_preallocated_file_are_no_entries(tmp_path, zeros):
    index = filled(tmp_path / "i")
    index.flush()
    index.path.write_bytes(index.path.read_bytes() + bytes(zeros))
    again = OffsetIndex(index.path, 1000)
    assert again.load(10_000)
    assert entries_of(again) == entries_of(index)
    again.append(5000, 9999)
    again.flush()
    assert len(index.path.read_bytes()) == 88


@pytest.mark.parametrize(
    "entries",
    [
        [(5, 100), (5, 200)],
        [(5, 100), (4, 200)],
        [(5, 200), (6, 200)],
        [(-1, 100)],
        [(5, -100)],
        [(5, 10_000)],
    ],
)
def test_an_index_that_cannot_be_of_this_log_is_refused(tmp_path, entries):
    path = tmp_path / "i"
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    index = OffsetIndex(path, 0)
    assert not index.load(10_000)
    assert len(index) == 0
    assert not OffsetIndex(tmp_path / "missing", 0).load(10_000)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("size", [0, 1, 499, 500, 501, 2500, 5001, 9999])
def test_truncation_keeps_the_batches_that_start_before(tmp_path, size, flushed):
    index = filled(tmp_path / "i")
    if flushed:
        index.flush()
    expected = [entry for entry in entries_of(index) if entry[1] < size]
    index.truncate(size)
    assert entries_of(index) == expected
    index.append(3000, 99_000)
    index.flush()
    again = OffsetIndex(index.path, 1000)
    assert again.load(100_000)
    assert entries_of(again) == [*expected, (3000, 99_000)]
