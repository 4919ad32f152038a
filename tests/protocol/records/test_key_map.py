"""Which record of each key stays: the compiled map and its twin, both against what a reader would write."""

from __future__ import annotations

import os
import random

import pytest

from tests.protocol.records.test_kernels import mutated, regions
from tidelog.protocol.errors import BrokerError, InvalidRecord
from tidelog.protocol.records.batch import Record, build, scan, stored_region
from tidelog.protocol.records.kernels import key_map
from tidelog.protocol.records.layout import INT64_MAX, NO_TIMESTAMP, Region

_kernels = pytest.importorskip("tidelog.protocol.records._kernels")
if not hasattr(_kernels, "KeyMap"):
    pytest.skip("the kernels are of an older build", allow_module_level=True)
ROUNDS = int(os.environ.get("TIDELOG_KEY_MAPS", "300"))
MODULES = pytest.mark.parametrize("module", [key_map, _kernels], ids=["python", "compiled"])


@pytest.fixture(autouse=True)
def implementation():
    """Each test here says which it runs on."""


def answer(function, *args):
    try:
        return function(*args)
    except (BrokerError, ValueError) as error:
        return type(error), str(error)


def region(rows, **more):
    """The region of one batch: rows are (offset, time, key, value)."""
    data = build([Record(*row) for row in rows], **more)
    if more.get("magic", 2) < 2 and not more.get("compression"):
        return Region(data, 0, len(data), more["magic"], -1, 0, NO_TIMESTAMP, None)
    return stored_region(data, scan(data)[0])


def winners(rows, by_time):
    """What stands for each key, in as many words: a fold over the rows in order."""
    stands = {}
    for offset, time, key, _ in rows:
        if key is None:
            continue
        if by_time and key in stands:
            other = stands[key][1]
            if NO_TIMESTAMP not in (time, other) and time < other:
                continue
        stands[key] = (offset, time)
    return {key: offset for key, (offset, _) in stands.items()}


def some_rows(rng, count, first=0):
    offset, rows = first, []
    for _ in range(count):
        offset += rng.choice([1, 1, 1, 2, 5])
        key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(12)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(20))
        rows.append(
            (offset, rng.choice([-1, -5, 0, 7, 7, 8, 2**62, rng.randrange(50)]), key, value)
        )
    return rows


@MODULES
@pytest.mark.parametrize("by_time", [False, True])
def test_what_stands_is_what_a_fold_says(module, by_time):
    rng = random.Random(4)
    for _ in range(ROUNDS):
        rows = some_rows(rng, rng.randrange(1, 40))
        # Another cleaning before it must not matter: what it left, and then the rest.
        cut = rng.randrange(len(rows))
        before, after = rows[:cut], rows[cut:]
        kept = set(winners(before, by_time).values())
        before = [row for row in before if row[0] in kept]
        keys = module.KeyMap(1000, by_time)
        assert keys.note(region(after), 0) is None
        if before and by_time:
            keys.update_by_time(region(before), 0)
        assert len(keys) == len({row[2] for row in after} - {None})
        wanted = set(winners(rows, by_time).values())
        found = set()
        for part in (before, after):
            if part:
                filtered = keys.filter_records(region(part), INT64_MAX, True)
                found |= {row[0] for row, bit in zip(part, filtered.mask, strict=True) if bit}
        assert found == wanted


@MODULES
def test_a_stamp_is_the_time_of_all(module):
    keys = module.KeyMap(10, True)
    stamped = {"timestamp_type": 1, "log_append_time": 50}
    assert keys.note(region([(0, 90, b"a", b"1"), (1, 80, b"b", b"1")], **stamped), 0) is None
    assert keys.note(region([(2, 49, b"a", b"2"), (3, 50, b"b", b"2")]), 0) is None
    filtered = keys.filter_records(
        region([(0, 90, b"a", b"1"), (1, 80, b"b", b"1")], **stamped), 9, True
    )
    assert (filtered.mask, filtered.largest, filtered.first) == (b"\1\0", 50, 50)


@MODULES
def test_no_time_counts_as_more_than_its_limit(module):
    keys = module.KeyMap(10, True)
    assert keys.note(region([(5, 2**62, b"a", b""), (6, 30, b"b", b"")]), 0, 40) is None
    assert keys.note(region([(7, 39, b"a", b""), (8, -1, b"b", b"")]), 0, 100) is None
    assert keys.note(region([(9, 40, b"a", b"")]), 0, 100) is None
    keys.update_by_time(region([(0, 2**62, b"a", b"")]), 0, 40)
    rows = [(0, 2**62, b"a", b""), (5, 2**62, b"a", b""), (8, -1, b"b", b""), (9, 40, b"a", b"")]
    assert keys.filter_records(region(rows), 9, True).mask == b"\0\0\1\1"
    keys.update_by_time(region([(1, 2**62, b"a", b"")]), 0, 41)
    assert keys.filter_records(region([(1, 2**62, b"a", b"")]), 9, True).mask == b"\1"


@MODULES
def test_full_at_the_first_key_without_room(module):
    keys = module.KeyMap(2, False)
    rows = [(5, 1, b"a", b""), (6, 1, b"b", b""), (7, 1, b"a", b""), (8, 1, b"c", b"")]
    assert keys.note(region(rows), 0) == 8
    assert keys.filter_records(region(rows), 7, True).mask == b"\0\1\1\1"
    assert module.KeyMap(0, False).note(region(rows), 6) == 6


@MODULES
def test_tombstones_stay_as_long_as_they_are_kept(module):
    rows = [(0, 1, b"a", None), (1, -1, b"b", b"v"), (2, 9, b"c", None), (3, 4, None, b"v")]
    keys = module.KeyMap(9, False)
    keys.note(region(rows), 0)
    kept = keys.filter_records(region(rows), 3, True)
    assert (kept.mask, kept.kept, kept.has_tombstone) == (b"\1\1\1\0", 3, True)
    assert (kept.largest, kept.first, kept.has_missing) == (9, 1, True)
    assert (kept.first_offset, kept.last_offset) == (0, 2)
    gone = keys.filter_records(region(rows), 3, False)
    assert (gone.mask, gone.has_tombstone, gone.largest) == (b"\0\1\0\0", False, None)
    assert keys.filter_records(region(rows), 1, False).mask == b"\0\1\1\1", (
        "what lies behind is not judged"
    )


@MODULES
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_selecting_keeps_the_records_as_they_are(module, magic):
    rng = random.Random(magic)
    for _ in range(ROUNDS // 3):
        rows = [(o, t if magic else -1, k, v) for o, t, k, v in some_rows(rng, 9)]
        whole = region(rows, magic=magic)
        mask = bytes(rng.randrange(2) for _ in rows)
        base = rng.choice([whole.base_timestamp, 0, -(2**63), 2**63 - 1])
        data = module.select(whole, mask, base)
        kept = [row for row, bit in zip(rows, mask, strict=True) if bit]
        again = Region(data, 0, len(data), magic, len(kept), whole.base_offset, base, None)
        assert [r[:4] for r in key_map_walk(again)] == kept


def key_map_walk(again):
    from tidelog.protocol.records.decode import walk

    return list(walk(again))


@MODULES
def test_a_mask_of_another_length_is_refused(module):
    whole = region([(0, 1, b"a", b"b"), (1, 1, b"a", b"b")])
    for mask in (b"", b"\1", b"\1\1\1"):
        with pytest.raises(InvalidRecord, match=key_map.MASK_LENGTH):
            module.select(whole, mask, 0)


def test_both_agree_on_whatever_comes():
    rng = random.Random(17)
    for whole, magic, count_of_all, base_timestamp in list(regions()) * 20:
        data, count = mutated(rng, whole), count_of_all
        if rng.random() < 0.1:
            count = rng.choice([-1, 0, count + 1, count - 1, 2**31 - 1])
        stamp = rng.choice([None, None, 5, -1])
        where = Region(
            data,
            0,
            len(data),
            magic,
            count,
            rng.choice([0, 10**12]),
            base_timestamp,
            stamp,
        )
        by_time, least = rng.random() < 0.5, rng.choice([0, 2])
        limit = rng.choice([INT64_MAX, 8, -6])
        pair = [module.KeyMap(rng.choice([3, 3]), by_time) for module in (key_map, _kernels)]
        noted = [answer(each.note, where, least, limit) for each in pair]
        assert noted[0] == noted[1]
        assert len(pair[0]) == len(pair[1])
        if by_time:
            updated = [answer(each.update_by_time, where, least, limit) for each in pair]
            assert updated[0] == updated[1]
        latest, keep = rng.choice([1, INT64_MAX]), rng.random() < 0.5
        filtered = [answer(each.filter_records, where, latest, keep) for each in pair]
        assert filtered[0] == filtered[1]
        if isinstance(filtered[0], key_map.Filtered):
            mask = filtered[0].mask
            wanted = (where, mask, rng.choice([0, base_timestamp]))
            assert answer(key_map.select, *wanted) == answer(_kernels.select, *wanted)


def test_many_keys_of_all_sizes():
    rng = random.Random(2)
    keys = _kernels.KeyMap(20_000, False)
    stands = {}
    for start in range(0, 40_000, 1_000):
        rows = [
            (start + i, 1, rng.randrange(25_000).to_bytes(rng.choice([3, 8, 16, 23]), "big"), b"")
            for i in range(1_000)
        ]
        if len(stands) + 1_000 > 20_000:
            break
        assert keys.note(region(rows), 0) is None
        stands |= {row[2]: row[0] for row in rows}
        assert len(keys) == len(stands)
    for key, offset in stands.items():
        assert keys.filter_records(region([(offset, 1, key, b"")]), INT64_MAX, True).mask == b"\1"
        if offset:
            assert (
                keys.filter_records(region([(offset - 1, 1, key, b"")]), INT64_MAX, True).mask
                == b"\0"
            )
