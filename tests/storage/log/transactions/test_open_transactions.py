"""Transactions of a log that leads: what opens and ends them, and the last stable offset."""

import threading

import pytest

from tests.storage.log.transactions.conftest import Transactions
from tidelog.protocol.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.storage.segment.named_file import NamedFile


def test_open_transactions_are_described(txn):
    txn.send(5, 1)
    txn.send(4, 1, epoch=3)
    assert [tuple(each) for each in txn.partition.open_transactions()] == [
        (5, 0, 0, 1_001, -1),
        (4, 3, 1, 1_002, -1),
    ]
    txn.abort(5, coordinator_epoch=9)
    txn.send(5, 1)
    assert [each.coordinator_epoch for each in txn.partition.open_transactions()] == [-1, 9]


# --- verification ---------------------------------------------------------------------------------


def test_a_transaction_begins_with_a_guard_alone(txn):
    with pytest.raises(InvalidTxnState, match="not part of a transaction"):
        txn.put(txn.data(7))
    assert txn.ends == (0, 0, 0)
    guard = txn.partition.verification(7, 0, 0)
    assert guard is not None
    txn.put(txn.data(7, sequence=0), guard=guard)
    assert txn.partition.verification(7, 0, 1) is None
    txn.put(txn.data(7, sequence=1))


def test_a_guard_is_outdated_once_data_came(txn):
    guard = txn.partition.verification(7, 0, 0)
    assert txn.partition.verification(7, 0, 0) is guard
    txn.put(txn.data(7), guard=guard)
    txn.commit(7)
    with pytest.raises(InvalidTxnState):
        txn.put(txn.data(7), guard=guard)


def test_a_guard_is_outdated_once_a_marker_came(txn):
    guard = txn.partition.verification(7, 0, 0)
    txn.abort(7)  # the transaction timed out while the coordinator was asked
    with pytest.raises(InvalidTxnState):
        txn.put(txn.data(7), guard=guard)
    assert txn.stable == 1


def test_the_guard_of_the_epoch_that_a_marker_begins_stays(txn):
    txn.send(7, 1)
    guard = txn.partition.verification(7, 1, 0, raises_epoch=True)
    txn.commit(7, epoch=1)
    txn.put(txn.data(7, epoch=1), guard=guard)
    assert txn.ends == (3, 3, 2)


def test_a_late_batch_of_an_epoch_that_is_over_is_refused_by_its_epoch(txn):
    txn.send(7, 1, epoch=1)
    txn.abort(7, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        txn.put(txn.data(7, epoch=1, sequence=1))


def test_an_epoch_that_is_over_gets_no_guard(txn):
    txn.send(7, 1, epoch=1)
    txn.abort(7, epoch=2)
    with pytest.raises(InvalidProducerEpoch, match="epoch 2 has taken over"):
        txn.partition.verification(7, 1, 0)
    assert txn.partition.verification(7, 2, 0) is not None


def test_the_first_sequence_that_came_is_stored_first(txn):
    txn.partition.verification(7, 0, 3)
    guard = txn.partition.verification(7, 0, 0)
    with pytest.raises(OutOfOrderSequenceNumber, match="before 0"):
        txn.put(txn.data(7, sequence=3), guard=guard)
    txn.put(txn.data(7, 3, sequence=0), guard=guard)
    txn.put(txn.data(7, sequence=3))


def test_an_unknown_producer_begins_at_zero_where_epochs_rise(txn):
    guard = txn.partition.verification(7, 4, 5, raises_epoch=True)
    with pytest.raises(OutOfOrderSequenceNumber, match="not known here"):
        txn.put(txn.data(7, epoch=4, sequence=5), guard=guard)
    guard = txn.partition.verification(8, 4, 5)
    txn.put(txn.data(8, epoch=4, sequence=5), guard=guard)


# --- data -----------------------------------------------------------------------------------------


def test_a_plain_batch_inside_a_transaction_is_refused(txn):
    txn.send(7, 2)
    with pytest.raises(InvalidTxnState, match="outside of the transaction"):
        txn.put(txn.data(7, sequence=2, transactional=False))
    txn.commit(7)
    txn.put(txn.data(7, sequence=2, transactional=False))
    assert txn.ends == (4, 4, 4)


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_retry_gets_its_first_offset(txn, is_ended):
    first = txn.data(7, 2)
    txn.put(first, guard=txn.partition.verification(7, 0, 0))
    txn.send(7, 1)
    if is_ended:
        txn.commit(7)
    again = txn.put(first)
    assert (again.base_offset, again.duplicate) == (0, True)


def test_sequences_run_on_over_a_marker_of_the_same_epoch(txn):
    txn.send(7, 2)
    txn.commit(7)
    guard = txn.partition.verification(7, 0, 2)
    with pytest.raises(InvalidTxnState):
        txn.put(txn.data(7, 3, sequence=0))
    with pytest.raises(OutOfOrderSequenceNumber):
        txn.put(txn.data(7, sequence=1), guard=guard)
    txn.put(txn.data(7, sequence=2), guard=guard)


def test_a_marker_of_a_newer_epoch_begins_it_at_zero(txn):
    txn.send(7, 2)
    txn.commit(7, epoch=1)
    known = txn.partition.state.read_producers().get(7)
    assert (known.epoch, known.last_sequence, known.batches) == (1, -1, ())
    guard = txn.partition.verification(7, 1, 2)
    with pytest.raises(OutOfOrderSequenceNumber):
        txn.put(txn.data(7, epoch=1, sequence=2), guard=guard)
    txn.send(7, 1, epoch=1)


def test_offsets_of_a_group_have_no_sequence(txn):
    guard = txn.partition.verification(7, 2, -1)
    for number in range(3):
        put = txn.put(txn.data(7, epoch=2, sequence=-1), guard=guard, internal=True)
        assert (put.base_offset, put.duplicate) == (number, False)
        guard = None
    assert txn.ends == (3, 3, 0)
    with pytest.raises(InvalidProducerEpoch):
        txn.put(txn.data(7, epoch=1, sequence=-1), internal=True)
    txn.commit(7, epoch=2)
    assert txn.ends == (4, 4, 4)
    with pytest.raises(InvalidTxnState):
        txn.put(txn.data(7, epoch=2, sequence=-1), internal=True)


# --- markers --------------------------------------------------------------------------------------


def test_a_marker_of_an_older_epoch_is_refused(txn):
    txn.send(7, 1, epoch=5)
    with pytest.raises(InvalidProducerEpoch):
        txn.abort(7, epoch=4)
    assert txn.ends == (1, 1, 0)


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(txn):
    txn.send(7, 1)
    txn.commit(7, coordinator_epoch=3)
    txn.send(7, 1)
    with pytest.raises(TransactionCoordinatorFenced, match="epoch 3 has taken over"):
        txn.abort(7, coordinator_epoch=2)
    assert txn.ends == (3, 3, 2)
    txn.abort(7, coordinator_epoch=3)


def test_markers_with_nothing_open_are_appended_too(txn):
    assert txn.commit(7) == 0
    assert txn.abort(7) == 1
    assert txn.ends == (2, 2, 2)


def test_the_bytes_of_a_marker(txn):
    txn.send(7, 1, epoch=3)
    offset = txn.commit(7, epoch=3, coordinator_epoch=11)
    data = b"".join(bytes(part) for part in txn.log.read(offset).buffers)
    batch = scan(data)[0]
    assert (batch.size, batch.attributes, batch.count, batch.base_sequence) == (78, 0x30, 1, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.leader_epoch) == (7, 3, 0)
    assert next(records(data, batch)) == Record(offset, txn.now, b"\0\0\0\1", b"\0\0\0\0\0\x0b", ())


def test_a_marker_has_the_append_time_on_a_topic_of_append_times(make_log):
    txn = Transactions(make_log(message_timestamp_type="LogAppendTime").create())
    txn.send(7, 1)
    offset = txn.abort(7)
    data = b"".join(bytes(part) for part in txn.log.read(offset).buffers)
    batch = scan(data)[0]
    assert (batch.attributes, batch.max_timestamp) == (0x38, txn.now)


def test_clients_write_no_markers(txn):
    data = build(
        [Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")],
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    with pytest.raises(InvalidRecord):
        txn.put(data)


# --- the index of aborted transactions ------------------------------------------------------------


def test_a_reader_of_the_index_does_not_undo_an_abort_that_comes_meanwhile(txn, monkeypatch):
    """A consumer reads the file in a thread, and a marker is appended before it is through."""
    txn.send(6, 1)
    txn.abort(6)
    txn.send(7, 1)
    index, read = txn.partition.segments[-1].aborted, NamedFile.read
    has_read, is_appended = threading.Event(), threading.Event()

    def slow_read(file):
        data = read(file)
        if threading.current_thread() is reader:
            has_read.set()
            is_appended.wait(0.3)  # in vain where the append waits for the reader
        return data

    index.rest()  # as after a start
    reader = threading.Thread(target=lambda: index.since(0))
    with monkeypatch.context() as patched:
        patched.setattr(NamedFile, "read", slow_read)
        reader.start()
        assert has_read.wait(60)
        assert txn.abort(7) == 3
        is_appended.set()
        reader.join(60)
    assert [tuple(each) for each in txn.partition.aborted_transactions(0, 4)] == [(6, 0), (7, 2)]
    txn.send(8, 1)
    txn.abort(8)
    index.rest()
    assert [each.producer_id for each in index.since(0)] == [6, 7, 8]
