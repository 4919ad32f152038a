"""The only broker of a cluster, from outside: its session, and that its start and end write no partition."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.broker import asking
from tests.broker.subject import Subject
from tidelog.broker.lifecycle import sole_member
from tidelog.broker.lifecycle.sole_member import SoleMember
from tidelog.broker.metadata.brokers.records import Endpoint
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.network.accepting.listener import Listener
from tidelog.config import load
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage.directory.store import LogStore


def shown(broker):
    """Returns what a broker says of its cluster."""
    return json.loads(broker.page("/v1/cluster"))


def partitions_of(brokers):
    topic = brokers.image().topics["t"]
    return topic.assignments, topic.mod_revisions


@pytest.mark.slow
def test_it_is_registered_and_the_controller_and_neither_kill_nor_stop_writes_a_partition(brokers):
    directory = brokers.directory / "broker-1"
    brokers.path = directory / "tidelog.sqlite"
    broker = Subject(directory)
    with broker.connect() as connection:
        asking.create(connection, "t", partitions=3)
    before, first = partitions_of(brokers), shown(broker)
    (member,) = first["brokers"]
    assert (member["broker"], member["state"], member["leads"]) == (1, "serving", 3)
    assert member["session"] is not None
    assert member["listeners"]["PLAINTEXT"] == broker.bootstrap
    assert first["controller"]["broker"] == 1
    broker.kill()
    assert brokers.image().brokers.keys() == {1}, "nothing of a killed process is cleaned up"
    with Subject(directory) as again:
        second = shown(again)
        assert second["brokers"][0]["session"] != member["session"]
        assert second["controller"]["epoch"] > first["controller"]["epoch"]
        assert partitions_of(brokers) == before
        assert again.stop() == 0
    left = brokers.image()
    assert (dict(left.brokers), left.controller) == ({}, None)
    assert partitions_of(brokers) == before


@pytest.mark.slow
def test_what_a_killed_one_leaves_holds_up_no_election_of_several(brokers):
    directory = brokers.directory / "broker-1"
    brokers.path = directory / "tidelog.sqlite"
    sole = Subject(directory)
    sole.kill()
    stale = brokers.image()
    brokers.start(1, 2)
    brokers.add_topic("t", [1, 2])
    now = brokers.eventually(lambda image: {1, 2} == image.brokers.keys() and image)
    assert now.brokers[1].epoch > stale.brokers[1].epoch
    brokers[1].kill()
    after = brokers.eventually(
        lambda image: image.topics["t"].assignments[0].leader == 2 and image, within_s=60
    )
    assert after.controller.broker == 2


@pytest.mark.slow
def test_the_session_of_a_killed_one_ends_when_others_begin_without_it(brokers):
    directory = brokers.directory / "broker-1"
    brokers.path = directory / "tidelog.sqlite"
    Subject(directory).kill()
    assert brokers.image().controller.broker == 1
    brokers.start(2, 3)
    now = brokers.eventually(lambda image: {2, 3} == image.brokers.keys() and image.controller)
    assert now.broker in {2, 3}


async def test_it_serves_before_its_session_is_stored_where_the_metadata_cannot_be_changed(
    tmp_path, monkeypatch
):
    config = load(None, {}, {"log.dirs": str(tmp_path)})
    metadata = local_metadata(tmp_path / "tidelog.sqlite")
    await metadata.open()
    transact, failures = metadata.store.transact, [KafkaStorageError("locked")] * 3

    async def fails_at_first(*what):
        if failures:
            raise failures.pop()
        return await transact(*what)

    monkeypatch.setattr(metadata.store, "transact", fails_at_first)
    monkeypatch.setattr(sole_member, "_RETRY_S", 0.001)
    member = SoleMember(
        config, metadata, LogStore([tmp_path], default_config=config.topic_defaults)
    )
    await member.start([Listener("PLAINTEXT", "127.0.0.1", 9092, ("127.0.0.1", 9092))])
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert failures
    stored = {pair.key for pair in (await metadata.store.read()).pairs}
    assert stored.isdisjoint({"live/1", "controller"})
    assert metadata.image.brokers[1].record.endpoints == endpoints
    assert metadata.image.controller.broker == 1
    async with asyncio.timeout(60):
        await metadata.newer_image(metadata.image.revision)
    await member._registering
    assert metadata.image.brokers[1].epoch == member.epoch
    assert metadata.image.brokers[1].record.endpoints == endpoints
    await member.leave(is_flushed=True, failed=())
    await metadata.catch_up()
    assert not metadata.image.brokers
    await metadata.close()
