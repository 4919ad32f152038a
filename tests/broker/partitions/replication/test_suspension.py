"""A leader that is cut off from the coordinator: when it is suspended, and when it goes on."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import EPOCH, LEASE_MS, ME, ONE, TWO, Led, kinds
from tidelog.broker.partitions.replication.messages import NO_EPOCH, BrokerStatus, Resume, Suspend
from tidelog.protocol.errors import ErrorCode, NotLeaderOrFollower


def is_suspended(led):
    try:
        led.leader.check_leading(led.now_ms)
    except NotLeaderOrFollower:
        assert led.leader.is_leading
        return True
    return False


def test_nobody_renews_the_lease_and_no_follower_asks():
    led = Led()
    assert led.actions == []
    led.fetch(ONE, 0)
    assert not is_suspended(led)
    led.pass_a_lease()
    assert is_suspended(led)
    assert kinds(led.actions)[0] is Suspend
    assert led.tick() == []


def test_it_goes_on_while_its_lease_is_renewed():
    led = Led()
    for _ in range(12):
        led.lease.on_renewed(led.now_ms)
        led.tick(LEASE_MS // 4)
        assert not is_suspended(led)


@pytest.mark.parametrize("asks", [ONE, TWO])
def test_it_goes_on_while_an_in_sync_follower_asks(asks):
    """An idle partition is asked for once; then the session of the follower counts."""
    led = Led()
    led.fetch(asks, 0)
    for _ in range(3):
        led.pass_a_lease(asks)
        assert not is_suspended(led)
    led.pass_a_lease()
    assert is_suspended(led)


def test_what_a_replica_outside_the_isr_asks_does_not_count():
    led = Led((ME, ONE))
    led.brokers[TWO] = BrokerStatus(100 + TWO, is_stopping=True)  # it does not join
    led.fetch(TWO, 0)
    assert led.changes == []
    led.pass_a_lease(TWO)
    assert is_suspended(led)


def test_one_that_is_about_to_join_counts_and_may_be_elected():
    """Its proposal may be stored: then it can be elected, and shows that it was not."""
    led = Led((ME,), min_insync=1)
    led.fetch(TWO, 0)
    assert led.change.record.isr == (ME, TWO)
    led.pass_a_lease()
    assert is_suspended(led)
    led.pass_a_lease(TWO)
    assert not is_suspended(led)


def test_a_fetch_of_another_epoch_or_of_none_does_not_count():
    led = Led()
    led.pass_a_lease()
    assert led.fetch(ONE, 0, leader_epoch=EPOCH - 1).error == ErrorCode.FENCED_LEADER_EPOCH
    assert led.fetch(ONE, 0, leader_epoch=EPOCH + 1).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert led.fetch(ONE, 0, leader_epoch=NO_EPOCH).error == ErrorCode.NONE
    assert led.fetch(ONE, 0, broker_epoch=1).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert is_suspended(led)


def test_a_follower_that_forgets_the_partition_counts_no_more():
    led = Led()
    led.fetch(ONE, 0)
    led.fetch(TWO, 0)
    led.pass_a_lease(ONE, TWO)
    assert led.leader.on_forgotten(ONE, led.now_ms) == []
    assert not is_suspended(led)
    assert kinds(led.leader.on_forgotten(TWO, led.now_ms)) == [Suspend]
    assert is_suspended(led)


def test_who_began_to_lead_cut_off_is_suspended_until_a_follower_asks():
    led = Led()
    led.pass_a_lease()
    assert is_suspended(led)
    led.fetch(ONE, 0)
    assert kinds(led.actions)[0] is Resume
    assert not is_suspended(led)


def test_it_resumes_in_the_same_epoch_with_the_next_fetch():
    led = Led()
    led.append()
    led.pass_a_lease()
    assert led.fetch(ONE, 1).error == ErrorCode.NONE
    led.fetch(TWO, 1)
    assert not is_suspended(led)
    assert led.leader.leader_epoch == EPOCH
    assert led.high_watermark == 1
    assert led.leader.suspensions == 1


def test_it_resumes_with_a_session_that_goes_on():
    led = Led()
    led.fetch(ONE, 0)
    led.pass_a_lease()
    led.leader.on_session(ONE, led.now_ms)
    assert kinds(led.tick()) == [Resume]


def test_it_resumes_with_a_renewal():
    led = Led()
    led.pass_a_lease()
    led.lease.on_renewed(led.now_ms)
    assert kinds(led.tick())[0] is Resume
    assert not is_suspended(led)


def test_told_that_the_lease_is_gone_it_steps_down():
    led = Led()
    led.pass_a_lease()
    led.lease.on_lost()
    led.tick()
    assert not led.leader.is_leading
    led.fetch(ONE, 0)
    assert not led.leader.is_leading


def test_producers_are_refused_whatever_acks_they_ask_for():
    led = Led((ME, ONE))
    led.append()
    assert led.leader.acknowledgement(1, led.now_ms, 10 * LEASE_MS) is None
    led.pass_a_lease()
    for acks in (0, 1, -1):
        with pytest.raises(NotLeaderOrFollower):
            led.leader.check_append(acks, led.now_ms)
    refused = led.leader.acknowledgement(1, led.now_ms, 10 * LEASE_MS)
    assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(NotLeaderOrFollower):
        led.leader.check_end_known(led.now_ms)


# --- whom else could they elect? ------------------------------------------------------------------


def test_the_only_replica_that_can_be_elected_goes_on():
    led = Led((ME,), min_insync=1)
    led.pass_a_lease()
    assert not is_suspended(led)


def test_a_partition_with_one_replica_goes_on():
    led = Led((ME,), replicas=(ME,), min_insync=1, allows_unclean=True)
    led.pass_a_lease()
    assert not is_suspended(led)


def test_an_eligible_replica_can_be_elected_though_it_is_not_in_sync():
    led = Led((ME,), elr=(TWO,))
    led.pass_a_lease()
    assert is_suspended(led)


def test_any_replica_can_be_elected_where_unclean_elections_are_allowed():
    led = Led((ME,), min_insync=1, allows_unclean=True)
    led.pass_a_lease()
    assert is_suspended(led)


def test_an_isr_that_is_stored_without_others_lets_it_go_on():
    """Nobody else can be elected then; and who stored it has reached the coordinator."""
    led = Led((ME, ONE), min_insync=1)
    led.pass_a_lease()
    assert is_suspended(led)
    led.store(isr=(ME,), partition_epoch=1)
    assert Resume in kinds(led.tick())
