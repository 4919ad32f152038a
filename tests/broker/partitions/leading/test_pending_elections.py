"""Requests between the death of a leader and the start of the next one wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from tests.broker.partitions.inside import (
    ask,
    ask_all,
    brokers,
    consume,
    eventually,
    produce,
    produce_request,
    values_of,
)
from tidelog.broker.api import produce as produce_handler
from tidelog.broker.network.scheduler import ROUND_S
from tidelog.broker.partitions.leading import pending_elections
from tidelog.client import apis
from tidelog.protocol.api import metadata as metadata_api
from tidelog.protocol.errors import ErrorCode, NotLeaderOrFollower
from tidelog.storage.log.replication.roles import Roles


@pytest.fixture
async def three(three, monkeypatch):
    """Broker 1 leads t-0, which all of them have; requests wait for longer than a test takes."""
    monkeypatch.setattr(pending_elections, "LONGEST_WAIT_S", 3600)
    await three.create("t")
    for broker in three.all.values():
        await eventually(lambda at=broker: at.node.store.partition("t", 0) is not None)
    return three


async def described(broker):
    """The leader, its epoch and the code of t-0, as a broker describes it."""
    request = metadata_api.MetadataRequest(
        topics=[metadata_api.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
    )
    answer = await ask(broker, request, apis.METADATA)
    (partition,) = answer.topics[0].partitions
    return partition.leader_id, partition.leader_epoch, partition.error_code


@contextlib.contextmanager
def held_back(broker, monkeypatch, topic="t"):
    """Lets a log begin to lead only at the end."""
    lead, state, may_lead = Roles.lead, broker.log(topic).state, threading.Event()

    def lead_later(self, epoch):
        if self._state is state:
            may_lead.wait(60)
        return lead(self, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(Roles, "lead", lead_later)
        try:
            yield
        finally:
            may_lead.set()


def waits(task, seconds=0.2):
    return asyncio.wait([task], timeout=seconds)


async def test_a_client_that_asks_for_metadata_is_told_the_next_leader(three):
    metadata = three[2].node.metadata
    await three[1].lose_session()
    await eventually(lambda: 1 not in metadata.image.brokers)
    asking = asyncio.ensure_future(described(three[2]))
    await waits(asking)
    assert not asking.done()
    await three.put("t", leader=3, leader_epoch=1, isr=(2, 3))
    assert await asking == (3, 1, 0)
    assert metadata.departed(3600)
    assert not metadata.departed(0)


async def test_a_broker_that_has_perhaps_died_counts_as_gone(three, monkeypatch):
    metadata = three[2].node.metadata
    monkeypatch.setattr(metadata, "perhaps_dead", lambda: {1})
    asking = asyncio.ensure_future(described(three[2]))
    await waits(asking)
    assert not asking.done()
    monkeypatch.setattr(metadata, "perhaps_dead", frozenset)  # it has not
    assert await asking == (1, 0, 0)


async def test_the_wait_for_an_election_is_short(three, monkeypatch):
    monkeypatch.setattr(pending_elections, "LONGEST_WAIT_S", 0.05)
    await three[1].lose_session()
    await eventually(lambda: 1 not in three[2].node.metadata.image.brokers)
    assert await described(three[2]) == (-1, 0, ErrorCode.LEADER_NOT_AVAILABLE)


async def test_however_many_clients_wait_a_partition_is_judged_once_for_each_change(
    three, monkeypatch
):
    judged, judge = [], pending_elections._is_near

    def noted(image, perhaps_dead, record):
        judged.append(image.revision)
        return judge(image, perhaps_dead, record)

    monkeypatch.setattr(pending_elections, "_is_near", noted)
    waiting = three[2].replicas.pending_elections
    metadata = three[2].node.metadata
    await three[1].lose_session()
    await eventually(lambda: 1 not in metadata.image.brokers)
    judged.clear()

    def topics():
        return metadata.image.topics.values()

    asking = [asyncio.ensure_future(waiting.elected(topics)) for _ in range(100)]
    await asyncio.sleep(0.2)
    assert not any(each.done() for each in asking)
    assert len(judged) <= len(set(judged)) <= 3
    await three.put("t", leader=3, leader_epoch=1, isr=(2, 3))
    await asyncio.gather(*asking)
    assert not waiting.is_near(topics())
    judged.clear()
    for _ in range(100):
        assert not waiting.is_near(topics())
    assert judged == []
    asking = [asyncio.ensure_future(waiting.elected(topics)) for _ in range(3)]
    await asyncio.gather(*asking)


async def test_nobody_waits_for_a_leader_that_nobody_can_replace(three):
    await three.put("t", isr=(1,))
    await three[1].lose_session()
    await eventually(lambda: 1 not in three[2].node.metadata.image.brokers)
    await eventually(lambda: three[2].node.metadata.image.topics["t"].assignments[0].isr == (1,))
    assert await described(three[2]) == (-1, 0, ErrorCode.LEADER_NOT_AVAILABLE)


async def test_a_producer_at_the_next_leader_waits_until_it_leads(three, monkeypatch):
    with held_back(three[2], monkeypatch):
        await three.put("t", leader=2, leader_epoch=1)
        image = three[2].node.metadata
        await eventually(lambda: image.image.topics["t"].assignments[0].leader == 2)
        producing = asyncio.ensure_future(produce(three[2], "t", b"a"))
        await waits(producing)
        assert not producing.done()
    assert (await producing).error_code == ErrorCode.NONE


async def test_partitions_that_lead_already_do_not_wait_for_one_that_is_about_to(
    three, monkeypatch
):
    """Both of the first request, and the next request on the connection: each partition keeps its order."""
    await three.create("two", replicas=((2, 1), (2, 1)))
    await three.elect("two", 1)
    with held_back(three[2], monkeypatch, "two"):
        await three.put("two", leader=2, leader_epoch=2)
        image = three[2].node.metadata
        await eventually(lambda: image.image.topics["two"].assignments[0].leader == 2)
        requests = [
            produce_request("two", {0: b"a", 1: b"b"}),
            produce_request("two", {0: b"c"}),
        ]
        producing = asyncio.ensure_future(ask_all(three[2], requests, apis.PRODUCE))
        await eventually(lambda: three[2].log("two", 1).high_watermark == 1)
        assert (await consume(three[2], "two", index=1)).records
        await waits(producing)
        assert not producing.done()
    answers = await producing
    found = [each for answer in answers for each in answer.responses[0].partition_responses]
    assert [(each.index, each.error_code, each.base_offset) for each in found] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.NONE, 0),
        (0, ErrorCode.NONE, 1),
    ]
    assert values_of(three[2].log("two")) == [b"a", b"c"]


async def test_a_partition_that_another_broker_comes_to_lead_fails_alone(three, monkeypatch):
    await three.create("two", replicas=((1, 2, 3), (2, 1)))
    await three[1].lose_session()
    await eventually(lambda: 1 not in three[2].node.metadata.image.brokers)
    await three.put("two", index=1, isr=(2,))
    request = produce_request("two", {0: b"a", 1: b"b"})
    producing = asyncio.ensure_future(ask_all(three[2], [request], apis.PRODUCE))
    await eventually(lambda: three[2].log("two", 1).log_end_offset == 1)
    assert not producing.done()
    await three.put("two", leader=3, leader_epoch=1, isr=(2, 3))
    (answer,) = await producing
    refused, stored = answer.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == 3
    assert stored.error_code == ErrorCode.NONE


async def test_a_follower_at_the_next_leader_waits_until_it_leads(three, monkeypatch):
    replicas = three[2].replicas
    with held_back(three[2], monkeypatch):
        await three.put("t", leader=2, leader_epoch=1)
        name = (three[2].log("t").topic_id, 0)
        await eventually(lambda: len(replicas.pending_elections._fetches[name]) == 2)
    assert (await produce(three[2], "t", b"a")).error_code == ErrorCode.NONE
    assert not any(three[number].replicas.followed_by_id(*name).busy for number in (1, 3))


async def test_a_follower_at_a_broker_that_does_not_come_to_lead_is_told_so(three, monkeypatch):
    monkeypatch.setattr(pending_elections, "LONGEST_WAIT_S", 0.5)  # both followers ask within it
    coming = three[2].replicas.pending_elections
    with held_back(three[2], monkeypatch):
        await three.put("t", leader=2, leader_epoch=1)
        name = (three[2].log("t").topic_id, 0)
        await eventually(lambda: len(coming._fetches[name]) == 2)
        first = set(coming._fetches[name])
        await eventually(lambda: coming._fetches[name] and first.isdisjoint(coming._fetches[name]))
        assert {ask.error for ask in first} == {NotLeaderOrFollower}
        assert not any(ask.is_coming for ask in first)
    assert (await produce(three[2], "t", b"a")).error_code == ErrorCode.NONE
    for number in (1, 3):
        await eventually(lambda at=three[number]: values_of(at.log("t")) == [b"a"])


@pytest.mark.slow
async def test_a_broker_that_has_died_is_listed_for_a_moment(three):
    """Else librdkafka 2.10 and newer loses the new leader of a partition for a while."""

    async def listed(broker):
        request = metadata_api.MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = await ask(broker, request, apis.METADATA)
        return {each.node_id: each.port for each in answer.brokers}

    every = {number: three[number].port for number in (1, 2, 3)}
    await three[1].lose_session()
    metadata, config = three[2].node.metadata, three[2].node.config
    await eventually(lambda: 1 not in metadata.image.brokers)
    assert await listed(three[2]) == every
    assert metadata.departed(3600)
    assert config.cluster.broker_session_timeout_ms < 20_000
    deadline_s = asyncio.get_running_loop().time() + 20
    while len(await listed(three[2])) == 3:
        assert asyncio.get_running_loop().time() < deadline_s
        await asyncio.sleep(0.1)
    assert await listed(three[2]) == {number: every[number] for number in (2, 3)}
    await three[1].register()
    await eventually(lambda: 1 in metadata.image.brokers)
    assert await listed(three[2]) == every


async def test_appends_that_have_waited_for_the_same_give_way_to_others(tmp_path, monkeypatch):
    """The clock of the requests is moved by appends alone."""
    count, step_s, seconds, longest_s = 100, 0.001, [0.0], [0.0]
    waiting, led, append_to = [], asyncio.Event(), produce_handler._append_to

    async def wait(_self, names):
        waiting.extend(names)
        await led.wait()

    def append(*arguments):
        seconds[0] += step_s
        return append_to(*arguments)

    async def watch():
        while True:
            began_s = seconds[0]
            await asyncio.sleep(0)
            longest_s[0] = max(longest_s[0], seconds[0] - began_s)

    monkeypatch.setattr(pending_elections.PendingElections, "coming", lambda _, names: list(names))
    monkeypatch.setattr(pending_elections.PendingElections, "led", wait)
    monkeypatch.setattr(produce_handler, "_append_to", append)
    async with brokers(tmp_path, 1) as one:
        await one.create("t", ((1,),) * count)
        monkeypatch.setattr(one.any.node.scheduler, "_now_s", lambda: seconds[0])
        request = produce_request("t", dict.fromkeys(range(count), b"a"))
        asked = asyncio.ensure_future(ask(one.any, request, apis.PRODUCE))
        await eventually(lambda: len(waiting) == count)
        watching = asyncio.ensure_future(watch())
        led.set()
        codes = {part.error_code for part in (await asked).responses[0].partition_responses}
        watching.cancel()
    assert codes == {0}
    assert 0 < longest_s[0] < 2 * ROUND_S
