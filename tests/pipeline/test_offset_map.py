"""Where records went: runs against a plain list, and the file that keeps them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.offset_maps import target_offset_of
from tidelog.pipeline.replay.offset_map import (
    OffsetRange,
    PartitionMap,
    Runs,
    read,
    renew,
    write,
)

STEPS = st.lists(st.integers(min_value=1, max_value=3), min_size=1, max_size=80)


@given(source=STEPS, target=STEPS, cuts=st.lists(st.integers(min_value=1, max_value=9)))
def test_runs_say_what_a_list_would(source, target, cuts):
    count = min(len(source), len(target))
    from_offsets = np.cumsum(source)[:count]
    to_offsets = np.cumsum(target)[:count]
    runs = Runs()
    start = 0
    while start < count:
        end = start + 1
        most = cuts[start % len(cuts)] if cuts else 9
        while end < count and end - start < most and to_offsets[end] == to_offsets[end - 1] + 1:
            end += 1
        runs.add(from_offsets[start:end].astype(np.int64), int(to_offsets[start]))
        start = end
    taken = runs.taken()
    assert [(int(a), int(b)) for a, b in zip(from_offsets, to_offsets, strict=True)] == [
        (run.source_offset + n, run.target_offset + n) for run in taken for n in range(run.count)
    ]
    for before, after in itertools.pairwise(taken):  # no two that could be one
        assert (
            before.source_offset + before.count != after.source_offset
            or before.target_offset + before.count != after.target_offset
        )
    for wanted in range(int(from_offsets[-1]) + 2):
        later = [int(b) for a, b in zip(from_offsets, to_offsets, strict=True) if a >= wanted]
        assert target_offset_of(taken, wanted) == (later[0] if later else None)


def test_nothing_is_nothing(tmp_path):
    runs = Runs()
    runs.add(np.array([], np.int64), 5)
    assert runs.taken() == ()
    assert target_offset_of((), 0) is None
    write(tmp_path / "x" / "offsets.parquet", [])
    assert read(tmp_path / "x" / "offsets.parquet") == []


@pytest.mark.parametrize("name", ["a", "b"])
def test_maps_are_read_back_as_they_were(tmp_path, name):
    maps = [
        PartitionMap(name, 1, "t", 1, (OffsetRange(0, 5, 10), OffsetRange(20, 15, 1))),
        PartitionMap(name, 0, "t", 0, (OffsetRange(2**60, 0, 2),)),
    ]
    write(tmp_path / "offsets.parquet", maps)
    assert read(tmp_path / "offsets.parquet") == sorted(maps)
    assert [path.name for path in tmp_path.iterdir()] == ["offsets.parquet"]


def test_a_map_does_not_get_shorter(tmp_path):
    """Partition by partition; what is no map is written anew."""
    path = tmp_path / "offsets.parquet"
    path.write_bytes(b"half of a file")
    whole, part = (OffsetRange(0, 5, 10), OffsetRange(20, 15, 1)), (OffsetRange(0, 5, 4),)
    others = PartitionMap("s", 1, "t", 1, part)
    renew(path, [PartitionMap("s", 0, "t", 0, part)])
    renew(path, [PartitionMap("s", 0, "t", 0, whole), others])
    renew(path, [PartitionMap("s", 0, "t", 0, part), others._replace(runs=whole)])
    renew(path, [PartitionMap("s", 0, "t", 0, ()), others])
    assert read(path) == [PartitionMap("s", 0, "t", 0, whole), others._replace(runs=whole)]
