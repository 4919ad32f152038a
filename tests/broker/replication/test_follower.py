"""A follower's fetches and what it does with answers."""

from __future__ import annotations

import pytest

from tests.broker.replication.scene import EPOCH, ONE, Log, record
from tidelog.broker.replication.follower import RETRY_MS, Follower
from tidelog.broker.replication.messages import (
    AdvanceHighWatermark,
    Append,
    Diverging,
    FetchAnswer,
    FetchRequest,
    Flush,
    RaiseLogStart,
    RestartAt,
    Truncate,
    WaitBefore,
)
from tidelog.protocol.errors import ErrorCode

GOOD = ErrorCode.NONE


def asked(log, **fields):
    follower = Follower(ONE, 101, record(), **fields)
    return follower, follower.next_fetch(log.as_follower())


def answered(log, answer):
    follower, request = asked(log)
    return follower.on_answer(request, answer, log.as_follower())


def test_it_asks_at_its_own_end_and_names_what_fences_it():
    log = Log(1, 1, 3, 3, start=10, high_watermark=12)
    _, request = asked(log)
    assert request == FetchRequest(
        replica=ONE,
        broker_epoch=101,
        leader_epoch=EPOCH,
        fetch_offset=14,
        last_fetched_epoch=3,
        log_start_offset=10,
        high_watermark=12,
    )


def test_an_empty_log_has_no_epoch():
    assert asked(Log(start=7))[1].last_fetched_epoch == -1


def test_the_high_watermark_is_the_leaders_but_within_its_own_log():
    log = Log(1, 1, 1)
    follower, request = asked(log)
    answer = FetchAnswer(GOOD, EPOCH, 10, 0, 10)
    assert follower.on_answer(request, answer, log.as_follower()) == [Append()]
    log.append(1, 3)
    assert follower.on_appended(answer, log.as_follower()) == [AdvanceHighWatermark(4)]


def test_the_high_watermark_never_goes_back():
    """A new leader's lags behind."""
    log = Log(1, 1, 1, high_watermark=3)
    follower, _ = asked(log)
    assert follower.on_appended(FetchAnswer(GOOD, EPOCH, 1, 0, 3), log.as_follower()) == []


def test_the_log_start_follows_the_leaders_up_to_the_high_watermark():
    log = Log(1, 1, 1, 1)
    follower, _ = asked(log)
    answer = FetchAnswer(GOOD, EPOCH, 3, 9, 10)
    assert follower.on_appended(answer, log.as_follower()) == [
        AdvanceHighWatermark(3),
        RaiseLogStart(3),
    ]


def test_the_log_start_is_not_held_by_a_new_leaders_high_watermark():
    log = Log(1, 1, 1, 1, high_watermark=3)
    follower, _ = asked(log)
    answer = FetchAnswer(GOOD, EPOCH, 1, 2, 10)
    assert follower.on_appended(answer, log.as_follower()) == [RaiseLogStart(2)]


def test_an_answer_that_says_truncate_sets_no_high_watermark():
    """KAFKA-14704: the follower would serve records that are no part of the leader's log."""
    log = Log(1, 1, 2, 2)
    answer = FetchAnswer(GOOD, EPOCH, 4, 0, 10, Diverging(1, 3))
    assert answered(log, answer) == [Truncate(2, is_below_high_watermark=False)]


@pytest.mark.parametrize(
    ("epochs", "diverging", "offset"),
    [
        pytest.param((1, 1, 1, 1), Diverging(1, 2), 2, id="the leader's end: KIP-101"),
        pytest.param((1, 1, 2, 2), Diverging(1, 4), 2, id="the own end of that epoch: KIP-279"),
        pytest.param((1, 1, 4, 4), Diverging(3, 3), 2, id="an epoch that is not here"),
        pytest.param((3, 3, 4), Diverging(1, 5), 0, id="an epoch before all of this log"),
    ],
)
def test_it_truncates_to_the_end_that_both_may_share(epochs, diverging, offset):
    answer = FetchAnswer(GOOD, EPOCH, 0, 0, 10, diverging)
    assert answered(Log(*epochs), answer) == [Truncate(offset, is_below_high_watermark=False)]


def test_an_epoch_that_it_began_as_leader_without_a_batch_goes_too():
    """Kafka's `UnifiedLog.truncateTo`: the next batches there are of another epoch."""
    log = Log(1, 1)
    log.begin(4)
    assert answered(log, FetchAnswer(GOOD, EPOCH, 0, 0, 9, Diverging(3, 5))) == [Truncate(2, False)]
    log.truncate(2)
    assert asked(log)[1].last_fetched_epoch == 1


def test_a_truncation_of_what_was_committed_says_so():
    """Only an unclean election leads to that."""
    log = Log(1, 1, 1, high_watermark=3)
    answer = FetchAnswer(GOOD, EPOCH, 0, 0, 1, Diverging(1, 1))
    assert answered(log, answer) == [Truncate(1, is_below_high_watermark=True)]


def test_out_of_range_because_the_leader_has_less():
    """KAFKA-7414: never fatal."""
    answer = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, EPOCH, 0, 0, 2)
    assert answered(Log(1, 1, 1), answer) == [Truncate(2, is_below_high_watermark=False)]


def test_out_of_range_because_the_leader_starts_later():
    """KAFKA-9491: the high watermark of the empty log is where it starts."""
    answer = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, EPOCH, 60, 50, 70)
    assert answered(Log(1, 1, 1), answer) == [RestartAt(50)]


def test_records_that_the_leader_can_no_longer_compare_are_dropped_before_an_append():
    """The leader has deleted them, and forgotten their epochs: they may be another leader's."""
    log = Log(1, 1, 1)
    answer = FetchAnswer(GOOD, EPOCH, 9, 3, 10)
    assert answered(log, answer) == [RestartAt(3), Append()]


def test_records_that_the_leader_has_compared_stay_when_it_deletes_all():
    """With them the state of producers would go."""
    log = Log(1, 1, 1)
    follower, request = asked(log)
    before = FetchAnswer(GOOD, EPOCH, 3, 2, 3)
    assert follower.on_answer(request, before, log.as_follower()) == [Append()]
    request = follower.next_fetch(log.as_follower())
    after = FetchAnswer(GOOD, EPOCH, 3, 3, 3)
    assert follower.on_answer(request, after, log.as_follower()) == [Append()]


def test_a_log_without_records_stays():
    assert answered(Log(start=3), FetchAnswer(GOOD, EPOCH, 9, 3, 10)) == [Append()]


def test_out_of_range_no_more():
    answer = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, EPOCH, 0, 0, 9)
    assert answered(Log(1, 1, 1), answer) == [WaitBefore(RETRY_MS)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_other_errors_change_nothing(error):
    assert answered(Log(1, 1, 1), FetchAnswer(error, EPOCH)) == [WaitBefore(RETRY_MS)]


def test_an_answer_comes_once_and_to_the_last_request():
    log = Log(1, 1, 1)
    follower, first = asked(log)
    answer = FetchAnswer(GOOD, EPOCH, 0, 0, 10)
    assert follower.on_answer(first, answer, log.as_follower()) == [Append()]
    assert follower.on_answer(first, answer, log.as_follower()) == []
    log.append(1, 3)
    follower.next_fetch(log.as_follower())
    assert follower.on_answer(first, answer, log.as_follower()) == []


def test_it_counts_when_it_has_flushed():
    """flush.messages=1: its next fetch acknowledges, so it waits for the flush."""
    log = Log(1, 1, 1)
    follower, _ = asked(log, needs_flush=True)
    log.append(1, 3)
    answer = FetchAnswer(GOOD, EPOCH, 0, 0, 4)
    assert follower.on_appended(answer, log.as_follower()) == [Flush()]
    assert follower.next_fetch(log.as_follower()) is None
    log.flushed = 4
    assert follower.next_fetch(log.as_follower()).fetch_offset == 4
