"""Markers of strangers: they name no coordinator epoch that no coordinator has had, and what did so heals."""

from __future__ import annotations

import asyncio
import time

from config.topic import TopicConfig
from protocol.errors import ErrorCode
from storage.directory.store import LogStore
from tests.broker.api.test_describe_producers import look
from tests.broker.asking import create
from tests.broker.replicas.inside import brokers, tags_of
from tests.broker.replicas.stranger import Stranger
from tests.broker.transactions.requests import NONE, Transactional, committed

LAST = 2**31 - 1


def test_a_stranger_ends_no_transaction_and_poisons_no_producer(broker, connection):
    create(connection, "attacked")
    owner = Transactional(connection, "owner")
    owner.first_init()
    owner.add("attacked", 0)
    assert owner.send("attacked", "a") == NONE

    async def attack():
        async with Stranger(broker.port) as stranger:
            return [
                await stranger.write_marker(owner.given, "attacked", epoch, is_commit=True)
                for epoch in (LAST, 1)
            ]

    codes = asyncio.run(attack())
    assert committed(connection, "attacked") == []
    assert owner.end(commit=True) == NONE
    assert committed(connection, "attacked") == ["a"]
    assert codes == [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 2


def test_a_poisoned_log_heals_with_the_owners_next_marker(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "poisoned")
        owner = Transactional(connection, "owner")
        owner.first_init()
    broker.stop()
    poison(broker.log_dir, owner.given)
    broker.restart()
    with broker.connect() as connection:
        (described,) = look(connection, "poisoned", 0)
        assert [each["coordinator_epoch"] for each in described["active_producers"]] == [-1]
        owner.connection = connection
        for text, commit in (("a", True), ("b", False), ("c", True)):
            assert owner.init() == NONE
            owner.add("poisoned", 0)
            assert owner.send("poisoned", text) == NONE
            assert owner.end(commit=commit) == NONE
        assert committed(connection, "poisoned") == ["a", "c"]
    assert len(broker.lines("coordinator epoch forgotten")) == 1


def poison(directory, producer):
    """A marker in the log with an epoch that no coordinator has had."""
    store = LogStore([directory], default_config=TopicConfig())
    store.open(0)
    log = store.partition("poisoned", 0)
    now_ms = int(time.time() * 1000)  # the broker's clock: an old producer is forgotten
    log.append_marker(*producer, is_commit=False, coordinator_epoch=LAST, now_ms=now_ms)
    store.close()


async def test_a_broker_that_proves_itself_may_know_a_later_coordinator(tmp_path):
    producer = (70_000, 0)
    async with brokers(tmp_path) as three:
        await three.create("t")
        image = three[1].node.metadata.image
        async with Stranger(three[1].port) as stranger:

            async def mark(epoch, tags=b"\0"):
                return await stranger.write_marker(producer, "t", epoch, is_commit=False, tags=tags)

            assert await mark(5, tags_of(image, 2, 1)) == NONE
            assert await mark(5) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert await mark(5, tags_of(image, 2, 3)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert three[1].log("t").log_end_offset == 1
            # Not above the largest one: as an operator's. What is above it, and was written, fences nobody.
            assert await mark(0) == NONE
