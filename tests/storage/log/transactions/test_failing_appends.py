"""Appends to a full disk: an aborted transaction keeps its entry in the index."""

import pytest

from tidelog.protocol.errors import KafkaStorageError


@pytest.mark.parametrize("room", range(0, 130, 10))
def test_an_abort_for_which_there_was_no_room_is_in_the_index_in_the_end(txn, disk, room):
    txn.send(6, 1)
    txn.abort(6)
    txn.send(7, 2)
    for _ in range(2):
        disk.room = room
        with pytest.raises(KafkaStorageError, match="disk is full"):
            txn.abort(7)
    disk.room = None
    assert txn.abort(7) == 4
    aborted = [(6, 0), (7, 2)]
    assert [tuple(each) for each in txn.partition.aborted_transactions(0, 5)] == aborted
    log = txn.log
    log.crash()
    log.open()
    assert txn.stable == 5
    assert [tuple(each) for each in log.partition.aborted_transactions(0, 5)] == aborted
