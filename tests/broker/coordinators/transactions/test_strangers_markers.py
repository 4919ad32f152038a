"""Markers of strangers: their coordinator epochs fence no coordinator, and a log that has one heals."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from tests.broker.api.test_describe_producers import look
from tests.broker.asking import create
from tests.broker.coordinators.transactions.requests import NONE, Transactional, committed
from tests.broker.partitions.inside import brokers, eventually, tags_of
from tests.broker.partitions.stranger import Stranger
from tidelog.broker.coordinators.transactions.others import OtherBrokers
from tidelog.broker.coordinators.transactions.state_topic import TOPIC
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import ErrorCode, NotLeaderOrFollower
from tidelog.protocol.transaction_log import ProducerIdAndEpoch
from tidelog.storage.directory.store import LogStore

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


@pytest.mark.slow
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
    assert len(broker.lines("coordinator epoch reset")) == 1


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
            # As an operator's. What is above the largest one, and was written, fences nobody.
            assert await mark(0) == NONE


@contextlib.asynccontextmanager
async def coordinated(directory):
    """Brokers with coordinators of epochs 2 and 5; yields them, and a function that writes markers."""
    async with brokers(directory) as three:
        await three.create("t")
        await three.create(TOPIC, ((1, 2, 3),) * 2)
        await three.put(TOPIC, 0, leader_epoch=2)
        await three.put(TOPIC, 1, leader_epoch=5)
        image = three[1].node.metadata.image
        async with Stranger(three[1].port) as stranger:

            async def mark(producer, epoch, *, proven=False):
                tags = tags_of(image, 2, 1) if proven else b"\0"
                return await stranger.write_marker(producer, "t", epoch, is_commit=False, tags=tags)

            yield three, mark


async def known_in(metadata, broker):
    """Until metadata have the session of a broker, which begins where the one before has been deleted."""

    def is_known():
        live = metadata.image.brokers.get(broker.number)
        return live is not None and live.epoch == broker.cluster.epoch

    await eventually(is_known)


async def test_a_stranger_cannot_fence_a_coordinator_by_the_epoch_of_another(tmp_path):
    known, unknown = (70_000, 0), (70_001, 0)
    async with coordinated(tmp_path) as (_, mark):
        assert await mark(known, 2, proven=True) == NONE
        assert await mark(known, 5) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await mark(unknown, 5) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await mark(known, 2) == NONE  # as an operator's, by what DescribeProducers returns
        assert await mark(unknown, 0) == NONE
        assert await mark(known, 2, proven=True) == NONE


async def test_a_coordinator_whose_session_is_over_is_not_fenced(tmp_path):
    producer = (70_000, 0)
    async with coordinated(tmp_path) as (three, mark):
        await three[2].register()
        metadata = three[1].node.metadata
        await known_in(metadata, three[2])
        assert await mark(producer, 2, proven=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await three[2].lose_session()
        others = OtherBrokers(three[2].node)
        with pytest.raises(NotLeaderOrFollower, match="without a session this broker cannot prove"):
            await others.write_marker(
                1, ("t", 0), ProducerIdAndEpoch(*producer), 2, is_commit=False
            )
        await three[2].register()
        await others.write_marker(1, ("t", 0), ProducerIdAndEpoch(*producer), 2, is_commit=False)
        await others.close()


async def test_brokers_of_an_older_version_may_name_every_epoch_of_a_coordinator(tmp_path):
    producer = (70_000, 0)
    async with coordinated(tmp_path) as (three, mark):
        three[3].has_secret = False
        await three[3].register()
        assert await mark(producer, 6) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await mark(producer, 5) == NONE
        three[3].has_secret = True
        await three[3].register()
        metadata = three[1].node.metadata
        await known_in(metadata, three[3])
        assert await mark((70_001, 0), 5) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_strangers_markers_read_the_metadata_ten_times_a_second_at_most(
    tmp_path, monkeypatch
):
    async with brokers(tmp_path) as three:
        await three.create("t")
        metadata, reads = three[1].node.metadata, []
        catch_up = metadata.catch_up

        async def counted():
            reads.append(None)
            await catch_up()

        monkeypatch.setattr(metadata, "catch_up", counted)

        async def attack(epoch):
            async with Stranger(three[1].port) as stranger:
                return await stranger.write_marker((70_000, 0), "t", epoch, is_commit=False)

        began_s = time.monotonic()
        codes = await asyncio.gather(*map(attack, range(1, 31)))
        assert set(codes) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        assert len(reads) <= 2 + 10 * (time.monotonic() - began_s)
