"""One transactional id: what every request gets in every state, what is written, and what is sent."""

from __future__ import annotations

import pytest

from tidelog.broker.coordinators.transactions.messages import Answer, Now, SendMarkers, Store, new
from tidelog.broker.coordinators.transactions.transaction import Transaction
from tidelog.protocol.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaStorageError,
    ProducerFenced,
    TransactionAbortable,
)
from tidelog.protocol.transaction_log import Metadata, ProducerIdAndEpoch, State

PID, EPOCH, NEW_ID = 7, 5, 99
ME = ProducerIdAndEpoch(PID, EPOCH)
A, B = ("a", 0), ("b", 3)
NOW = Now(1_000_000, 500)
LATER = Now(1_000_050, 550)
WEEK = 7 * 86_400_000
LAST = 32_766

EMPTY, ONGOING, DEAD = State.EMPTY, State.ONGOING, State.DEAD
PREPARE_COMMIT, PREPARE_ABORT = State.PREPARE_COMMIT, State.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = State.COMPLETE_COMMIT, State.COMPLETE_ABORT
STABLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
ALL = (EMPTY, ONGOING, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT)

STATE_51, FENCED_90, INVALID_48 = ConcurrentTransactions, ProducerFenced, InvalidTxnState
MAPPING_49 = InvalidProducerIdMapping


def at(state, *, version=2, epoch=EPOCH, **more):
    """A transaction in a state, with nothing pending."""
    has_partitions = state in (ONGOING, *PREPARED)
    metadata = Metadata(
        PID,
        epoch,
        60_000,
        state,
        frozenset({A, B} if has_partitions else ()),
        NOW.wall_ms,
        NOW.wall_ms if has_partitions else -1,
    )._replace(**more)
    return Transaction("id", metadata, NOW, version=version)


def store(actions):
    """The metadata of the one write that is asked for."""
    (action,) = actions
    assert isinstance(action, Store)
    return action.metadata


def answer(actions):
    """The outcome of the one answer."""
    (action,) = actions
    assert isinstance(action, Answer)
    assert action.ticket == "t"
    return action.outcome


def init(transaction, known=None, new_id=NEW_ID):
    """A request for a producer id and epoch."""
    return transaction.init(known, 30_000, new_id, LATER, "t")


def end(transaction, producer=ME, version=2, *, commit, new_id=NEW_ID):
    """A request to commit or to abort."""
    return transaction.end(producer, version, new_id, LATER, "t", is_commit=commit)


def add(transaction, *partitions, producer=ME, version=2):
    """A request to add partitions."""
    return transaction.add(producer, partitions or (A,), version, LATER, "t")


def untouched(transaction, error, call):
    """A call that raises, and changes nothing."""
    before, pending = transaction.metadata, transaction.pending_state
    with pytest.raises(error):
        call()
    assert (transaction.metadata, transaction.pending_state) == (before, pending)


# -- InitProducerId ---------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [None, ProducerIdAndEpoch(1234, 17)])
def test_an_id_that_was_never_seen_gets_epoch_0_whatever_the_producer_says(known):
    transaction = Transaction("id", new(PID, 60_000, NOW), NOW, version=2)
    assert transaction.is_new
    written = store(init(transaction, known))
    assert written[:5] == (PID, 0, 30_000, EMPTY, frozenset())
    assert answer(transaction.stored(LATER)) == (PID, 0)
    assert not transaction.is_new


@pytest.mark.parametrize("state", STABLE)
def test_init_gives_the_next_epoch_and_forgets_the_last_transaction(state):
    transaction = at(state)
    written = store(init(transaction))
    assert written == Metadata(PID, EPOCH + 1, 30_000, EMPTY, frozenset(), LATER.wall_ms, -1)
    assert transaction.pending_state is EMPTY
    assert transaction.metadata.epoch == EPOCH
    assert answer(transaction.stored(LATER)) == (PID, EPOCH + 1)


@pytest.mark.parametrize("state", STABLE)
def test_init_with_the_current_epoch_bumps_it_and_lets_the_call_be_retried(state):
    transaction = at(state)
    assert store(init(transaction, ME)).last_epoch == EPOCH
    assert answer(transaction.stored(LATER)) == (PID, EPOCH + 1)
    for _ in range(2):
        assert store(init(transaction, ME)).epoch == EPOCH + 1
        assert answer(transaction.stored(LATER)) == (PID, EPOCH + 1)


@pytest.mark.parametrize("state", STABLE)
@pytest.mark.parametrize(
    "known",
    [
        ProducerIdAndEpoch(8, EPOCH),
        ProducerIdAndEpoch(PID, EPOCH - 1),
        ProducerIdAndEpoch(PID, EPOCH + 1),
    ],
)
def test_init_fences_a_producer_with_another_id_or_epoch(state, known):
    transaction = at(state)
    untouched(transaction, FENCED_90, lambda: init(transaction, known))


def test_a_producer_that_comes_without_an_id_fences_the_retry_of_another():
    transaction = at(EMPTY)
    init(transaction, ME)
    transaction.stored(LATER)
    init(transaction)
    transaction.stored(LATER)
    untouched(transaction, FENCED_90, lambda: init(transaction, ME))


@pytest.mark.parametrize("state", STABLE)
@pytest.mark.parametrize("epoch", [LAST, LAST + 1])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_new_producer_id_is_given_when_the_epochs_have_run_out(state, epoch, is_known):
    transaction = at(state, epoch=epoch)
    assert transaction.is_exhausted
    known = ProducerIdAndEpoch(PID, epoch) if is_known else None
    written = store(init(transaction, known))
    assert (written.producer_id, written.epoch, written.previous_id) == (NEW_ID, 0, PID)
    assert written.last_epoch == (epoch if is_known else -1)
    assert answer(transaction.stored(LATER)) == (NEW_ID, 0)
    if is_known:  # a retry names the old id, and is not fenced
        init(transaction, known)
        assert answer(transaction.stored(LATER)) == (NEW_ID, 0)
    else:
        untouched(transaction, FENCED_90, lambda: init(transaction, ProducerIdAndEpoch(PID, epoch)))


def test_init_with_another_epoch_is_fenced_when_the_epochs_have_run_out():
    transaction = at(COMPLETE_ABORT, epoch=LAST)
    untouched(transaction, FENCED_90, lambda: init(transaction, ProducerIdAndEpoch(PID, 3)))


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("known", [None, ME, ProducerIdAndEpoch(PID, 1)])
def test_init_aborts_an_open_transaction_and_bumps_the_epoch_once_more_when_asked_again(
    version, known
):
    transaction = at(ONGOING, version=version)
    written = store(init(transaction, known))
    assert (written.state, written.epoch) == (PREPARE_ABORT, EPOCH + 1)
    assert (written.partitions, written.timeout_ms) == ({A, B}, 60_000)
    assert written.last_epoch == (EPOCH if version == 2 else -1)
    markers, told = transaction.stored(LATER)
    assert markers == SendMarkers(ProducerIdAndEpoch(PID, EPOCH + 1), False, frozenset({A, B}))
    assert isinstance(told.outcome, ConcurrentTransactions)
    untouched(transaction, STATE_51, lambda: init(transaction))
    transaction.marker_written(A, LATER)
    transaction.marker_written(B, LATER)
    transaction.stored(LATER)
    assert store(init(transaction)).epoch == EPOCH + 2


def test_init_with_another_producer_id_is_fenced_also_while_a_transaction_is_open():
    transaction = at(ONGOING)
    untouched(transaction, FENCED_90, lambda: init(transaction, ProducerIdAndEpoch(8, EPOCH)))


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("known", [None, ME])
def test_init_waits_while_a_transaction_ends(state, known):
    transaction = at(state)
    untouched(transaction, STATE_51, lambda: init(transaction, known))
    transaction.resume(NOW)
    untouched(transaction, STATE_51, lambda: init(transaction, known))


@pytest.mark.parametrize("version", [0, 2])
def test_fencing_at_the_last_epoch_leaves_an_id_that_can_go_on(version):
    transaction = at(ONGOING, epoch=LAST, version=version)
    written = store(init(transaction))
    assert (written.epoch, written.next_id) == (LAST + 1, NEW_ID if version == 2 else -1)
    transaction.stored(LATER)
    transaction.marker_written(A, LATER)
    transaction.marker_written(B, LATER)
    transaction.stored(LATER)
    init(transaction, new_id=NEW_ID + 1)
    given = answer(transaction.stored(LATER))
    assert given == ((NEW_ID, 1) if version == 2 else (NEW_ID + 1, 0))


# -- AddPartitionsToTxn -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STABLE)
@pytest.mark.parametrize("version", [0, 2])
def test_the_first_partitions_begin_a_transaction(state, version):
    transaction = at(state)
    written = store(add(transaction, A, B, version=version))
    assert (written.state, written.partitions) == (ONGOING, {A, B})
    assert written.start_ms == written.updated_ms == LATER.wall_ms
    assert written.transaction_version == version
    assert answer(transaction.stored(LATER)) == ME
    assert transaction.times_out_at_ms() == LATER.steady_ms + 60_000


def test_more_partitions_are_added_and_the_start_stays():
    transaction = at(ONGOING, partitions=frozenset({A}))
    written = store(add(transaction, B))
    assert (written.partitions, written.start_ms) == ({A, B}, NOW.wall_ms)
    transaction.stored(LATER)
    assert transaction.times_out_at_ms() == NOW.steady_ms + 60_000


def test_partitions_that_are_in_it_already_are_not_written_again():
    transaction = at(ONGOING)
    assert answer(add(transaction, A)) == ME
    assert transaction.pending_state is None


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT, *PREPARED])
def test_add_judges_the_producer_before_the_state(state):
    transaction = at(state)
    untouched(
        transaction, MAPPING_49, lambda: add(transaction, producer=ProducerIdAndEpoch(8, EPOCH))
    )
    for epoch in (EPOCH - 1, EPOCH + 1):
        untouched(
            transaction,
            FENCED_90,
            lambda: add(transaction, producer=ProducerIdAndEpoch(PID, epoch)),
        )


@pytest.mark.parametrize("state", PREPARED)
def test_add_waits_while_a_transaction_ends(state):
    transaction = at(state)
    untouched(transaction, STATE_51, lambda: add(transaction))


def test_what_is_pending_is_told_before_the_producer_is_judged():
    transaction = at(EMPTY)
    add(transaction, A)
    for producer in (ME, ProducerIdAndEpoch(8, EPOCH), ProducerIdAndEpoch(PID, 1)):
        untouched(transaction, STATE_51, lambda: add(transaction, producer=producer))
    untouched(transaction, STATE_51, lambda: init(transaction))
    untouched(transaction, STATE_51, lambda: end(transaction, commit=True))
    untouched(transaction, STATE_51, lambda: end(transaction, version=0, commit=True))
    other = ProducerIdAndEpoch(8, EPOCH)  # transaction.version 0 judges the producer first
    untouched(transaction, STATE_51, lambda: end(transaction, other, commit=True))
    untouched(transaction, MAPPING_49, lambda: end(transaction, other, version=0, commit=True))


@pytest.mark.parametrize("state", ALL)
def test_a_leader_asks_whether_a_partition_is_in_the_transaction(state):
    transaction = at(state)
    with pytest.raises(MAPPING_49):
        transaction.verify(ProducerIdAndEpoch(8, EPOCH), A)
    with pytest.raises(FENCED_90):
        transaction.verify(ProducerIdAndEpoch(PID, EPOCH - 1), A)
    if state is ONGOING:
        transaction.verify(ME, A)
        with pytest.raises(TransactionAbortable):
            transaction.verify(ME, ("a", 1))
    else:
        with pytest.raises(STATE_51 if state in PREPARED else TransactionAbortable):
            transaction.verify(ME, A)


def test_a_partition_is_verified_while_another_one_is_being_added():
    transaction = at(ONGOING, partitions=frozenset({A}))
    add(transaction, B)
    transaction.verify(ME, A)
    with pytest.raises(TransactionAbortable):
        transaction.verify(ME, B)


# -- EndTxn -----------------------------------------------------------------------------------------

# By state: commit, abort. A state is what is written; 0 is an answer without a change.
VERSION_0 = {
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (STATE_51, INVALID_48),
    PREPARE_ABORT: (INVALID_48, STATE_51),
    COMPLETE_COMMIT: (0, INVALID_48),
    COMPLETE_ABORT: (INVALID_48, 0),
    EMPTY: (INVALID_48, INVALID_48),
}
# By state: commit again, commit, abort again, abort.
VERSION_2 = {
    ONGOING: (FENCED_90, PREPARE_COMMIT, FENCED_90, PREPARE_ABORT),
    PREPARE_COMMIT: (STATE_51, FENCED_90, INVALID_48, FENCED_90),
    PREPARE_ABORT: (INVALID_48, FENCED_90, STATE_51, FENCED_90),
    COMPLETE_COMMIT: (0, INVALID_48, INVALID_48, PREPARE_ABORT),
    COMPLETE_ABORT: (INVALID_48, INVALID_48, 0, PREPARE_ABORT),
    EMPTY: (FENCED_90, INVALID_48, FENCED_90, PREPARE_ABORT),
}


def check_end(transaction, producer, version, commit, expected):
    """One cell of a table."""
    if isinstance(expected, type):
        untouched(transaction, expected, lambda: end(transaction, producer, version, commit=commit))
    elif expected == 0:
        outcome = answer(end(transaction, producer, version, commit=commit))
        assert outcome == (transaction.metadata.producer_id, transaction.metadata.epoch)
        assert transaction.pending_state is None
    else:
        before = transaction.metadata
        written = store(end(transaction, producer, version, commit=commit))
        assert written.state is expected
        assert written.partitions == before.partitions
        assert written.epoch == EPOCH + (version == 2)
        assert written.last_epoch == (EPOCH if version == 2 else before.last_epoch)
        assert written.start_ms == (NOW if before.partitions else LATER).wall_ms
        assert written.transaction_version == version


@pytest.mark.parametrize("state", VERSION_0)
@pytest.mark.parametrize("commit", [True, False])
def test_end_in_version_0(state, commit):
    check_end(at(state), ME, 0, commit, VERSION_0[state][not commit])


@pytest.mark.parametrize("state", VERSION_0)
@pytest.mark.parametrize("commit", [True, False])
def test_end_in_version_0_judges_the_producer_first(state, commit):
    check_end(at(state), ProducerIdAndEpoch(8, EPOCH), 0, commit, MAPPING_49)
    for epoch in (EPOCH - 1, EPOCH + 1):
        check_end(at(state), ProducerIdAndEpoch(PID, epoch), 0, commit, FENCED_90)


@pytest.mark.parametrize("state", VERSION_2)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_again", [True, False])
def test_end_in_version_2(state, commit, is_again):
    producer = ProducerIdAndEpoch(PID, EPOCH - is_again)
    check_end(at(state), producer, 2, commit, VERSION_2[state][2 * (not commit) + (not is_again)])


@pytest.mark.parametrize("state", VERSION_2)
@pytest.mark.parametrize("commit", [True, False])
def test_end_in_version_2_judges_the_producer_first(state, commit):
    check_end(at(state), ProducerIdAndEpoch(8, EPOCH), 2, commit, MAPPING_49)
    for epoch in (EPOCH - 2, EPOCH + 1):
        check_end(at(state), ProducerIdAndEpoch(PID, epoch), 2, commit, FENCED_90)


@pytest.mark.parametrize("state", VERSION_2)
@pytest.mark.parametrize("commit", [True, False])
def test_a_retry_of_an_end_that_gave_a_new_id_counts_as_one(state, commit):
    transaction = at(state, epoch=0, previous_id=6)
    expected = VERSION_2[state][2 * (not commit)]
    check_end(transaction, ProducerIdAndEpoch(6, LAST), 2, commit, expected)
    check_end(transaction, ProducerIdAndEpoch(6, LAST - 1), 2, commit, MAPPING_49)


@pytest.mark.parametrize(("commit", "complete"), [(True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)])
@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_ends_when_all_markers_are_written_and_that_is_in_the_log(
    commit, complete, version
):
    transaction = at(ONGOING)
    end(transaction, version=version, commit=commit)
    continued = ProducerIdAndEpoch(PID, EPOCH + (version == 2))
    markers, told = transaction.stored(LATER)
    assert markers == SendMarkers(continued, commit, frozenset({A, B}))
    assert told == Answer("t", continued)
    assert (transaction.pending_state, transaction.partitions) == (complete, {A, B})
    untouched(transaction, STATE_51, lambda: add(transaction, producer=continued))
    assert transaction.marker_written(A, LATER) == []
    assert transaction.marker_written(A, LATER) == []
    assert transaction.partitions == {B}
    written = store(transaction.marker_written(B, LATER))
    assert (written.state, written.partitions, written.epoch) == (complete, set(), continued.epoch)
    assert transaction.marker_written(B, LATER) == []
    assert transaction.stored(LATER) == []
    assert transaction.state is complete
    assert store(add(transaction, producer=continued)).state is ONGOING


def test_an_abort_of_nothing_writes_no_marker():
    transaction = at(EMPTY)
    end(transaction, commit=False)
    actions = transaction.stored(LATER)
    assert [type(each) for each in actions] == [Store, Answer]
    assert actions[0].metadata.state is COMPLETE_ABORT
    assert actions[1].outcome == (PID, EPOCH + 1)


def test_the_end_of_the_last_epoch_gives_a_new_producer_id():
    transaction = at(ONGOING, epoch=LAST)
    written = store(end(transaction, ProducerIdAndEpoch(PID, LAST), commit=True))
    assert (written.producer_id, written.epoch, written.next_id) == (PID, LAST + 1, NEW_ID)
    markers, told = transaction.stored(LATER)
    assert markers.producer == (PID, LAST + 1)
    assert told.outcome == (NEW_ID, 0)
    transaction.marker_written(A, LATER)
    (complete,) = transaction.marker_written(B, LATER)
    transaction.stored(LATER)
    assert complete.metadata[:2] == (NEW_ID, 0)
    assert (complete.metadata.previous_id, complete.metadata.next_id) == (PID, -1)
    assert answer(end(transaction, ProducerIdAndEpoch(PID, LAST), commit=True)) == (NEW_ID, 0)


# -- time -------------------------------------------------------------------------------------------


def tick(transaction, steady_ms):
    """The passing of time; the wall clock stands still, because it must not matter."""
    return transaction.tick(Now(NOW.wall_ms, steady_ms), NEW_ID, WEEK)


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_nobody_ends_is_aborted_and_its_producer_fenced(version):
    transaction = at(ONGOING, version=version)
    assert tick(transaction, NOW.steady_ms + 60_000) == []
    written = store(tick(transaction, NOW.steady_ms + 60_001))
    assert (written.state, written.epoch) == (PREPARE_ABORT, EPOCH + 1)
    (markers,) = transaction.stored(LATER)
    assert markers == SendMarkers(ProducerIdAndEpoch(PID, EPOCH + 1), False, frozenset({A, B}))
    transaction.marker_written(A, LATER)
    transaction.marker_written(B, LATER)
    transaction.stored(LATER)
    if version == 0:
        untouched(transaction, FENCED_90, lambda: end(transaction, version=0, commit=False))
        untouched(transaction, FENCED_90, lambda: init(transaction, ME))
    else:  # its abort counts as a retry, and gives it the new epoch
        assert answer(end(transaction, commit=False)) == (PID, EPOCH + 1)
        untouched(transaction, INVALID_48, lambda: end(transaction, commit=True))


@pytest.mark.parametrize("state", [each for each in ALL if each is not ONGOING])
def test_only_an_open_transaction_times_out(state):
    assert at(state).times_out_at_ms() is None
    assert tick(at(state), NOW.steady_ms + 60_001) == []


def test_what_was_open_before_a_restart_has_the_time_that_was_left():
    metadata = at(ONGOING).metadata
    transaction = Transaction("id", metadata, Now(NOW.wall_ms + 50_000, 3), version=2)
    assert transaction.times_out_at_ms() == 3 + 10_000
    ahead = Transaction("id", metadata, Now(NOW.wall_ms - 50_000, 3), version=2)
    assert ahead.times_out_at_ms() == 3 + 60_000


def test_what_is_taken_over_has_all_of_its_time_again():
    """The clock of the next coordinator may be ahead."""
    later = Now(NOW.wall_ms + 600_000, 3)
    transaction = Transaction("id", at(ONGOING).metadata, later, version=2, is_taken_over=True)
    assert transaction.times_out_at_ms() == 3 + 60_000


@pytest.mark.parametrize("state", ALL)
def test_an_id_that_nobody_uses_expires(state):
    transaction = at(state, timeout_ms=2**31 - 1)
    assert tick(transaction, NOW.steady_ms + WEEK - 1) == []
    actions = tick(transaction, NOW.steady_ms + WEEK)
    if state not in STABLE:
        assert actions == []
        return
    assert store(actions).state is DEAD
    untouched(transaction, STATE_51, lambda: init(transaction))
    assert transaction.stored(LATER) == []
    assert transaction.state is DEAD


def test_nothing_times_out_or_expires_while_a_change_is_pending():
    transaction = at(ONGOING)
    end(transaction, commit=True)
    assert tick(transaction, NOW.steady_ms + 2 * WEEK) == []


# -- writes that fail -------------------------------------------------------------------------------


def test_a_change_that_is_not_stored_is_forgotten():
    for call in (init, add, lambda each: end(each, commit=False)):
        transaction, failure = at(EMPTY), KafkaStorageError()
        before = transaction.metadata
        call(transaction)
        assert answer(transaction.not_stored(failure)) is failure
        assert (transaction.metadata, transaction.pending_state) == (before, None)
        call(transaction)
        transaction.stored(LATER)


def test_an_epoch_that_may_have_been_fenced_in_the_log_is_fenced_and_not_bumped_twice():
    transaction = at(ONGOING, version=0)
    init(transaction)
    assert isinstance(answer(transaction.not_stored(KafkaStorageError())), KafkaStorageError)
    assert (transaction.state, transaction.metadata.epoch) == (ONGOING, EPOCH + 1)
    untouched(transaction, FENCED_90, lambda: end(transaction, version=0, commit=True))
    assert store(init(transaction)).epoch == EPOCH + 1
    transaction.stored(LATER)
    transaction.marker_written(A, LATER)
    transaction.marker_written(B, LATER)
    transaction.stored(LATER)
    add(transaction, A, producer=ProducerIdAndEpoch(PID, EPOCH + 1))
    transaction.stored(LATER)
    assert store(init(transaction)).epoch == EPOCH + 2


def test_a_commit_that_is_not_stored_leaves_the_transaction_open():
    transaction = at(ONGOING)
    end(transaction, commit=True)
    transaction.not_stored(KafkaStorageError())
    assert transaction.metadata == at(ONGOING).metadata
    assert store(end(transaction, commit=True)).state is PREPARE_COMMIT


def test_a_completion_that_is_not_stored_is_written_again_without_markers():
    transaction = at(PREPARE_COMMIT)
    transaction.resume(LATER)
    transaction.marker_written(A, LATER)
    assert transaction.complete_again() == []
    written = store(transaction.marker_written(B, LATER))
    assert transaction.complete_again() == []
    assert transaction.not_stored(KafkaStorageError()) == []
    untouched(transaction, STATE_51, lambda: init(transaction))
    assert store(transaction.complete_again()) == written
    transaction.stored(LATER)
    assert transaction.state is COMPLETE_COMMIT


# -- a restart --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ALL)
def test_after_a_restart_only_a_decision_goes_on_by_itself(state):
    transaction = at(state)
    actions = transaction.resume(LATER)
    if state not in PREPARED:
        assert actions == []
        assert transaction.pending_state is None
    else:
        is_commit = state is PREPARE_COMMIT
        assert actions == [SendMarkers(ME, is_commit, frozenset({A, B}))]
        assert transaction.pending_state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)


def test_a_decision_without_partitions_is_completed_after_a_restart():
    transaction = at(PREPARE_ABORT, partitions=frozenset())
    assert store(transaction.resume(LATER)).state is COMPLETE_ABORT
