"""Time-outs of transactions and the expiry of transactional ids, by a clock that the test moves."""

from __future__ import annotations

from tests.broker.asking import create, list_offset
from tests.broker.coordinators.transactions.requests import (
    COMMITTED,
    NONE,
    Transactional,
    committed,
)
from tests.broker.subject import eventually

INVALID_EPOCH, FENCED, NOT_FOUND = 47, 90, 105
LATEST = -1
DAY_MS = 86_400_000


def stable(connection):
    """The last stable offset."""
    return list_offset(connection, "t", LATEST, isolation_level=COMMITTED)["offset"]


def test_a_transaction_that_nobody_ends_holds_nothing_back_for_longer_than_its_timeout(start):
    broker = start({"clock": "manual", "clock.start.ms": 10 * DAY_MS})
    with broker.connect() as connection:
        create(connection, "t")
        producer = Transactional(connection, "id")
        assert producer.init(timeout_ms=30_000) == NONE
        assert producer.add("t", 0) == [NONE]
        assert producer.send("t", "never") == NONE
        broker.clock.step(30_000)
        assert producer.state == "Ongoing"
        assert stable(connection) == 0
        broker.clock.step(1_000)
        eventually(lambda: producer.state == "CompleteAbort")
        assert stable(connection) == 2
        assert committed(connection, "t") == []
        assert producer.send("t", "late") == INVALID_EPOCH
        assert producer.end(commit=True) == FENCED
        assert broker.lines("transaction timed out", "transactional_id=id")
        assert producer.init() == NONE
        assert producer.add("t", 0) == [NONE]
        assert producer.send("t", "again") == NONE
        assert producer.end(commit=True) == NONE
        assert committed(connection, "t") == ["again"]


def test_the_time_that_was_left_is_left_after_a_restart(start):
    broker = start({"clock": "manual", "clock.start.ms": 10 * DAY_MS})
    with broker.connect() as connection:
        create(connection, "t")
        producer = Transactional(connection, "id")
        producer.init(timeout_ms=30_000)
        producer.add("t", 0)
        producer.send("t", "never")
        broker.clock.step(20_000)
    broker.kill()
    broker.restart()
    with broker.connect() as connection:
        producer.connection = connection
        eventually(lambda: producer.state == "Ongoing")
        broker.clock.step(9_000)
        assert producer.state == "Ongoing"
        broker.clock.step(2_000)
        eventually(lambda: producer.state == "CompleteAbort")
        assert stable(connection) == 2


def test_an_id_that_nobody_uses_is_forgotten_for_good(start):
    broker = start({"clock": "manual", "clock.start.ms": 10 * DAY_MS})
    with broker.connect() as connection:
        create(connection, "t")
        idle, busy = Transactional(connection, "idle"), Transactional(connection, "busy")
        assert idle.init() == busy.init() == NONE
        first = idle.given
        broker.clock.step(4 * DAY_MS)
        assert busy.init() == NONE
        broker.clock.step(3 * DAY_MS + 1_000)
        eventually(lambda: idle.described()["error_code"] == NOT_FOUND)
        assert busy.state == "Empty"
    broker.stop()
    broker.restart()
    with broker.connect() as connection:
        idle.connection = busy.connection = connection
        eventually(lambda: busy.state == "Empty")
        assert idle.described()["error_code"] == NOT_FOUND
        assert idle.init() == NONE
        assert idle.given.producer_id > first.producer_id
