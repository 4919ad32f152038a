"""`partition.times`: what a truncation leaves in it, and what older ones do not have."""

import pytest

from storage.log.times.partition_times import Cut, PartitionTimes, pack, parse

TIMES = PartitionTimes(5, 6, 7, 8, "boot", ())


@pytest.mark.parametrize("mark", [0, 9])
@pytest.mark.parametrize(
    "cut",
    [None, Cut(3, None), Cut(3, 2), Cut(3, None, 0), Cut(3, 4, 12, begins_anew=True)],
)
@pytest.mark.parametrize("gaps_end_offset", [None, 0, 11])
def test_what_is_packed_comes_back(mark, cut, gaps_end_offset):
    times = TIMES._replace(back_offset=mark, cut=cut, gaps_end_offset=gaps_end_offset)
    assert parse(pack(times)) == times


def test_a_log_that_was_never_truncated_has_the_file_it_had():
    assert len(pack(TIMES._replace(back_offset=1))) == len(pack(TIMES)) + 8
