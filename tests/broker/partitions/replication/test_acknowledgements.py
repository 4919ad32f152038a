"""How appends are answered: acks=all, min.insync.replicas, and the end of a leader epoch."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import EPOCH, LEASE_MS, ME, ONE, TWO, Led, Log
from tidelog.broker.partitions.replication.high_watermark import low_watermark
from tidelog.protocol.errors import (
    ErrorCode,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
)

DEADLINE_MS = 30_000


def acknowledgement(led, end_offset):
    return led.leader.acknowledgement(end_offset, led.now_ms, DEADLINE_MS)


def test_acks_all_waits_for_the_high_watermark():
    led = Led()
    led.append(5)
    led.fetch(ONE, 5)
    assert acknowledgement(led, 5) is None
    led.fetch(TWO, 4)
    assert acknowledgement(led, 5) is None
    led.fetch(TWO, 5)
    assert acknowledgement(led, 5) == ErrorCode.NONE


def test_below_min_insync_nothing_is_appended_with_acks_all():
    led = Led((ME,), min_insync=2)
    with pytest.raises(NotEnoughReplicas, match="the ISR has 1 members"):
        led.leader.check_append(-1, 0)
    led.leader.check_append(1, 0)
    led.leader.check_append(0, 0)


def test_the_isr_became_too_small_after_the_append():
    led = Led((ME, ONE))
    led.append(5)
    led.fetch(ONE, 5)
    led.store(isr=(ME,), elr=(ONE,))
    assert acknowledgement(led, 5) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_one_that_waits_when_the_isr_becomes_too_small_times_out():
    """KIP-966: the high watermark stands still, so it cannot be acknowledged."""
    led = Led((ME, ONE))
    led.append(5)
    led.store(isr=(ME,), elr=(ONE,))
    assert acknowledgement(led, 5) is None
    for led.now_ms in (DEADLINE_MS, DEADLINE_MS + 1):
        assert acknowledgement(led, 5) == ErrorCode.REQUEST_TIMED_OUT


def test_the_end_of_the_epoch_ends_the_wait():
    led = Led((ME, ONE))
    led.append(5)
    led.store(leader=ONE, leader_epoch=EPOCH + 1)
    assert acknowledgement(led, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(NotLeaderOrFollower):
        led.leader.check_append(1, 0)
    assert led.fetch(ONE, 5).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.high_watermark == 0


def test_a_leader_that_lost_its_lease_answers_nothing():
    led = Led((ME, ONE))
    led.append(5)
    led.fetch(ONE, 5)
    led.lease.on_lost()
    assert acknowledgement(led, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.leader.on_wake(led.request(ONE, 5), 0).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(NotLeaderOrFollower):
        led.leader.check_leading(0)
    (step_down,) = led.tick()
    assert "lease" in step_down.reason


def test_a_leader_that_was_paused_past_its_lease_steps_down_before_it_answers():
    led = Led((ME, ONE))
    led.append(5)
    led.now_ms = LEASE_MS
    assert led.fetch(ONE, 5).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.actions
    assert led.high_watermark == 0
    with pytest.raises(NotLeaderOrFollower):
        led.leader.check_append(-1, led.now_ms)


def test_the_end_is_unknown_until_the_high_watermark_reaches_the_leaders_epoch():
    """KIP-207: an earlier leader may have shown a larger end."""
    led = Led(log=Log(*[4] * 10, high_watermark=6))
    with pytest.raises(OffsetNotAvailable):
        led.leader.check_end_known(0)
    led.fetch(ONE, 10), led.fetch(TWO, 10)
    led.leader.check_end_known(0)
    led.append()
    led.leader.check_end_known(0)


def test_delete_records_waits_for_the_live_replicas():
    led = Led(log=Log(*[4] * 10, high_watermark=10))
    led.leader.on_log_start(8)
    led.fetch(ONE, 10, log_start_offset=8), led.fetch(TWO, 10, log_start_offset=3)
    assert low_watermark(led.leader) == 3
    led.brokers = {broker: status for broker, status in led.brokers.items() if broker != TWO}
    led.see()
    assert low_watermark(led.leader) == 8
