"""Fetches between brokers name what has changed, and their answers too (KIP-227)."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tests.broker.partitions.follower import Follower, wanted
from tests.broker.partitions.inside import (
    ask,
    eventually,
    produce,
    produce_request,
    values_of,
)
from tidelog.broker.metadata.brokers.records import OfflineRecord, offline_key, put_offline
from tidelog.broker.metadata.store import Delete
from tidelog.broker.partitions import replication_state
from tidelog.broker.partitions.fetch.followers import follower_fetch
from tidelog.broker.partitions.fetch.followers import session as sessions
from tidelog.broker.partitions.following import fetcher as fetchers
from tidelog.broker.partitions.following.partition_follower import PartitionFollower
from tidelog.client import apis
from tidelog.client.async_connection import AsyncConnection
from tidelog.client.errors import ConnectionBroken
from tidelog.config import BrokerConfig
from tidelog.protocol.api.fetch import FetchRequest
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.message import codec
from tidelog.storage.log.values import Cleaning
from tidelog.storage.would_block import WouldBlock

WIDE = 20


def answered(response) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


async def test_a_fetch_names_what_was_answered_and_an_answer_what_has_news(three, monkeypatch):
    monkeypatch.setattr(sessions, "_LOOK_S", 1e9)  # what leaders know is another test's
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 60_000  # longer than this test waits for anything
    await three.create("wide", replicas=((1, 2, 3),) * WIDE)
    leds = [three[1].replicas.led(three[1].log("wide", index)) for index in range(WIDE)]
    await eventually(lambda: all(len(led.parked) == 2 for led in leds))
    post_to, named = AsyncConnection.post_to, []

    def noted(connection, receiver, request, key, version):
        asked = request
        if isinstance(request, bytes):
            asked, _ = codec(FetchRequest, version).decode(request)
        named.extend(one.partition for topic in asked.topics for one in topic.partitions)
        post_to(connection, receiver, request, key, version)

    monkeypatch.setattr(AsyncConnection, "post_to", noted)
    for value in (b"a", b"b"):
        assert (await produce(three[1], "wide", value, index=7)).error_code == 0
    for broker in three.all.values():
        await eventually(lambda at=broker: values_of(at.log("wide", 7)) == [b"a", b"b"])
    assert set(named) == {7}


async def test_a_session_answers_a_question_once_and_when_there_is_news(three):
    topic = await three.create("t", replicas=((1, 2, 3),) * 2)
    await three[3].lose_session(is_noticed=False)  # the test fetches for it
    async with Follower(three, topic) as follower:
        first = await follower.fetch(wanted(0), wanted(1), session=(0, 0), max_wait_ms=20_000)
        assert first.session_id
        assert answered(first) == [0, 1]  # a session begins with everything
        session = first.session_id
        await produce(three[1], "t", b"a", index=1, acks=1)
        second = await follower.fetch(
            wanted(0), wanted(1), session=(session, 1), max_wait_ms=20_000
        )
        assert answered(second) == [1]
        third = await follower.fetch(session=(session, 2))
        assert answered(third) == []  # partition 1 was not asked for again
        await produce(three[1], "t", b"a", acks=1)
        fourth = await follower.fetch(session=(session, 3), max_wait_ms=20_000)
        assert answered(fourth) == [0]  # asked for by the second fetch


async def test_a_session_ends_with_its_connection(three):
    topic = await three.create("t")
    led = three[1].replicas.led(three[1].log("t"))
    await three[3].lose_session(is_noticed=False)
    await eventually(lambda: len(led.parked) == 1)
    async with Follower(three, topic) as follower:
        await follower.fetch(wanted())
        await follower.fetch(wanted(), session=(1, 1))
        await eventually(lambda: len(led.parked) == 2)
    await eventually(lambda: len(led.parked) == 1)


@pytest.mark.parametrize(
    ("session", "error"),
    [
        ((1, 3), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((1, 1), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((2, 2), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
async def test_a_fetch_that_does_not_follow_the_last_one_is_refused(three, session, error):
    topic = await three.create("t")
    await three[3].lose_session(is_noticed=False)
    async with Follower(three, topic) as follower:
        await follower.fetch(wanted())
        await follower.fetch(wanted(), session=(1, 1))
        refused = await follower.fetch(wanted(), session=session)
        assert refused.error_code == error


async def test_a_follower_learns_what_its_leader_knows_without_records(three, monkeypatch):
    monkeypatch.setattr(sessions, "_LOOKED_AT", 3)  # fewer than there are
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 100
    await three.create("wide", replicas=((1, 2, 3),) * WIDE)
    for index in (0, WIDE - 1):
        await produce(three[1], "wide", b"a", index=index)
        three[1].log("wide", index).state.cleaning = Cleaning(1)
        for number in (2, 3):
            state = three[number].log("wide", index).state
            await eventually(lambda of=state: of.leadership.leader_cleaned_offset == 1)


async def test_a_follower_is_sent_its_leaders_state_after_an_error(three):
    topic = await three.create("t")
    await three[3].lose_session(is_noticed=False)  # the test fetches for it
    async with Follower(three, topic) as follower:
        begun = await follower.fetch(wanted(epoch=9))
        (refused,) = begun.responses[0].partitions
        assert refused.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert refused.replication_state is None
        partitions, number = [wanted()], 1
        async with asyncio.timeout(20):  # far less than after which it would be sent again
            while not answered(
                found := await follower.fetch(
                    *partitions, session=(begun.session_id, number), max_wait_ms=100
                )
            ):
                partitions, number = [], number + 1
        assert found.responses[0].partitions[0].replication_state is not None


async def test_an_idle_follower_joins_when_what_kept_it_out_is_over(three):
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 100
    topic = await three.create("t")
    led = three[1].replicas.led(three[1].log("t"))
    await eventually(lambda: len(led.parked) == 2)
    metadata = three[1].node.metadata
    await metadata.transact((), (put_offline(3, OfflineRecord(full={topic.topic_id: (0,)})),))
    await three.put("t", isr=(1, 2))
    await eventually(lambda: led.leader.isr == (1, 2) and len(led.parked) == 2)
    await metadata.transact((), (Delete(offline_key(3)),))
    await eventually(lambda: led.leader.isr == (1, 2, 3))


async def test_a_follower_that_loses_its_connection_asks_for_everything_anew(three):
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 60_000
    await three.create("t", replicas=((1, 2, 3),) * 2)
    leds = [three[1].replicas.led(three[1].log("t", index)) for index in (0, 1)]
    await eventually(lambda: all(len(led.parked) == 2 for led in leds))
    for connection in list(three[1].node.connections):
        connection.abort()
    await eventually(lambda: not any(led.parked for led in leds))
    for index in (0, 1):
        assert (await produce(three[1], "t", b"a", index=index)).error_code == 0


async def test_what_a_fetch_without_a_session_asked_is_forgotten_with_its_connection(three):
    topic = await three.create("t")
    led = three[1].replicas.led(three[1].log("t"))
    await eventually(lambda: len(led.parked) == 2)
    await three[3].lose_session(is_noticed=False)  # the test fetches for it
    await eventually(lambda: len(led.parked) == 1)
    async with Follower(three, topic) as follower:
        waiting = asyncio.ensure_future(
            follower.fetch(wanted(), session=(0, -1), max_wait_ms=60_000)
        )
        await eventually(lambda: len(led.parked) == 2)
    with pytest.raises(ConnectionBroken):
        await waiting
    await eventually(lambda: len(led.parked) == 1)


async def test_a_high_watermark_waits_a_moment_for_records_where_consumers_read_from_followers(
    racked, monkeypatch
):
    monkeypatch.setattr(sessions, "_LOOK_S", 1e9)
    monkeypatch.setattr(follower_fetch, "_HIGH_WATERMARK_DELAY_S", 60)
    led = await led_alone(racked, wait_ms=60_000)
    await produce_twice(racked, led)
    monkeypatch.setattr(follower_fetch, "_HIGH_WATERMARK_DELAY_S", 0.01)
    assert (await produce(racked[1], "t", b"a")).error_code == 0
    for number in (2, 3):
        await eventually(lambda at=racked[number]: at.log("t").high_watermark == 3)


async def test_a_high_watermark_waits_for_the_end_of_the_fetch_where_consumers_read_from_leaders(
    three, monkeypatch
):
    monkeypatch.setattr(sessions, "_LOOK_S", 1e9)
    monkeypatch.setattr(follower_fetch, "_HIGH_WATERMARK_DELAY_S", 0)
    led = await led_alone(three, wait_ms=60_000)
    await produce_twice(three, led)
    for number in (2, 3):
        three[number].replicas.fetching.fetch_wait_ms = 50
    assert (await produce(three[1], "t", b"a")).error_code == 0
    for number in (2, 3):
        await eventually(lambda at=three[number]: at.log("t").high_watermark == 3)


async def led_alone(three, *, wait_ms):
    """Makes a topic whose followers fetch with this wait; returns the leader's side of it."""
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = wait_ms
    await three.create("t")
    led = three[1].replicas.led(three[1].log("t"))
    await eventually(lambda: len(led.parked) == 2)
    return led


async def produce_twice(three, led):
    """Produces two records; followers hear of the first high watermark with the second record."""
    for count in (1, 2):
        assert (await produce(three[1], "t", b"a")).error_code == 0
        await eventually(lambda: len(led.parked) == 2)
        # An answer that says the high watermark too early has arrived by then.
        await asyncio.sleep(0.1)
        for number in (2, 3):
            log = three[number].log("t")
            assert (log.log_end_offset, log.high_watermark) == (count, count - 1)


async def test_news_of_many_partitions_comes_in_several_answers(racked, monkeypatch):
    answerable, sizes = sessions.FollowerSession.answerable, []

    def counted(self, now_s):
        found = answerable(self, now_s)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(sessions, "_ANSWERED", 3)
    monkeypatch.setattr(sessions, "_LOOK_S", 1e9)
    monkeypatch.setattr(sessions.FollowerSession, "answerable", counted)
    count = 20
    await racked.create("t", [(1, 2, 3)] * count)
    request = produce_request("t", {index: b"%d" % index for index in range(count)})
    answer = await ask(racked[1], request, apis.PRODUCE)
    assert {part.error_code for part in answer.responses[0].partition_responses} == {0}
    for number in (2, 3):
        for index in range(count):
            log = racked[number].log("t", index)
            await eventually(lambda at=log: at.high_watermark == 1)
            assert values_of(log) == [b"%d" % index]
    assert max(sizes) == 3


async def test_many_partitions_that_are_ready_together_are_named_in_several_fetches(
    three, monkeypatch
):
    take, sizes = sessions.FollowerSession.take, []

    def counted(self, request):
        sizes.append(sum(len(topic.partitions) for topic in request.topics))
        take(self, request)

    monkeypatch.setattr(fetchers, "_NAMED", 3)
    monkeypatch.setattr(sessions.FollowerSession, "take", counted)
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 60_000  # no fetch ends by itself
    await three.create("wide", replicas=((1, 2, 3),) * WIDE)
    leds = [three[1].replicas.led(three[1].log("wide", index)) for index in range(WIDE)]
    await eventually(lambda: all(len(led.parked) == 2 for led in leds))
    sizes.clear()
    three[2].replicas.fetchers.by_leader[1]._connection.close()
    await eventually(lambda: sum(sizes) >= WIDE and all(len(led.parked) == 2 for led in leds))
    assert max(sizes) == 3


async def test_a_long_answer_is_taken_in_several_turns_of_the_loop(three, monkeypatch):
    """The clock of a follower is moved by what it takes."""
    step_s, taken, most = fetchers._TAKEN_S / 2, [], [0]
    take, fetching = PartitionFollower.take, three[2].replicas.fetching

    def counted(self, request, data):
        if data.records and self.partition is three[2].node.store.partition("t", self.name[1]):
            taken.append(self.name[1])
        take(self, request, data)

    async def watch():
        while True:
            before = len(taken)
            await asyncio.sleep(0)
            most[0] = max(most[0], len(taken) - before)

    await three.create("t", [(1, 2)] * WIDE)
    leds = [three[1].replicas.led(three[1].log("t", index)) for index in range(WIDE)]
    await eventually(lambda: all(led.parked for led in leds))
    monkeypatch.setattr(PartitionFollower, "take", counted)
    fetching.monotonic_s = lambda: len(taken) * step_s
    watching = asyncio.ensure_future(watch())
    request = produce_request("t", dict.fromkeys(range(WIDE), b"a"))
    answer = await ask(three[1], request, apis.PRODUCE)
    watching.cancel()
    assert {part.error_code for part in answer.responses[0].partition_responses} == {0}
    assert sorted(taken) == list(range(WIDE))
    assert 0 < most[0] <= 4  # three of an answer: it has held the loop for too long then


async def test_a_partition_that_becomes_ready_as_its_connection_breaks_is_asked_for_anew(three):
    await three.create("t")
    # What happens between two turns of the loop shows nowhere else.
    fetcher = await eventually(lambda: three[2].replicas.fetchers.by_leader.get(1))
    await eventually(lambda: fetcher._sent and fetcher._session_id)
    (followed,) = fetcher._followed.values()
    fetcher._connection.close()  # the loop of the fetcher has not heard of it yet
    fetcher.ask_again(followed)
    assert (await produce(three[1], "t", b"a")).error_code == 0


async def test_a_read_that_waited_until_another_broker_led_is_refused(three, monkeypatch):
    read, is_read, may_read = (
        replication_state.read_for_follower,
        threading.Event(),
        threading.Event(),
    )

    def read_late(*args, may_block, **options):
        if not may_block:
            raise WouldBlock
        is_read.set()
        assert may_read.wait(20)
        return read(*args, may_block=may_block, **options)

    topic = await three.create("t")
    for number in (2, 3):
        await three[number].lose_session(is_noticed=False)  # the test fetches for one of them
    await produce(three[1], "t", b"a", acks=1)
    monkeypatch.setattr(replication_state, "read_for_follower", read_late)
    async with Follower(three, topic) as follower:
        asked = asyncio.create_task(follower.fetch(wanted()))
        try:
            await eventually(is_read.is_set)
            log = three[1].log("t")
            await three.put("t", leader=2, leader_epoch=1)
            await eventually(lambda: log.state.leadership.epoch == 1)
        finally:
            may_read.set()
        (data,) = (await asked).responses[0].partitions
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not data.records


def session_of(quotas):
    node = SimpleNamespace(config=BrokerConfig())
    return sessions.FollowerSession(sessions.SessionContext(node, None, None, None, quotas, None))


def test_a_session_forgets_what_it_told_of_partitions_that_are_not_asked_for_any_more():
    session = session_of(quotas=None)
    many = 2 * sessions._SENT_LOOKED_AT
    session._last_sent = {(0, index): (0.0, ()) for index in range(many)}
    kept = session._last_sent[0, many] = (1_000.0, ())
    for _ in range(3):
        assert session._sent_long_ago(1_000.0) == []
    assert session._last_sent == {(0, many): kept}


class Question:
    """An open question that there is always news for."""

    def __init__(self, number):
        self.name, self.is_open, self.led, self.is_held = (0, number), True, None, False

    def look_again(self):
        return True

    def hold(self):
        self.is_held = True

    def unpark(self):
        pass


def test_what_a_look_finds_is_answered_beside_many_partitions_with_news(monkeypatch):
    session = session_of(quotas=SimpleNamespace(leader=None))
    busy = [Question(number) for number in range(3 * sessions._ANSWERED)]
    idle = Question(-1)
    session._fetches = {each.name: each for each in (*busy, idle)}
    session._woken = dict.fromkeys(busy)
    monkeypatch.setattr(sessions.FollowerSession, "_worth_an_answer", lambda _: [idle])
    first = session.answerable(1_000.0)
    assert first == [*busy[: sessions._ANSWERED], idle]
    assert [each for each in busy if each.is_held] == busy[sessions._ANSWERED :]
    assert session.answerable(1_000.1) == busy[sessions._ANSWERED : 2 * sessions._ANSWERED]
    assert session.has_woken
