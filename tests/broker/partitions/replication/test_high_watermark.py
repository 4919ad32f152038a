"""The leader's high watermark: who counts, and when it stands still."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import (
    EPOCH,
    LAG_MS,
    ME,
    ONE,
    TWO,
    Led,
    Log,
    advanced,
    kinds,
)
from tidelog.broker.partitions.replication.messages import (
    AdvanceHighWatermark,
    BrokerStatus,
    WakeFetches,
)


def test_it_is_the_smallest_end_in_the_isr():
    led = Led()
    led.append(10)
    led.fetch(ONE, 10)
    assert led.high_watermark == 0
    led.fetch(TWO, 7)
    assert led.actions == [AdvanceHighWatermark(7), WakeFetches()]


def test_a_new_leader_knows_no_followers_end():
    """Members of the ISR that have not fetched in this epoch hold it where it is."""
    led = Led(log=Log(*[4] * 10, high_watermark=6))
    led.append(5)
    led.fetch(ONE, 15)
    assert led.high_watermark == 6
    led.fetch(TWO, 15)
    assert led.high_watermark == 15


def test_a_leader_alone_in_the_isr_advances_at_once():
    led = Led((ME,), Log(*[4] * 10, high_watermark=6), min_insync=1)
    assert advanced(led.actions) == 10
    led.append()
    assert advanced(led.actions) == 11


def test_a_fetch_of_a_registration_that_the_leader_has_not_heard_of_does_not_count_yet():
    """The follower may have stopped uncleanly, and have left the ISR before it registered anew."""
    led = Led((ME, ONE), min_insync=2)
    led.append(10)
    led.fetch(ONE, 4)
    led.fetch(ONE, 10, broker_epoch=200)
    assert led.high_watermark == 4
    led.store(isr=(ME,))
    led.fetch(ONE, 10, broker_epoch=200)
    assert led.high_watermark == 4, "two replicas have it, and one of them would be elected"


def test_a_fetch_counts_when_the_leader_hears_of_its_registration():
    led = Led((ME, ONE), min_insync=2)
    led.append(10)
    del led.brokers[ONE]
    led.see()
    led.fetch(ONE, 10, broker_epoch=200)
    assert led.high_watermark == 0
    led.brokers[ONE] = BrokerStatus(200)
    led.see()
    assert led.high_watermark == 10


def test_it_never_goes_back():
    led = Led()
    led.append(10)
    led.fetch(ONE, 10), led.fetch(TWO, 10)
    led.fetch(TWO, 4)
    assert led.actions == []
    assert led.high_watermark == 10


@pytest.mark.parametrize("isr", [(ME,), (ME, ONE)])
def test_it_stands_still_below_min_insync(isr):
    """KIP-966, KAFKA-15583: a record below it would be on too few replicas."""
    led = Led(isr, min_insync=3)
    led.append(10)
    led.fetch(ONE, 10)
    assert led.high_watermark == 0


def test_min_insync_is_no_more_than_there_are_replicas():
    led = Led((ME,), replicas=(ME,), min_insync=2)
    led.append(3)
    assert led.high_watermark == 3


def test_it_stands_still_while_there_is_an_elr_whatever_the_setting_says():
    """KIP-966: the members of the ELR were promised to have everything below it."""
    led = Led((ME,), elr=(ONE,), min_insync=1)
    led.append(3)
    assert led.high_watermark == 0
    led.store(elr=())
    assert led.high_watermark == 3


def test_a_record_that_only_the_leader_has_is_not_visible_after_the_isr_has_shrunk_to_it():
    """KIP-966's last replica standing: it may lose these records, and come back as the leader."""
    led = Led((ME, ONE))
    led.append(5)
    led.fetch(ONE, 5)
    led.store(isr=(ME,), elr=(ONE,))
    led.append(5)
    led.tick(LAG_MS)
    assert led.high_watermark == 5


def test_a_follower_that_is_caught_up_holds_it_before_it_is_in_the_isr():
    """Else it would never reach the high watermark of a busy partition."""
    led = Led((ME, ONE), Log(*[4] * 5))
    led.fetch(TWO, 5)  # asks to join; the change is refused for now
    led.refuse(led.change)
    led.append()
    led.fetch(ONE, 6)
    assert led.high_watermark == 5
    led.fetch(TWO, 6)
    assert led.high_watermark == 6


@pytest.mark.parametrize(
    "status", [BrokerStatus(102, is_fenced=True), BrokerStatus(102, is_stopping=True), None]
)
def test_one_that_may_not_join_holds_nothing(status):
    """KAFKA-15021: a broker that stops would hold it for 30 s."""
    led = Led((ME, ONE))
    led.brokers = {**led.brokers, TWO: status} if status else {ONE: led.brokers[ONE]}
    led.see()
    led.fetch(TWO, 0)
    led.append()
    led.fetch(ONE, 1)
    assert led.high_watermark == 1


def test_one_that_cannot_store_holds_nothing_once_it_is_out_of_the_isr():
    """Its log has failed or its disk is full: it was caught up a moment ago, and never will be again."""
    led = Led(log=Log(*[4] * 5))
    led.fetch(ONE, 5)
    led.fetch(TWO, 5)
    led.append()
    led.fetch(ONE, 6)
    assert led.high_watermark == 5
    led.rules = led.rules._replace(cannot_store=frozenset({TWO}))
    led.see()
    led.tick(1)
    assert led.high_watermark == 5, "which waits for the ISR"
    led.store(isr=(ME, ONE))
    assert led.high_watermark == 6


def test_time_frees_it_from_a_follower_that_is_not_in_the_isr():
    led = Led((ME, ONE))
    led.fetch(TWO, 0)
    led.refuse(led.change)
    led.append()
    led.fetch(ONE, 1)
    assert led.high_watermark == 0
    led.now_ms = LAG_MS + 1
    led.fetch(ONE, 1)
    assert led.high_watermark == 1


def test_after_flush_only_what_is_flushed_counts():
    """flush.messages=1: a follower is given no more, and the leader counts with no more."""
    led = Led(flush=True)
    led.append(3)
    assert led.fetch(ONE, 0).log_end_offset == 0
    led.fetch(ONE, 0), led.fetch(TWO, 0)
    led.flush()
    assert WakeFetches in kinds(led.actions)
    assert led.fetch(ONE, 0).log_end_offset == 3
    led.append()
    led.fetch(ONE, 3), led.fetch(TWO, 3)
    assert led.high_watermark == 3


def test_after_flush_a_leader_alone_counts_with_what_is_flushed():
    led = Led((ME,), replicas=(ME,), flush=True)
    led.append(3)
    assert led.high_watermark == 0
    led.flush()
    assert led.high_watermark == 3


def test_the_answer_has_the_high_watermark_after_the_fetch():
    led = Led((ME, ONE))
    led.append(3)
    assert led.fetch(ONE, 3).high_watermark == 3


def test_a_parked_fetch_wakes_for_records_and_for_the_high_watermark():
    """KIP-1166, KAFKA-8443: else it would hear of the high watermark up to 500 ms late."""
    led = Led()
    led.append(3)
    parked = led.request(ONE, 3)
    led.fetch(ONE, 3)
    assert not led.leader.has_updates(parked)
    assert not led.leader.has_updates(
        led.request(ONE, 5, high_watermark=1)
    )  # ahead of a new leader
    led.fetch(TWO, 3)
    assert led.leader.has_updates(parked)
    assert not led.leader.has_updates(parked._replace(high_watermark=3))
    led.append()
    assert led.leader.has_updates(parked._replace(high_watermark=3))


def test_the_answer_to_a_parked_fetch_is_no_sign_of_life():
    led = Led()
    parked = led.request(ONE, 0)
    led.fetch(ONE, 0)
    led.append()
    led.now_ms = LAG_MS + 1
    assert led.leader.on_wake(parked, led.now_ms).log_end_offset == 1
    led.tick()
    assert led.change.record.isr == (ME,)
    assert led.leader.on_wake(parked._replace(leader_epoch=EPOCH - 1), led.now_ms).error
