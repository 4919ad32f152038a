"""A follower's fetches and what it does with answers."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.scene import EPOCH, ME, ONE, Log, kinds, record
from tidelog.broker.partitions.replication.follower import RETRY_MS, Follower
from tidelog.broker.partitions.replication.messages import (
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


OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
# the epochs of its records, and its high watermark | the leader's answer -> what it does
ANSWERS = {
    "records are appended first": ((1, 1, 1), 0, FetchAnswer(GOOD, EPOCH, 10, 0, 10), [Append()]),
    # KAFKA-14704: else it would serve records that are no part of the leader's log.
    "an answer that says truncate sets no high watermark": (
        (1, 1, 2, 2), 0, FetchAnswer(GOOD, EPOCH, 4, 0, 10, Diverging(1, 3)), [Truncate(2, False)]),
    "to the leader's end of the epoch: KIP-101": (
        (1, 1, 1, 1), 0, FetchAnswer(GOOD, EPOCH, 0, 0, 10, Diverging(1, 2)), [Truncate(2, False)]),
    "to its own end of that epoch: KIP-279": (
        (1, 1, 2, 2), 0, FetchAnswer(GOOD, EPOCH, 0, 0, 10, Diverging(1, 4)), [Truncate(2, False)]),
    "of an epoch that is not here": (
        (1, 1, 4, 4), 0, FetchAnswer(GOOD, EPOCH, 0, 0, 10, Diverging(3, 3)), [Truncate(2, False)]),
    "after all of this log": (
        (1, 1, 1), 0, FetchAnswer(GOOD, EPOCH, 0, 0, 10, Diverging(4, 2)), [Truncate(2, False)]),
    "before all of this log": (
        (3, 3, 4), 0, FetchAnswer(GOOD, EPOCH, 0, 0, 10, Diverging(1, 5)), [Truncate(0, False)]),
    "of what was committed, as after an unclean election": (
        (1, 1, 1), 3, FetchAnswer(GOOD, EPOCH, 0, 0, 1, Diverging(1, 1)), [Truncate(1, True)]),
    "out of range, as the leader has less: never fatal (KAFKA-7414)": (
        (1, 1, 1), 0, FetchAnswer(OUT_OF_RANGE, EPOCH, 0, 0, 2), [Truncate(2, False)]),
    # KAFKA-9491: the high watermark of the empty log is where it starts.
    "out of range, as the leader starts later": (
        (1, 1, 1), 0, FetchAnswer(OUT_OF_RANGE, EPOCH, 60, 50, 70), [RestartAt(50, 3)]),
    **{
        f"out of range no more: the leader has {start} to {end}": (
            (1, 1, 1), 0, FetchAnswer(OUT_OF_RANGE, EPOCH, 0, start, end), [WaitBefore(RETRY_MS)])
        for start, end in ((0, 9), (0, 3), (3, 9))
    },
    # The leader has deleted them, and forgotten their epochs: they may be another leader's.
    "records that the leader can no longer compare are dropped before an append": (
        (1, 1, 1), 0, FetchAnswer(GOOD, EPOCH, 9, 3, 10), [RestartAt(3, 3), Append()]),
    **{
        f"{error.name} changes nothing": (
            (1, 1, 1), 0, FetchAnswer(error, EPOCH), [WaitBefore(RETRY_MS)])
        for error in (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.KAFKA_STORAGE_ERROR,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
def test_answers(case):
    epochs, high_watermark, answer, actions = ANSWERS[case]
    done = answered(Log(*epochs, high_watermark=high_watermark), answer)
    assert (kinds(done), done) == (kinds(actions), actions)


# where its log starts, and who is in sync | the leader's answer -> what it does
COMPACTED = {
    "a cut before what replaced the rest: it is copied again": (
        0, (ME,), FetchAnswer(GOOD, EPOCH, 0, 0, 9, Diverging(1, 3)), [RestartAt(0, 3)]),
    "the leader has less": (0, (ME,), FetchAnswer(OUT_OF_RANGE, EPOCH, 0, 0, 3), [RestartAt(0, 3)]),
    "the leader has less than begins here": (
        2, (ME,), FetchAnswer(OUT_OF_RANGE, EPOCH, 0, 0, 1), [RestartAt(1, 1)]),
    "the same so far, and the leader lacks what replaced the rest": (
        0, (ME,), FetchAnswer(GOOD, EPOCH, 0, 0, 6), [RestartAt(0, 6)]),
    "the leader has what replaced the rest": (
        0, (ME,), FetchAnswer(GOOD, EPOCH, 0, 0, 7), [Append()]),
    "the leader does not say where it ends": (0, (ME,), FetchAnswer(GOOD, EPOCH, 0, 0), [Append()]),
    "nothing is cut but an epoch without a batch": (
        0, (ME,), FetchAnswer(GOOD, EPOCH, 0, 0, 9, Diverging(1, 7)), [Truncate(5, False)]),
    "who is in sync has all that is committed, and keeps it": (
        0, (ME, ONE), FetchAnswer(GOOD, EPOCH, 0, 0, 9, Diverging(1, 3)), [Truncate(3, False)]),
}  # fmt: skip


@pytest.mark.parametrize("case", COMPACTED)
def test_what_compaction_has_removed_is_not_lost_with_what_replaced_it(case):
    """An unclean election: the records that have replaced others are gone with the last leader."""
    start, isr, answer, actions = COMPACTED[case]
    log = Log(*[1] * (5 - start), start=start)
    log.gaps_end = 7
    follower = Follower(ONE, 101, record(isr))
    request = follower.next_fetch(log.as_follower())
    assert follower.on_answer(request, answer, log.as_follower()) == actions


# how many records, its high watermark | the leader's high watermark, log start and end -> what it does
APPENDED = {
    "the high watermark is the leader's but within its own log": (
        4, 0, (10, 0, 10), [AdvanceHighWatermark(4)]),
    "it never goes back: a new leader's lags behind": (3, 3, (1, 0, 3), []),
    "the log start follows the leader's up to the high watermark": (
        4, 0, (3, 9, 10), [AdvanceHighWatermark(3), RaiseLogStart(3)]),
    "and is not held by a new leader's high watermark": (4, 3, (1, 2, 10), [RaiseLogStart(2)]),
}  # fmt: skip


@pytest.mark.parametrize("case", APPENDED)
def test_after_an_append(case):
    count, high_watermark, offsets, actions = APPENDED[case]
    log = Log(*[1] * count, high_watermark=high_watermark)
    log.flushed = 0  # for which nobody waits here
    follower, _ = asked(log)
    done = follower.on_appended(FetchAnswer(GOOD, EPOCH, *offsets), log.as_follower())
    assert (kinds(done), done) == (kinds(actions), actions)


def test_an_epoch_that_it_began_as_leader_without_a_batch_goes_too():
    """Kafka's `UnifiedLog.truncateTo`: the next batches there are of another epoch."""
    log = Log(1, 1)
    log.begin(4)
    assert answered(log, FetchAnswer(GOOD, EPOCH, 0, 0, 9, Diverging(3, 5))) == [Truncate(2, False)]
    log.truncate(2)
    assert asked(log)[1].last_fetched_epoch == 1


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
    assert kinds(follower.on_appended(answer, log.as_follower())) == [Flush]
    assert follower.next_fetch(log.as_follower()) is None
    log.flushed = 4
    assert follower.next_fetch(log.as_follower()).fetch_offset == 4
