"""Replication between brokers on one event loop: followers, acknowledgements, elections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.broker.partitions.follower import Follower, wanted
from tests.broker.partitions.inside import (
    append,
    consume,
    eventually,
    part_of,
    produce,
    values_of,
)
from tidelog.broker.partitions import replication_state
from tidelog.broker.partitions.leading.isr_changes import IsrChanges
from tidelog.client.async_connection import AsyncConnection
from tidelog.protocol.errors import ErrorCode, KafkaStorageError, NotLeaderOrFollower
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.layout import Record
from tidelog.storage.log.high_watermark import Role

NO_SESSION = (0, -1)  # of fetches


async def test_acks_all_is_answered_when_all_replicas_have_the_records(three):
    await three.create("t")
    for number in range(20):
        answer = await produce(three[1], "t", b"%d" % number)
        assert (answer.error_code, answer.base_offset) == (0, number)
        for broker in three.all.values():
            assert broker.log("t").log_end_offset == number + 1
    assert three[1].log("t").high_watermark == 20
    found = await consume(three[1], "t")
    assert found.high_watermark == 20
    wanted = [b"%d" % number for number in range(20)]
    assert [values_of(broker.log("t")) for broker in three.all.values()] == [wanted] * 3


@pytest.mark.parametrize("replicas", [(1, 2), (1,)])
async def test_a_leader_counts_an_append_once_and_its_duplicates(two, replicas):
    await two.create("t", (replicas,))
    record = Record(0, 1_000, None, b"a")
    data = build([record], producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(3):
        assert part_of(await append(two[1], "t", data)).error_code == 0
    counts = two[1].node.metrics.topics["t"]
    assert (counts.messages_in, counts.duplicates) == (1, 2)


async def test_in_sync_replicas_are_logged_though_the_outcome_of_their_change_was_lost(
    three, monkeypatch, caplog
):
    class Losing:
        """Stores everything, and tells nobody."""

        def __init__(self, store):
            self.read, self._transact = store.read, store.transact

        async def transact(self, compares, operations):
            await self._transact(compares, operations)
            raise KafkaStorageError("the answer is lost")

    def store(changes):
        return Losing(changes._metadata.store)

    def logged():
        found = [each for each in caplog.records if each.message == "in-sync replicas changed"]
        return [each.isr for each in found if getattr(each, "log", None) == "t-0"]

    caplog.set_level("DEBUG", "tidelog.replicas")  # a line for each partition
    await three.create("t")
    monkeypatch.setattr(IsrChanges, "_store", property(store))
    await three.put("t", isr=(1, 2))
    await eventually(lambda: sorted(three.record("t").isr) == [1, 2, 3])
    await eventually(lambda: [sorted(isr) for isr in logged()] == [[1, 2], [1, 2, 3]])


async def test_followers_that_keep_up_share_what_is_read(three, monkeypatch):
    read, reads = replication_state.read_for_follower, []

    def counted(*asked, **how):
        answer = read(*asked, **how)
        reads.append(answer[1])
        return answer

    monkeypatch.setattr(replication_state, "read_for_follower", counted)
    await three.create("t")
    await produce(three[1], "t", b"first")
    reads.clear()
    for number in range(50):
        await produce(three[1], "t", b"%d" % number)
    assert 50 <= sum(size > 0 for size in reads) < 90
    wanted = [b"first", *(b"%d" % number for number in range(50))]
    assert [values_of(broker.log("t")) for broker in three.all.values()] == [wanted] * 3


async def test_another_leader_goes_on_and_the_old_one_follows(three):
    await three.create("t")
    await produce(three[1], "t", b"a")
    await three.elect("t", 2)
    refused = await produce(three[1], "t", b"b")
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = await produce(three[2], "t", b"c")
    assert (answer.error_code, answer.base_offset) == (0, 1)
    for broker in three.all.values():
        assert values_of(broker.log("t")) == [b"a", b"c"]


async def test_a_leader_that_was_alone_with_its_records_drops_them_as_follower(three):
    await three.create("t")
    await produce(three[1], "t", b"a")
    for number in (2, 3):
        await three[number].lose_session()
    await produce(three[1], "t", b"only here", acks=1)
    assert three[1].log("t").log_end_offset == 2
    assert three[1].log("t").high_watermark == 1
    await three[1].lose_session()
    for number in (2, 3):
        await three[number].register()
    await three.elect("t", 2)
    await three[1].register()  # earlier, it would lead again, and the others fetch from it
    answer = await produce(three[2], "t", b"c")
    assert (answer.error_code, answer.base_offset) == (0, 1)
    await eventually(lambda: values_of(three[1].log("t")) == [b"a", b"c"])


async def test_too_small_an_isr_refuses_acks_all_and_stores_nothing(three):
    await three.create("t", configs={"min.insync.replicas": "2"})
    for number in (2, 3):
        await three[number].lose_session()
    await three.put("t", isr=(1,))
    await eventually(lambda: three[1].replicas.led(three[1].log("t")).leader.isr == (1,))
    answer = await produce(three[1], "t", b"a")
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert three[1].log("t").log_end_offset == 0


async def test_a_partition_that_comes_while_a_fetch_is_parked_does_not_wait_for_it(three):
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 60_000  # longer than this test waits for anything
    await three.create("first")
    leader = three[1].replicas.led(three[1].log("first"))
    await eventually(lambda: len(leader.parked) == 2)
    await three.create("second")
    answer = await produce(three[1], "second", b"a")
    assert answer.error_code == 0


async def test_a_partition_that_comes_while_a_fetch_is_being_ended_is_asked_for_afterwards(
    three, monkeypatch
):
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 60_000  # longer than this test waits for anything
    await three.create("first")
    leader = three[1].replicas.led(three[1].log("first"))
    await eventually(lambda: len(leader.parked) == 2)
    fetchers = [three[number].replicas.fetchers.by_leader[1] for number in (2, 3)]
    await eventually(lambda: all(len(fetcher._sent) == 1 for fetcher in fetchers))
    post_to, is_full, late = AsyncConnection.post_to, asyncio.Event(), []

    def later(connection, receiver, *args):
        """Two fetches are under way until the test says that the second is answered."""

        def answered(answer):
            late.append(asyncio.ensure_future(_after(is_full, receiver, answer)))

        ours = SimpleNamespace(answered=answered, broken=receiver.broken)
        post_to(connection, ours, *args)

    monkeypatch.setattr(AsyncConnection, "post_to", later)
    for fetcher in fetchers:
        fetcher.ask_again(next(iter(fetcher._followed.values())))
    await eventually(lambda: all(len(fetcher._sent) == 2 for fetcher in fetchers))
    await three.create("second")
    await eventually(lambda: all(len(fetcher) == 2 for fetcher in fetchers))
    is_full.set()
    assert (await produce(three[1], "second", b"a", timeout_ms=5_000)).error_code == 0


async def _after(event, receiver, answer):
    await event.wait()
    receiver.answered(answer)


async def test_a_request_that_comes_together_with_a_fetch_ends_its_wait(three):
    topic = await three.create("t")
    await three[3].lose_session(is_noticed=False)  # the test fetches for it
    async with Follower(three, topic) as follower:
        await follower.fetch(session=NO_SESSION)
        parked = follower.fetch(wanted(), session=NO_SESSION, max_wait_ms=60_000)
        answers = await asyncio.gather(parked, follower.fetch(session=NO_SESSION))
    assert [answer.error_code for answer in answers] == [0, 0]


async def test_a_follower_that_waits_asks_again_whatever_the_clock_of_its_timer_shows(
    three, monkeypatch
):
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 50
    topic = await three.create("t")
    for number in (2, 3):
        replicas = three[number].replicas
        followed = await eventually(lambda at=replicas: at.followed_by_id(topic.topic_id, 0))
        monkeypatch.setattr(
            replicas.fetching, "monotonic_s", lambda: 0.0
        )  # it seems to stand still
        followed._wait(0.1)
    assert (await produce(three[1], "t", b"a")).error_code == 0


async def test_a_change_of_an_earlier_leader_epoch_that_waits_is_not_written(
    three, monkeypatch, caplog
):
    await three.create("t", replicas=((1, 2, 3), (1, 2, 3)))
    await three[3].lose_session(is_noticed=False)  # it does not join again
    commit, goes_on = IsrChanges._commit, asyncio.Event()

    async def late(changes, wanted):
        await goes_on.wait()
        return await commit(changes, wanted)

    def propose(index):
        led = three[1].replicas.led(three[1].log("t", index))
        led.do([led.leader._propose((1, 2))])

    monkeypatch.setattr(IsrChanges, "_commit", late)
    propose(1)
    await asyncio.sleep(0)  # it is on its way
    propose(0)
    await three.elect("t", 2)
    await three.elect("t", 1)
    propose(0)
    goes_on.set()
    await eventually(lambda: all(three.record("t", at).isr == (1, 2) for at in (0, 1)))
    assert "has no outcome" not in caplog.text


async def test_a_leader_that_has_stopped_answers_nobody_and_leaves_its_log_alone(three):
    await three.create("t")
    led = three[1].replicas.led(three[1].log("t"))
    assert three[1].log("t").state.leadership.role is Role.LEADER
    await three[1].lose_session()
    assert three[1].log("t").state.leadership.role is Role.FOLLOWER
    with pytest.raises(NotLeaderOrFollower):
        led.check_leading()
