"""Who joins the ISR of a leader, and who falls out."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import LAG_MS, ME, ONE, TWO, Led, Log
from tidelog.broker.partitions.replication.messages import BrokerStatus


def test_a_follower_with_all_that_counts_joins():
    led = Led((ME, ONE), Log(*[4] * 10))
    led.fetch(TWO, 10)
    assert led.change.record.isr == (ME, ONE, TWO)
    assert led.change.added == {TWO: 102}
    assert led.change.mod_revision == led.revision
    assert led.change.record.partition_epoch == led.stored.partition_epoch + 1


def test_not_below_the_high_watermark():
    led = Led((ME, ONE))
    led.append(10)
    led.fetch(ONE, 10)
    led.fetch(TWO, 9)
    assert led.changes == []
    led.fetch(TWO, 10)
    assert led.change.record.isr == (ME, ONE, TWO)


def test_not_below_the_start_of_the_leaders_epoch():
    """A new leader's high watermark lags: below it the follower may lack what was committed."""
    led = Led((ME, ONE), Log(*[4] * 10, high_watermark=3))
    led.fetch(TWO, 9)
    assert led.changes == []
    led.fetch(TWO, 10)
    assert led.changes


def test_not_without_a_fetch_in_this_epoch():
    """A replica that left, was wiped and came back would join by the end that it once had."""
    led = Led((ME, ONE), Log(*[4] * 10))
    led.fetch(TWO, 10, leader_epoch=4)
    led.tick()
    assert led.changes == []


def test_not_with_the_log_end_from_before_it_left_the_replicas():
    led = Led((ME, ONE), Log(*[4] * 10))
    led.fetch(TWO, 10)
    led.refuse(led.change)
    led.store(replicas=(ME, ONE))
    led.store(replicas=(ME, ONE, TWO))
    led.append()
    led.fetch(ONE, 11)
    assert led.high_watermark == 11  # nobody waits for an end that is of the past


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(BrokerStatus(102, is_fenced=True), id="fenced"),
        pytest.param(BrokerStatus(102, is_stopping=True), id="stopping: KIP-841"),
        pytest.param(BrokerStatus(101), id="the leader knows an older registration: KIP-903"),
        pytest.param(None, id="not registered"),
    ],
)
def test_not_if_its_broker_may_not(status):
    led = Led((ME, ONE))
    led.brokers = {ME: BrokerStatus(100), ONE: BrokerStatus(101)} | (
        {TWO: status} if status else {}
    )
    led.see()
    led.fetch(TWO, 0)
    assert led.changes == []


def test_not_if_it_cannot_store():
    """The store would refuse the change, with each fetch anew."""
    led = Led((ME, ONE))
    led.rules = led.rules._replace(cannot_store=frozenset({TWO}))
    led.see()
    led.fetch(TWO, 0)
    assert led.changes == []
    led.rules = led.rules._replace(cannot_store=frozenset())
    led.see()
    led.fetch(TWO, 0)
    assert set(led.change.record.isr) == {ME, ONE, TWO}


def test_below_min_insync_it_must_be_caught_up_too():
    """KAFKA-19996: it would reach the frozen high watermark, join, and fall out again."""
    led = Led((ME,), min_insync=2)
    led.append(10)
    led.fetch(TWO, 5)
    assert led.changes == []
    led.fetch(TWO, 10)
    assert led.change.record.isr == (ME, TWO)


def test_one_change_at_a_time():
    led = Led((ME,), min_insync=1)
    led.fetch(ONE, 0)
    assert led.changes
    led.fetch(TWO, 0)
    assert led.changes == []


def test_one_that_reaches_the_end_of_its_fetch_before_was_caught_up_then():
    """Kafka's `Replica`: under steady appends no fetch reaches the end of its own moment."""
    led = Led()
    for _ in range(10):
        led.append()
        led.fetch(ONE, led.log.end - 1), led.fetch(TWO, led.log.end)
        assert led.tick(LAG_MS // 2) == []


def test_one_that_lags_for_too_long_falls_out():
    led = Led()
    led.append()
    led.fetch(ONE, 1)
    assert led.tick(LAG_MS) == []
    led.tick(1)
    assert led.change.record.isr == (ME, ONE)  # the one with the whole log stays, however long ago
    assert led.change.record.elr == ()


@pytest.mark.parametrize("flush", [False, True])
def test_an_idle_one_begins_to_lag_with_the_next_append(flush):
    """It asks once, and is answered when there is something to fetch: its last fetch is long ago."""
    led = Led(flush=flush)
    led.fetch(ONE, 0), led.fetch(TWO, 0)
    assert led.tick(10 * LAG_MS) == []
    led.append(flushed=flush)
    assert led.changes == []
    assert led.tick(LAG_MS) == []
    led.fetch(ONE, 1)
    led.tick(1)
    assert led.change.record.isr == (ME, ONE)


def test_an_idle_one_begins_to_lag_when_records_are_durable():
    led = Led((ME, ONE), flush=True)
    led.fetch(ONE, 0)
    led.append()
    assert led.tick(10 * LAG_MS) == []
    led.flush()
    assert led.tick(LAG_MS) == []
    led.tick(1)
    assert led.change.record.isr == (ME,)


def test_it_was_caught_up_at_that_fetch_not_at_this_one():
    led = Led((ME, ONE))
    led.append(5)
    led.fetch(ONE, 0)
    led.append(5)
    led.now_ms = LAG_MS - 1
    led.fetch(ONE, 5)
    assert led.tick(1) == []
    led.tick(1)
    assert led.change.record.isr == (ME,)


def test_one_that_fetches_but_comes_no_nearer_falls_out():
    led = Led((ME, ONE))
    led.append(10)
    for _ in range(4):
        led.now_ms += LAG_MS // 3
        led.append()
        led.fetch(ONE, 1)
    led.tick()
    assert led.change.record.isr == (ME,)


def test_who_leaves_below_min_insync_becomes_an_eligible_leader():
    """KIP-966: the high watermark stands still from now on, so it has all below."""
    led = Led()
    led.append()
    led.tick(LAG_MS + 1)
    assert led.change.record.isr == (ME,)
    assert led.change.record.elr == (ONE, TWO)


def test_the_elr_goes_when_the_isr_is_large_enough():
    led = Led((ME,), elr=(ONE,))
    led.fetch(TWO, 0)
    assert led.change.record.isr == (ME, TWO)
    assert led.change.record.elr == ()


def test_a_leader_that_was_elected_uncleanly_has_recovered_when_it_begins():
    """KIP-704."""
    led = Led((ME,), is_recovering=True)
    assert not led.change.record.is_recovering
    led.apply(led.change)
    assert led.tick() == []
