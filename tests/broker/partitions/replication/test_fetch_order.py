"""What a leader refuses a fetch for, and in which order (Kafka's Partition.fetchRecords)."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import EPOCH, ONE, TWO, Led, Log
from tidelog.broker.partitions.replication.messages import Diverging
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
def led():
    """The leader's log: offsets 10 to 19, of the epochs 1, 3 and 5."""
    led = Led(log=Log(1, 1, 1, 1, 3, 3, 3, 3, start=10))
    led.append(2)
    return led


# the broker, its fetch, and why it is refused
REFUSED = {
    # KIP-320: else a follower of an older epoch would take over a high watermark.
    "an older leader epoch": (ONE, {"leader_epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
    # KIP-320: the leader has to learn first that it may be none any more.
    "a newer leader epoch": (ONE, {"leader_epoch": EPOCH + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    # It asks again: the leader's assignment may be the older one.
    "no replica, in this epoch": (3, {"leader_epoch": EPOCH}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "no replica, without an epoch": (3, {"leader_epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "no replica, in an older epoch": (
        3, {"leader_epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
    "after the log end": (ONE, {"offset": 21}, ErrorCode.OFFSET_OUT_OF_RANGE),
    "after the last epoch": (
        ONE, {"last_fetched_epoch": EPOCH + 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refused(led, why):
    broker, fields, error = REFUSED[why]
    answer = led.fetch(broker, **{"offset": 12, **fields})
    assert (answer.error, answer.diverging) == (error, None)


def test_an_offset_below_the_log_start_is_out_of_range_even_if_epochs_diverge(led):
    answer = led.fetch(ONE, 9, last_fetched_epoch=2)
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert answer.diverging is None
    assert (answer.log_start_offset, answer.log_end_offset) == (10, 20)


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        pytest.param(3, 18, None, id="the same history"),
        pytest.param(3, 19, Diverging(3, 18), id="the epoch ended earlier: KIP-101"),
        pytest.param(2, 14, Diverging(1, 14), id="an epoch that the leader never had: KIP-279"),
        pytest.param(4, 18, Diverging(3, 18), id="the same, at the end"),
        pytest.param(1, 12, None, id="behind"),
    ],
)
def test_diverging_epochs_are_told_with_the_offset(led, last_epoch, offset, diverging):
    answer = led.fetch(ONE, offset, last_fetched_epoch=last_epoch)
    assert (answer.error, answer.diverging) == (ErrorCode.NONE, diverging)


def test_a_diverging_fetch_leaves_the_followers_state(led):
    """Its offset says nothing about this leader's records."""
    led.fetch(TWO, 20, last_fetched_epoch=EPOCH)
    led.fetch(ONE, 20, last_fetched_epoch=4)
    assert led.high_watermark == 10


def test_a_fetch_of_an_earlier_registration_is_refused_and_counts_for_nothing(led):
    """KIP-903: the broker has started anew, and may have lost the end of its log."""
    led.fetch(TWO, 20)
    assert led.fetch(ONE, 20, broker_epoch=100).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.high_watermark == 10
    assert led.fetch(ONE, 20, broker_epoch=101).error == ErrorCode.NONE
    assert led.high_watermark == 20


def test_divergence_is_told_before_the_registration_is_looked_at(led):
    assert led.fetch(ONE, 19, last_fetched_epoch=3, broker_epoch=1).diverging == Diverging(3, 18)


def test_an_answer_with_an_error_has_no_offsets(led):
    answer = led.fetch(ONE, 12, leader_epoch=EPOCH - 1)
    assert (answer.high_watermark, answer.log_start_offset, answer.log_end_offset) == (-1, -1, -1)
    assert answer.leader_epoch == EPOCH
