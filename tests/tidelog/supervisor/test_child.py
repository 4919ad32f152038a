"""The delays before a broker that has died is started again."""

from __future__ import annotations

from tidelog.supervisor.child import FIRST_S, HEALTHY_S, LONGEST_S, Backoff


def test_the_delay_doubles_up_to_a_limit():
    backoff = Backoff()
    delays = [backoff.delay_s(0) for _ in range(10)]
    assert delays[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert delays[-2:] == [LONGEST_S, LONGEST_S]


def test_a_broker_that_was_up_for_long_starts_again_soon():
    backoff = Backoff()
    for _ in range(5):
        backoff.delay_s(HEALTHY_S - 1)
    assert backoff.delay_s(HEALTHY_S - 1) > FIRST_S
    assert backoff.delay_s(HEALTHY_S) == FIRST_S
    assert backoff.delay_s(0) == 2 * FIRST_S
