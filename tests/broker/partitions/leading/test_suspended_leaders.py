"""Leaders that are cut off from the metadata, on real logs: whom they answer, and who counts for them.

A lease that the test lets be overdue is that of a broker that is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.broker.partitions.follower import Follower, wanted
from tests.broker.partitions.inside import (
    ask,
    consume,
    delete_before,
    eventually,
    list_end,
    produce,
    produce_request,
)
from tidelog.broker.partitions.fetch.followers.session import FollowerSession
from tidelog.broker.partitions.following.fetcher import Fetcher
from tidelog.client import apis
from tidelog.protocol.errors import BrokerError, ErrorCode, NotLeaderOrFollower
from tidelog.protocol.group_errors import NotCoordinator

OFFSETS = "__consumer_offsets"
SUSPENDED, RESUMED = "partition leaders suspended", "partition leaders resumed"


def cut_off(broker):
    """No renewal is confirmed any more."""
    broker.cluster.lease._ends_ms = 0  # time does not pass in these tests


def is_suspended(broker, topic, index=0):
    led = broker.replicas.led(broker.log(topic, index))
    try:
        led.check_leading()
    except NotLeaderOrFollower:
        return led.leader.is_leading
    return False


async def followed(three, topic, index=0, *, leader=1):
    """Waits until all followers have asked for all that there is."""
    led = three[leader].replicas.led(three[leader].log(topic, index))
    await eventually(lambda: len(led.parked) == len(led.leader.followers))
    return led


async def followers_leave(three):
    """The sessions of the followers end; the metadata do not say so, as for a leader that is cut off."""
    for number in (2, 3):
        await three[number].lose_session(is_noticed=False)


def logged(caplog, what):
    return [each for each in caplog.records if each.message.startswith(what)]


async def test_an_idle_partition_goes_on_while_followers_ask_for_it_in_their_sessions(three):
    await three.create("t", replicas=((1, 2, 3),) * 2)
    led = await followed(three, "t")
    cut_off(three[1])
    for remote in led.leader.followers:
        remote.asked_ms = None  # all that named the partition was long ago
    await three[1].replicas.tick()
    assert not is_suspended(three[1], "t")
    assert (await produce(three[1], "t", b"a")).error_code == 0


async def test_every_client_is_refused_until_a_follower_asks_again(three, caplog):
    caplog.set_level("INFO", "tidelog.replicas")
    await three.create("t", replicas=((1, 2, 3),) * 3)
    await three.create("own", replicas=((1,),))
    await produce(three[1], "t", b"a")
    replicas, epoch = three[1].replicas, three.record("t").leader_epoch
    waits = asyncio.ensure_future(consume(three[1], "t", offset=1, wait_ms=60_000, min_bytes=1_000))
    await eventually(lambda: len(three[1].node.purgatory) == 1)
    cut_off(three[1])
    await followers_leave(three)
    unanswered = asyncio.ensure_future(produce(three[1], "t", b"b", timeout_ms=60_000))
    await eventually(lambda: is_suspended(three[1], "t"))
    refused = [
        (await produce(three[1], "t", b"c", acks=1)).error_code,
        (await consume(three[1], "t")).error_code,
        (await list_end(three[1], "t")).error_code,
        (await delete_before(three[1], "t", 1)).error_code,
        (await waits).error_code,
        (await unanswered).error_code,
    ]
    assert set(refused) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (await produce(three[1], "own", b"x", acks=1)).error_code == 0
    assert not replicas.all_suspended  # nobody else can lead `own`
    await replicas.tick()
    assert sorted(replicas.suspended_logs()) == ["t-0", "t-1", "t-2"]
    (line,) = logged(caplog, SUSPENDED)
    assert (line.newly, line.suspended, line.leaders) == (3, 3, 4)

    for number in (2, 3):
        await three[number].register()
    await eventually(lambda: not replicas.suspended_logs())
    assert (await produce(three[1], "t", b"d")).error_code == 0
    assert replicas.led(three[1].log("t")).leader.leader_epoch == epoch
    await replicas.tick()
    assert sum(each.resumed for each in logged(caplog, RESUMED)) == 3


async def test_what_becomes_durable_after_the_suspension_is_not_acknowledged(three):
    await three.create("t", ((1, 2, 3),) * 2, {"flush.messages": "1"})
    logs = [three[1].log("t", index) for index in (0, 1)]
    request = produce_request("t", {0: b"a", 1: b"b"}, acks=1)
    with contextlib.ExitStack() as slow:
        for log in logs:
            slow.enter_context(log.state.commit_lock)  # the disk does not answer
        waits = asyncio.ensure_future(ask(three[1], request, apis.PRODUCE))
        await eventually(lambda: all(log.log_end_offset == 1 for log in logs))
        cut_off(three[1])
        await followers_leave(three)
        await eventually(lambda: all(is_suspended(three[1], "t", i) for i in (0, 1)))
        assert not waits.done()
    answers = (await waits).responses[0].partition_responses
    codes = [each.error_code for each in answers]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


async def suspend(three, topic):
    """Creates a topic whose leader is then cut off, and left by its followers."""
    await three.create(topic)
    await followed(three, topic)
    cut_off(three[1])
    await followers_leave(three)
    await eventually(lambda: is_suspended(three[1], topic))


async def test_a_refused_client_is_not_sent_back_to_the_leader_that_refused_it(three):
    await suspend(three, "t")
    refused = await produce(three[1], "t", b"c", acks=1)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader is None


async def test_a_partition_of_two_waits_while_the_other_replica_is_down(three):
    await three.create("t", replicas=((1, 2),))
    await followed(three, "t")
    cut_off(three[1])
    await three[2].lose_session(is_noticed=False)
    await eventually(lambda: is_suspended(three[1], "t"))
    assert three[1].replicas.all_suspended


async def test_a_coordinator_refuses_meanwhile_and_reads_its_partition_again(three, caplog):
    caplog.set_level("INFO", "tidelog.coordinators")
    await three.create(OFFSETS)
    await followed(three, OFFSETS)
    coordinator = three[1].node.coordinator
    coordinator.start()
    try:
        epoch = await eventually(lambda: coordinated(coordinator))
        cut_off(three[1])
        await followers_leave(three)
        await eventually(lambda: is_suspended(three[1], OFFSETS))
        await eventually(lambda: not coordinated(coordinator))
        with pytest.raises(NotCoordinator):
            coordinator.runtime.ownership.check(0)
        for number in (2, 3):
            await three[number].register()
        assert await eventually(lambda: coordinated(coordinator)) == epoch
        assert len(logged(caplog, "coordinator loaded partitions")) == 2
        await followed(three, OFFSETS)
    finally:
        await coordinator.stop()


def coordinated(coordinator):
    """The epoch in which a coordinator serves the partition, and one more; None if it does not."""
    try:
        return coordinator.runtime.ownership.check(0) + 1
    except BrokerError:
        return None


@pytest.fixture
def forgotten(monkeypatch):
    """The index and the replica of each partition that a follower asks for no more."""
    forget, noted = FollowerSession._forget, []

    def note(session, name):
        noted.append((name[1], session._replica))
        forget(session, name)

    monkeypatch.setattr(FollowerSession, "_forget", note)
    return noted


async def test_a_follower_tells_the_leader_whose_partition_it_leaves(three, forgotten):
    await three.create("t", replicas=((1, 2, 3),) * 2)
    for index in (0, 1):
        await followed(three, "t", index)
    await three.elect("t", 2)
    await eventually(lambda: (0, 3) in forgotten)
    assert (1, 3) not in forgotten
    await followed(three, "t", leader=2)
    await followed(three, "t", 1)


async def test_so_it_does_if_the_leader_has_not_answered_its_first_fetch_yet(
    three, forgotten, monkeypatch
):
    answered, held = Fetcher.answered, []
    await three.create("t", replicas=((1, 2, 3),) * 2)
    for index in (0, 1):
        await followed(three, "t", index)
    fetcher = three[3].replicas.fetchers.by_leader[1]
    first = fetcher._connection

    def hold(one, answer):
        if one is fetcher and one._connection is not first:
            held.append(answer)
        elif one is not fetcher:
            answered(one, answer)

    monkeypatch.setattr(Fetcher, "answered", hold)
    first.close()
    await eventually(lambda: len(fetcher._asked) == 2 and not fetcher._session_id)
    forgotten.clear()
    await three.elect("t", 2)
    await eventually(lambda: len(fetcher) == 1 and held)
    monkeypatch.setattr(Fetcher, "answered", answered)
    fetcher.answered(held.pop())
    await eventually(lambda: (0, 3) in forgotten)
    assert (1, 3) not in forgotten


@pytest.mark.parametrize("says_so", [True, False])
async def test_what_a_follower_forgets_or_leaves_with_its_connection_counts_no_more(three, says_so):
    topic = await three.create("t")
    led = await followed(three, "t")
    await followers_leave(three)
    cut_off(three[1])
    asked = wanted(epoch=led.leader.leader_epoch)
    async with Follower(three, topic) as follower:
        await follower.fetch(asked)
        await follower.fetch(asked, session=(1, 1))
        await three[1].replicas.tick()
        assert not is_suspended(three[1], "t")
        if says_so:
            await follower.fetch(session=(1, 2), forgotten=[0])
            assert is_suspended(three[1], "t")
    await eventually(lambda: is_suspended(three[1], "t"))
