"""What counts where an append time is unknown: the moment of adoption, and never the date of a file."""

from pathlib import Path

import pytest

from tidelog.storage.time.adoption import (
    NOT_ADOPTED,
    Adopted,
    Adoptions,
    adopt,
    adopted_below,
    told_by_leader,
)
from tidelog.storage.time.timestamp import MAX_TIMESTAMP

ROOT = Path(__file__).parents[3]
TWO = (Adopted(10, 100), Adopted(20, 200))


def test_an_offset_has_the_moment_of_its_range_or_else_the_latest():
    adoptions = Adoptions(TWO, 900)
    assert [adoptions.time_of(offset) for offset in (0, 9, 10, 19, 20, 10**9)] == [
        *(100, 100),
        *(200, 200),
        *(900, 900),
    ]
    assert NOT_ADOPTED.time_of(0) == MAX_TIMESTAMP


def test_only_what_lies_behind_the_last_range_is_adopted():
    assert adopt((), 5, 1) == (Adopted(5, 1),)
    assert adopt(TWO, 30, 300) == (*TWO, Adopted(30, 300))
    assert adopt(TWO, 20, 300) == adopt(TWO, 15, 300) == TWO


def test_of_too_many_ranges_the_oldest_count_from_a_later_moment():
    ranges = ()
    for number in range(100):
        ranges = adopt(ranges, 10 * number + 10, number)
    assert len(ranges) == 32
    adoptions = Adoptions(ranges, 1_000)
    assert adoptions.time_of(0) == adoptions.time_of(689) == 68
    assert adoptions.time_of(990) == 99


def test_what_is_cut_off_is_no_longer_adopted():
    assert adopted_below(TWO, 30) == TWO
    assert adopted_below(TWO, 20) == TWO
    assert adopted_below(TWO, 15) == (Adopted(10, 100), Adopted(15, 200))
    assert adopted_below(TWO, 10) == (Adopted(10, 100),)
    assert adopted_below((), 10) == ()


@pytest.mark.parametrize(
    ("told", "end_offset", "ranges"),
    [
        ((), 30, TWO),
        ((), 15, (Adopted(10, 100), Adopted(15, 200))),
        ((Adopted(5, 7),), 30, (Adopted(5, 7), *TWO)),
        ((Adopted(12, 7),), 30, (Adopted(12, 7), Adopted(20, 200))),
        ((Adopted(25, 7),), 30, (Adopted(25, 7),)),
    ],
)
def test_a_follower_keeps_what_it_adopted_behind_what_its_leader_tells(told, end_offset, ranges):
    assert told_by_leader(told, TWO, end_offset) == ranges
    assert told_by_leader(told, ranges, end_offset) == ranges


def test_a_follower_keeps_no_more_ranges_than_others():
    own = tuple(Adopted(number, number) for number in range(10, 42))
    assert told_by_leader((Adopted(5, 1), Adopted(6, 2)), own, 100) == own


@pytest.mark.parametrize("room", ["storage", "broker"])
def test_nothing_reads_the_date_of_a_file(room):
    readers = ("st_mtime", "st_ctime", "st_birthtime", "getmtime", "getctime")
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / room).rglob("*.py"))
        if any(reader in path.read_text() for reader in readers)
    ]
    assert found == []
