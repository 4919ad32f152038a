"""When a broker may still answer as leader: paused, cut off, or told."""

from __future__ import annotations

import pytest

from tidelog.broker.lifecycle.lease import Lease

LEASE_MS = 6_000


def renewed_until(lease, now_ms, step_ms=500):
    for at_ms in range(0, now_ms + 1, step_ms):
        assert not lease.is_lost(at_ms)
        lease.on_renewed(at_ms)


@pytest.mark.parametrize(
    ("pause_ms", "is_lost"), [(1_000, False), (5_999, False), (6_000, True), (60_000, True)]
)
def test_a_pause_past_the_lease_loses_it(pause_ms, is_lost):
    lease = Lease(LEASE_MS, 0)
    renewed_until(lease, 20_000)
    assert lease.is_lost(20_000 + pause_ms) == is_lost


def test_a_pause_counts_from_the_last_renewal_not_from_its_beginning():
    """The renewal was sent 1.5 s before the pause of 4.5 s: the lease may have ended within it."""
    lease = Lease(LEASE_MS, 0)
    renewed_until(lease, 20_000)
    assert not lease.is_lost(21_500)
    assert lease.is_lost(26_000)


def test_it_stays_lost():
    lease = Lease(LEASE_MS, 0)
    assert lease.is_lost(10_000)
    lease.on_renewed(10_000)
    assert lease.is_lost(10_001)
    assert not lease.may_renew(10_001)


def test_a_broker_that_is_cut_off_keeps_its_lease_which_is_overdue():
    """Each of its leaders judges whether it goes on."""
    lease = Lease(LEASE_MS, 0)
    for now_ms in range(0, 60_000, 500):
        assert lease.is_overdue(now_ms) == (now_ms >= LEASE_MS)
        assert not lease.is_lost(now_ms)
    lease.on_renewed(60_000)
    assert not lease.is_overdue(60_000 + LEASE_MS - 1)


def test_told_that_it_is_gone():
    lease = Lease(LEASE_MS, 0)
    lease.on_lost()
    assert lease.is_lost(1)


def test_renewals_stop_when_the_loop_has_stood_still_for_a_lease_time():
    """Else a leader that hangs leads for ever."""
    lease = Lease(LEASE_MS, 0)
    lease.is_lost(1_000)
    assert lease.may_renew(6_999)
    assert not lease.may_renew(7_000)
