"""How far a leader's clock is behind, where it is almost as far as clocks may differ."""

from __future__ import annotations

from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
from tidelog.protocol.api.fetch import NO_CLOCK


def test_a_clock_at_the_limit_is_not_behind_and_right_in_turn():
    """A follower notes each change durably, for each of its partitions."""
    clocks, seen = LeaderClocks(lambda: 100_000), []
    for behind_ms in (9_999, 10_000, 10_001, 9_999, 10_002, 9_800, 9_000, 10_000, 10_001):
        clocks.compare(1, 100_000 - behind_ms)
        seen.append(clocks.behind_ms(1))
    assert seen == [0, 0, 10_001, 9_999, 10_002, 9_800, 0, 0, 10_001]


def test_a_clock_that_is_not_sent_any_more_is_not_known():
    clocks = LeaderClocks(lambda: 100_000)
    clocks.compare(1, 0)
    assert (clocks.behind_ms(1), clocks.behind_ms(2)) == (100_000, 0)
    clocks.compare(1, NO_CLOCK)
    assert clocks.behind_ms(1) == 0
