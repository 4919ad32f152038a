"""A session says what full fetches say, and nothing twice, whatever happens to its partitions.

A random client with a session beside a full fetch of the same partitions after each step: what the
session has told must be what the full fetch says. Records, transactions, deleted records, topics that
are deleted and created again, partitions that are added and forgotten, fetches that wait. Injected bugs
show that a session that misses something is caught.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import types
import uuid
from typing import NamedTuple

import pytest

from tests.broker.logs.test_interrupted_changes import Broker
from tidelog.broker.api import fetch as handler
from tidelog.broker.network.context import Context
from tidelog.broker.network.per_partition import few_partitions
from tidelog.broker.partitions.fetch import fetch_read, incremental
from tidelog.broker.partitions.fetch.session import Cached, FetchSession
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.protocol.errors import FetchSessionIdNotFound
from tidelog.protocol.message import RequestHeader
from tidelog.protocol.records.batch import Record, build

TOPICS = ("a", "b", "c")
PARTITIONS = 3
GONE = {3, 100, 103}  # errors of a topic that was deleted, by name or by id
STEPS = 120
MIN_BYTES = 1


class Told(NamedTuple):
    """What a client knows of a partition."""

    error: int
    high_watermark: int
    log_start: int


class Client:
    """A client with a session, and what it has been told."""

    def __init__(self, node, rng, version):
        self.node, self.rng, self.version = node, rng, version
        self.ids = {name: topic.topic_id for name, topic in node.metadata.image.topics.items()}
        connection = types.SimpleNamespace(
            session=Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT"),
            listener=types.SimpleNamespace(name="PLAINTEXT"),
        )
        self.context = Context(RequestHeader(1, version, 0, None, 0), connection)
        self.session_id, self.epoch, self.isolation_level = 0, 0, 0
        self.wanted = {}  # offsets by (topic, partition)
        self.named, self.forgotten = set(), set()
        self.told = {}
        self.session_ids = set()

    def want(self, key, offset):
        self.wanted[key] = offset
        self.named.add(key)
        self.forgotten.discard(key)

    def forget(self, key):
        del self.wanted[key]
        self.told.pop(key, None)
        self.named.discard(key)
        self.forgotten.add(key)

    def request(self, keys, **more):
        by_id = self.version >= 13
        topics = [
            FetchTopic(
                topic="" if by_id else name,
                topic_id=self.ids[name] if by_id else uuid.UUID(int=0),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=self.wanted[name, index],
                        partition_max_bytes=1 << 20,
                    )
                ],
            )
            for name, index in keys
        ]
        more.setdefault("max_wait_ms", 0)
        return FetchRequest(
            topics=topics, min_bytes=MIN_BYTES, isolation_level=self.isolation_level, **more
        )

    async def ask(self, request):
        answer = handler.handle(self.node, request, self.context)
        return await answer if asyncio.iscoroutine(answer) else answer

    def parts(self, answer):
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return {
            (names[t.topic_id] if self.version >= 13 else t.topic, data.partition_index): data
            for t in answer.responses
            for data in t.partitions
        }

    async def poll(self, **more):
        """The partitions of one fetch of the session, which is checked against what is known."""
        gone = [
            ForgottenTopic(
                topic="" if self.version >= 13 else name,
                topic_id=self.ids[name],
                partitions=[index],
            )
            for name, index in sorted(self.forgotten)
        ]
        named = sorted(self.wanted if self.epoch == 0 else self.named)
        request = self.request(
            named,
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten_topics_data=[] if self.epoch == 0 else gone,
            **more,
        )
        self.named, self.forgotten = set(), set()
        answer = await self.ask(request)
        assert answer.error_code == 0
        is_full, self.session_id = self.epoch == 0, answer.session_id
        assert self.session_id
        self.session_ids.add(self.session_id)
        self.epoch += 1
        return is_full, self.parts(answer)

    async def check(self):
        """One fetch of the session says what a full one would, and only what is new."""
        is_full, got = await self.poll()
        full = self.parts(await self.ask(self.request(sorted(self.wanted))))
        assert set(full) == set(self.wanted)
        for key, data in full.items():
            told = Told(data.error_code, data.high_watermark, data.log_start_offset)
            is_new = told != self.told.get(key) or bool(data.records) or data.error_code != 0
            assert (key in got) == (is_new or is_full), (key, told, self.told.get(key))
            if key not in got:
                continue
            mine = got[key]
            assert (mine.error_code in GONE) == (data.error_code in GONE)
            assert mine.error_code in GONE or mine.error_code == data.error_code
            assert (mine.high_watermark, mine.log_start_offset) == told[1:]
            assert mine.aborted_transactions == data.aborted_transactions
            assert b"".join(map(bytes, mine.records)) == b"".join(map(bytes, data.records))
            self.told[key] = told
            if mine.records and self.rng.random() < 0.8:
                stable = data.last_stable_offset
                self.want(key, stable if self.isolation_level else data.high_watermark)
            elif data.error_code == 1:
                self.want(key, 0)


class World:
    """Steps of chance around one client."""

    def __init__(self, node, seed, version):
        self.node, self.rng = node, random.Random(seed)
        self.version, self.producers = version, 0

    async def start(self):
        for name in TOPICS:
            await self.node.topics.create(name, partitions=PARTITIONS)
        self.client = Client(self.node, self.rng, self.version)
        for name in TOPICS:
            for index in range(PARTITIONS):
                self.client.want((name, index), 0)

    def logs(self):
        return [each for each in self.node.store.opened() if each.topic in TOPICS]

    def append(self, log=None):
        """A record, or a transaction that is aborted or committed, or stays open."""
        log = log or self.rng.choice(self.logs())
        kind = self.rng.choice(("plain", "plain", "commit", "abort", "open"))
        if kind == "plain":
            data = build([Record(0, 1, None, b"x")])
            self.appended(log, log.append(data, now_ms=1_000, produce_version=9))
            return
        self.producers += 1
        pid = self.producers
        data = build(
            [Record(0, 1, None, b"t")],
            producer_id=pid,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        guard = log.verification(pid, 0, 0)
        self.appended(log, log.append(data, now_ms=1_000, produce_version=9, guard=guard))
        if kind != "open" or self.rng.random() < 0.8:
            marker = log.append_marker(
                pid, 0, is_commit=kind == "commit", coordinator_epoch=0, now_ms=1_000
            )
            self.appended(log, marker)

    def appended(self, log, appended):
        self.node.purgatory.appended(log, appended)

    def delete_records(self):
        log = self.rng.choice(self.logs())
        log.retainer.delete_records_before(log.high_watermark)

    async def recreate(self):
        name = self.rng.choice(TOPICS)
        await self.node.topics.delete(name)
        if self.rng.random() < 0.5:
            await self.client.check()  # between the two
        await self.node.topics.create(name, partitions=PARTITIONS)
        if self.rng.random() < 0.7:  # else the client goes on with what it knows
            for key in [key for key in self.client.wanted if key[0] == name]:
                self.client.forget(key)
            await self.client.check()
            self.client.ids[name] = self.node.metadata.image.topics[name].topic_id
            self.client.want((name, 0), 0)

    def change_client(self):
        client, rng = self.client, self.rng
        key = (rng.choice(TOPICS), rng.randrange(PARTITIONS))
        if key not in client.wanted:
            client.want(key, 0)
        elif len(client.wanted) > 1 and rng.random() < 0.5:
            client.forget(key)
        else:
            client.want(key, rng.choice((0, client.wanted[key], 10_000)))
        if rng.random() < 0.2:
            client.isolation_level ^= 1

    async def wait(self):
        """A fetch that waits is woken by what comes to any partition of the session."""
        client = self.client
        await client.check()
        now = self.client.parts(await client.ask(client.request(sorted(client.wanted))))
        if any(data.records or data.error_code for data in now.values()):
            return
        polling = asyncio.ensure_future(client.poll(max_wait_ms=60_000))
        await asyncio.sleep(0)
        assert not polling.done(), "there is nothing to answer"
        stable = dict.fromkeys(now)
        log = None
        for log in self.logs():
            if (log.topic, log.index) in stable and log.state.unstable is None:
                break
        else:
            polling.cancel()
            await asyncio.wait([polling])
            client.epoch = client.session_id = 0
            client.told = {}
            return
        data = build([Record(0, 1, None, b"w")])
        self.appended(log, log.append(data, now_ms=1_000, produce_version=9))
        _, got = await asyncio.wait_for(polling, 5)
        key = (log.topic, log.index)
        if client.node.metadata.image.topics[key[0]].topic_id == client.ids[key[0]]:
            assert key in got
            assert got[key].records or log.last_stable_offset == client.wanted[key]
        for key, data in got.items():
            client.told[key] = Told(data.error_code, data.high_watermark, data.log_start_offset)

    async def step(self):
        kind = self.rng.choices(
            ("append", "delete", "recreate", "client", "wait", "nothing"), (8, 2, 1, 3, 2, 2)
        )[0]
        if kind == "append":
            self.append()
        elif kind == "delete":
            self.delete_records()
        elif kind == "recreate":
            await self.recreate()
        elif kind == "client":
            self.change_client()
        elif kind == "wait":
            await self.wait()
        await self.client.check()


async def play(directory, seed, version, steps=STEPS):
    async with Broker(directory) as broker:
        world = World(broker.node, seed, version)
        await world.start()
        with contextlib.ExitStack() as exits:
            exits.callback(broker.node.purgatory.wake_all)
            for _ in range(steps):
                await world.step()
        sessions, client = broker.node.fetch_sessions, world.client
        for session_id in client.session_ids:
            await client.ask(client.request((), session_id=session_id, session_epoch=-1))
        assert (sessions.sessions, sessions.partitions) == (0, 0)
        assert len(broker.node.purgatory) == 0, "a log is still watched"


async def quiet_client(broker, partitions=PARTITIONS):
    """A client that has a session, with nothing new in it."""
    await broker.node.topics.create("a", partitions=partitions)
    client = Client(broker.node, random.Random(0), 12)
    for index in range(partitions):
        client.want(("a", index), 0)
    await client.check()
    return client


def put(broker, index, value=b"x"):
    log = broker.node.partitions.get("a", index)
    data = build([Record(0, 1, None, value)])
    broker.node.purgatory.appended(log, log.append(data, now_ms=1_000, produce_version=9))


async def test_quiet_partitions_are_not_read(tmp_path, monkeypatch):
    async with Broker(tmp_path) as broker:
        client = await quiet_client(broker, 20)
        reads = []

        def counted(node, api, wanted, *more):
            reads.extend(each.partition for each in wanted)
            return few_partitions(node, api, wanted, *more)

        monkeypatch.setattr(fetch_read, "few_partitions", counted)
        assert await client.poll() == (False, {})
        put(broker, 7)
        _, got = await client.poll()
        assert (list(got), reads) == ([("a", 7)], [7])


async def test_a_session_whose_client_is_gone_hears_of_each_log_once(tmp_path):
    async with Broker(tmp_path) as broker:
        client = await quiet_client(broker)
        assert len(broker.node.purgatory) == PARTITIONS
        put(broker, 0)
        broker.node.purgatory.wake(broker.node.partitions.get("a", 1))
        assert len(broker.node.purgatory) == PARTITIONS - 2
        _, got = await client.poll()
        assert list(got) == [("a", 0)]


async def test_a_limit_starves_no_partition(tmp_path):
    """One whose records were sent goes behind the others, as in Kafka; the first returns a batch."""
    async with Broker(tmp_path) as broker:
        client = await quiet_client(broker)
        for index in range(PARTITIONS):
            for _ in range(3):
                put(broker, index, b"x" * 1000)
        turns = []
        for _ in range(2 * PARTITIONS):
            _, got = await client.poll(max_bytes=1_500)
            turns += [key[1] for key, data in got.items() if data.records]
        assert turns == [0, 1, 2, 0, 1, 2]


async def test_a_fetch_that_waits_is_overtaken_by_the_next_one(tmp_path):
    """As in Kafka: the answer that comes late says INVALID_FETCH_SESSION_EPOCH."""
    async with Broker(tmp_path) as broker:
        client = await quiet_client(broker)
        asked = {"session_id": client.session_id, "max_wait_ms": 60_000}
        late = asyncio.ensure_future(client.ask(client.request((), session_epoch=1, **asked)))
        await asyncio.sleep(0)
        next_one = asyncio.ensure_future(client.ask(client.request((), session_epoch=2, **asked)))
        answer = await asyncio.wait_for(late, 60)
        assert (answer.error_code, answer.session_id) == (71, client.session_id)
        put(broker, 1)
        answer = await asyncio.wait_for(next_one, 60)
        assert [key for key, data in client.parts(answer).items() if data.records] == [("a", 1)]


async def test_a_fetch_whose_session_is_closed_waits_no_longer(tmp_path):
    async with Broker(tmp_path) as broker:
        client = await quiet_client(broker)
        asked = {"session_id": client.session_id, "max_wait_ms": 60_000}
        waiting = asyncio.ensure_future(client.ask(client.request((), session_epoch=1, **asked)))
        await asyncio.sleep(0)
        await client.ask(client.request((), session_id=client.session_id, session_epoch=-1))
        assert (await asyncio.wait_for(waiting, 60)).responses == []
        with pytest.raises(FetchSessionIdNotFound):
            await client.ask(client.request((), session_epoch=2, **asked))


@pytest.fixture
def always_looking(monkeypatch):
    """A clock stands still here, so logs are looked at with each fetch."""
    monkeypatch.setattr(incremental, "_LOOK_S", 0.0)


@pytest.mark.usefixtures("always_looking")
@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("seed", range(4))
async def test_a_session_says_what_full_fetches_say(tmp_path, seed, version):
    await play(tmp_path, seed, version)


def _no_mark(self, *_):
    return True


def _learns_nothing(self, image, _topics):
    self.image = image


def _settles_too_early(node, cached, *_):
    incremental.watch(node, cached)
    cached.session.changed.pop(cached, None)


def _sends_no_new_offsets(self, cached, data):
    cached.last_sent = (data.high_watermark, data.log_start_offset)
    return bool(data.records or data.error_code)


def _forgets_nothing(self, _request):
    return []


async def play_all(directory, seeds):
    for seed in seeds:
        place = directory / str(seed)
        place.mkdir()
        await play(place, seed, 12)


@pytest.mark.slow
@pytest.mark.usefixtures("always_looking")
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Cached, "arrived", _no_mark),
        (FetchSession, "learn", _learns_nothing),
        (FetchSession, "sent", _sends_no_new_offsets),
        (FetchSession, "_forget", _forgets_nothing),
        (incremental, "settle", _settles_too_early),
        (incremental, "_look", lambda _session: None),
        (incremental, "watch", lambda _node, _cached: None),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_an_injected_bug_is_caught(tmp_path, monkeypatch, owner, name, bug):
    monkeypatch.setattr(owner, name, bug)
    if name in {"arrived", "learn", "settle"}:  # what is looked for finds this too, later
        monkeypatch.setattr(incremental, "_look", lambda _session: None)
    with pytest.raises((AssertionError, TimeoutError, KeyError)):
        await play_all(tmp_path, range(6))
