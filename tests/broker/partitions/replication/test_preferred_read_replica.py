"""From which replica a consumer should read: in sync, with its offset, and caught up most (KIP-392)."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import LAG_MS, ME, ONE, TWO, Led, Log
from tidelog.broker.partitions.replication.isr import preferred_read_replica

EARLIER = [4] * 10  # records of an earlier epoch
THREE = 3


def led_with(*fetches, isr=(ME, ONE, TWO, THREE)):
    """A leader with ten records whose followers have fetched: (broker, offset), in this order."""
    led = Led(isr, Log(*EARLIER), replicas=(ME, ONE, TWO, THREE))
    for broker, offset in fetches:
        led.fetch(broker, offset)
        led.now_ms += 1
    return led.leader


def test_the_only_one_near():
    leader = led_with((ONE, 10), (TWO, 10))
    assert preferred_read_replica(leader, [TWO], 5) == TWO
    assert preferred_read_replica(leader, [], 5) is None


def test_a_follower_counts_from_its_first_fetch_in_this_epoch_on():
    assert preferred_read_replica(led_with((ONE, 10)), [TWO], 0) is None


@pytest.mark.parametrize(("offset", "found"), [(0, ONE), (7, ONE), (8, None), (10, None)])
def test_its_log_reaches_the_offset(offset, found):
    assert preferred_read_replica(led_with((ONE, 7)), [ONE], offset) == found


def test_its_log_begins_before_the_offset():
    led = Led((ME, ONE), Log(*EARLIER))
    led.fetch(ONE, 10, log_start_offset=4)
    assert preferred_read_replica(led.leader, [ONE], 3) is None
    assert preferred_read_replica(led.leader, [ONE], 4) == ONE


def test_one_out_of_sync_would_keep_the_consumer_behind():
    leader = led_with((ONE, 10), (TWO, 10), isr=(ME, TWO))
    assert preferred_read_replica(leader, [ONE], 0) is None
    assert preferred_read_replica(leader, [ONE, TWO], 0) == TWO


def test_of_several_the_longest_log_then_the_last_caught_up_then_the_largest_id():
    assert preferred_read_replica(led_with((ONE, 10), (TWO, 9)), [ONE, TWO], 0) == ONE
    assert preferred_read_replica(led_with((TWO, 10), (ONE, 10)), [ONE, TWO], 0) == ONE
    led = Led((ME, ONE, TWO), Log(*EARLIER))
    for broker in (TWO, ONE):
        led.fetch(broker, 10)  # at the same time
    assert preferred_read_replica(led.leader, [ONE, TWO], 0) == TWO


def test_one_that_has_fallen_out_is_not_preferred_any_more():
    led = Led((ME, ONE, TWO), Log(*EARLIER))
    led.fetch(ONE, 10)
    led.fetch(TWO, 10)
    led.append()
    led.fetch(ONE, 11)
    led.tick(LAG_MS + 1)
    led.apply(led.change)
    assert TWO not in led.leader.isr
    assert preferred_read_replica(led.leader, [TWO], 0) is None
