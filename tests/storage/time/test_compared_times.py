"""As which times compaction.strategy=timestamp compares records, to the millisecond."""

from tidelog.storage.time.event_time import compared_stamp, comparison_limit


def test_a_producers_time_counts_at_most_as_the_append_time_plus_the_setting():
    assert comparison_limit(1_000, 500) == 1_500
    assert comparison_limit(2**63 - 2, 500) == 2**63 - 1
    assert comparison_limit(-9_000, 500) == 0  # a record without a time has -1, which is no more


def test_a_stamp_counts_as_what_its_append_time_counts_as():
    assert compared_stamp(9_000, 1_000, None, is_adopted=False) == 1_000  # a clock that was ahead
    assert compared_stamp(5, 1_000, None, is_adopted=False) == 1_000  # one that was behind
    assert compared_stamp(-1, -1, None, is_adopted=False) == 0


def test_a_stamp_without_append_time_counts_itself_but_not_after_the_adoption():
    assert compared_stamp(900, 1_000, None, is_adopted=True) == 900
    assert compared_stamp(9_000, 1_000, None, is_adopted=True) == 1_000


def test_no_stamp_is_older_than_the_one_before_it():
    assert compared_stamp(900, 900, 1_000, is_adopted=False) == 1_000
    assert compared_stamp(900, 5_000, 1_000, is_adopted=True) == 1_000
    assert compared_stamp(1_001, 1_001, 1_000, is_adopted=False) == 1_001
