"""Several brokers on one event loop, with real logs, sockets and metadata in one file.

Their sessions are written by the test, not by `broker/lifecycle/`: so a test decides who is alive, and
who leads. What needs processes, signals and elections is tested with real ones
(tests/broker/cluster, tests/nemesis).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.boot import Services
from tidelog.broker.clock import SystemClock
from tidelog.broker.lifecycle.cluster import NO_SESSION
from tidelog.broker.lifecycle.lease import Lease
from tidelog.broker.lifecycle.proof import proof_of
from tidelog.broker.metadata.brokers.records import (
    NO_SECRET,
    Endpoint,
    LiveBrokerRecord,
    Secret,
    live_key,
    put_live,
)
from tidelog.broker.metadata.image import Topic
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metadata.names import new_id
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.metadata.store import Delete
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.connection import Connection
from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.config import load
from tidelog.protocol.api import delete_records, list_offsets
from tidelog.protocol.api import produce as produce_api
from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.records.batch import build, records, scan
from tidelog.protocol.records.layout import Record
from tidelog.protocol.sender import Sender, written_tags
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LEASE_MS = 600_000
_PATIENCE_S = 20


class Sessions:
    """Stands for `broker.cluster.Cluster`: the test says when a session begins and ends."""

    def __init__(self, node: Services) -> None:
        self.catch_up = node.metadata.catch_up
        self.me = node.config.cluster.node_id
        self.epoch = NO_SESSION
        self.lease: Lease
        self._changes, self._changed = 0, asyncio.Event()

    def for_placing(self, image):
        return image

    async def session_changed(self, since: int) -> int:
        while self._changes == since:
            await self._changed.wait()
        return self._changes

    def change(self) -> None:
        """Reports that a session has begun or ended."""
        self._changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Broker:
    """One of the brokers."""

    def __init__(
        self, directory: Path, number: int, settings=None, *, boot_id: str = "boot"
    ) -> None:
        self.number = number
        self.settings = dict(settings or {})
        self.directory = directory
        self.boot_id = boot_id
        self.has_secret = True  # unlike the session of an older tidelog
        self.node: Services
        self.port = 0

    async def start(self) -> None:
        config = load(None, {}, {"node.id": str(self.number), **self.settings})
        metadata = local_metadata(self.directory / "metadata.sqlite", self.number, is_shared=True)
        await metadata.open()
        logs = self.directory / f"logs-{self.number}"
        store = LogStore([logs], default_config=config.topic_defaults, boot_id=self.boot_id)
        node = self.node = Services(config, SystemClock(), store, metadata, Metrics())
        self.cluster = Sessions(node)
        self.replicas = node.join(self.cluster)
        node.settings.use(metadata.image)
        store.open(node.clock.now_ms(), node.settings.served_topics(metadata.image))
        await node.topics.start()
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        listener = Listener("PLAINTEXT", "127.0.0.1", self.port, ("127.0.0.1", self.port))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(partial(Connection, node, listener), sock=listening)
        node.ready = True
        self._chores = [
            loop.create_task(node.topics.run()),
            loop.create_task(self.replicas.run()),
        ]
        await self.register()

    async def register(self) -> None:
        """Begins a session."""
        store, metadata = self.node.metadata.store, self.node.metadata
        record = LiveBrokerRecord(
            f"{self.number}-{metadata.image.revision}",
            (Endpoint("PLAINTEXT", "127.0.0.1", self.port),),
            rack=self.node.config.cluster.broker_rack,
            is_fenced=False,
            secret=Secret(f"secret of {self.number}") if self.has_secret else NO_SECRET,
        )
        lease = await store.grant(_LEASE_MS)
        await metadata.transact((), (Delete(live_key(self.number)),))
        revision = await metadata.transact((), (put_live(self.number, record, lease),))
        assert revision is not None
        self.cluster.epoch = revision
        self.cluster.lease = Lease(_LEASE_MS, self.replicas.now_ms())
        await self.node.topics.start()
        self.cluster.change()

    async def lose_session(self, *, is_noticed: bool = True) -> None:
        """Ends the session; returns when no fetch of it is under way.

        Unless it `is_noticed`, the metadata still have the session, so a leader waits for this
        broker as long as it counts as caught up.
        """
        self.cluster.epoch = NO_SESSION
        self.cluster.lease.on_lost()
        self.cluster.change()
        if is_noticed:
            await self.node.metadata.transact((), (Delete(live_key(self.number)),))
        await asyncio.sleep(0.1)

    async def stop(self, *, is_clean: bool = True) -> None:
        node = self.node
        self._server.close()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self.replicas.close()
        for connection in list(node.connections):
            connection.abort()
        await node.topics.stop()
        await asyncio.to_thread(node.pools.stop)
        await asyncio.sleep(0)
        if is_clean:
            node.store.close()
        await node.metadata.close()

    def log(self, topic: str, index: int = 0):
        """The log of a partition here."""
        found = self.node.store.partition(topic, index)
        assert found is not None, f"{topic}-{index} is not at broker {self.number}"
        return found

    def leads(self, topic: str, index: int = 0) -> bool:
        found = self.node.store.opened_partition(topic, index)
        return found is not None and self.replicas.led(found) is not None


class Brokers:
    """Three brokers, unless the test says otherwise."""

    def __init__(self, directory: Path, count: int = 3, settings=None) -> None:
        of = settings or {}
        self.all = {n: Broker(directory, n, of.get(n)) for n in range(1, count + 1)}

    def __getitem__(self, number: int) -> Broker:
        return self.all[number]

    @property
    def any(self) -> Broker:
        return next(iter(self.all.values()))

    async def create(
        self, name: str, replicas=((1, 2, 3),), configs=None, *, leads: bool = True
    ) -> Topic:
        """Creates a topic; each of `replicas` are a partition's, and the first of them leads."""
        assignments = tuple(PartitionRecord(tuple(r), tuple(r), r[0], 0) for r in replicas)
        made = await self.any.node.metadata.add_topic(
            Topic(name, new_id(), assignments, dict(configs or {}))
        )
        if leads:
            for index, record in enumerate(assignments):
                leader = self[record.leader]
                await eventually(lambda at=leader, i=index: at.leads(name, i))
        return made

    def record(self, name: str, index: int = 0) -> PartitionRecord:
        """The state of a partition as it is stored; the newest that any broker has seen."""
        images = [broker.node.metadata.image for broker in self.all.values()]
        return max(images, key=lambda image: image.revision).topics[name].assignments[index]

    async def put(self, name: str, index: int = 0, **fields) -> None:
        """Writes another state of a partition, as a controller does."""
        metadata = self.any.node.metadata
        image = metadata.image
        record = image.topics[name].assignments[index]
        new = record._replace(partition_epoch=record.partition_epoch + 1, **fields)
        await metadata.put_partitions({(name, index): new}, since=image)

    async def elect(self, name: str, leader: int, index: int = 0, **fields) -> None:
        """Lets another broker lead."""
        epoch = self.record(name, index).leader_epoch + 1
        await self.put(name, index, leader=leader, leader_epoch=epoch, **fields)
        await eventually(lambda: self[leader].leads(name, index))


@contextlib.asynccontextmanager
async def brokers(directory: Path, count: int = 3, settings=None):
    """Runs brokers while the `with` lasts; `settings` are those of single ones, by their ids."""
    made = Brokers(directory, count, settings)
    started = []
    try:
        for broker in made.all.values():
            await broker.start()
            started.append(broker)
        yield made
    finally:
        for broker in made.all.values():
            with contextlib.suppress(AttributeError):
                await broker.stop()


async def eventually(condition, what: str = "", deadline_s: float = _PATIENCE_S):
    """Waits until a condition holds, and returns what it gave."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while not (value := condition()):
        assert loop.time() < end_s, f"not within {deadline_s} s: {what or condition}"
        await asyncio.sleep(0.005)
    return value


def tags_of(image, sender: int, receiver: int) -> bytes:
    """The tags of requests of one broker to another, as the sender's session in an image proves them."""
    live = image.brokers[sender]
    proof = proof_of(live.record.secret, sender, live.epoch, receiver)
    return written_tags(Sender(sender, live.epoch, proof))


# --- clients ------------------------------------------------------------------------------------------


async def ask(
    broker: Broker, message, key: int, *, least_version: int = 0, patience_s: float = _PATIENCE_S
):
    """Sends one request to one broker, and returns its answer."""
    (answer,) = await ask_all(
        broker, [message], key, least_version=least_version, patience_s=patience_s
    )
    return answer


async def ask_all(
    broker: Broker, messages, key: int, *, least_version: int = 0, patience_s: float = _PATIENCE_S
):
    """Sends requests to one broker, none of which waits for another's answer; returns the answers."""
    connection = await open_connection("127.0.0.1", broker.port, "test", timeout_s=patience_s)
    try:
        answers = [connection.post(each, key, least_version=least_version) for each in messages]
        async with asyncio.timeout(patience_s):
            return [await answer for answer in answers]
    finally:
        connection.close()
        await connection.wait_closed()


def batch(*values: bytes) -> bytes:
    """A batch of format 2 with these values."""
    return bytes(build([Record(0, 1_000, None, value) for value in values]))


async def produce(
    broker: Broker, topic: str, *values: bytes, index: int = 0, acks: int = -1, timeout_ms=20_000
):
    """Appends one batch at a broker; returns the answer's part of the partition."""
    return part_of(await append(broker, topic, batch(*values), index, acks, timeout_ms))


async def append(broker: Broker, topic: str, data, index=0, acks=-1, timeout_ms=20_000):
    """Appends a record set at a broker; returns the answer."""
    request = append_request(topic, {index: bytes(data)}, acks, timeout_ms)
    return await ask(broker, request, apis.PRODUCE)


def part_of(answer):
    """The part of the only partition of an answer to Produce or Fetch."""
    (topic,) = answer.responses
    (part,) = getattr(topic, "partitions", None) or topic.partition_responses
    return part


def produce_request(topic: str, values: Mapping[int, bytes], *, acks: int = -1):
    """A request with one record for each of some partitions."""
    return append_request(topic, {index: batch(value) for index, value in values.items()}, acks)


def append_request(topic: str, batches: Mapping[int, bytes], acks: int = -1, timeout_ms=20_000):
    data = [
        produce_api.PartitionProduceData(index=index, records=records)
        for index, records in batches.items()
    ]
    return produce_api.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[produce_api.TopicProduceData(name=topic, partition_data=data)],
    )


async def consume(broker: Broker, topic: str, index: int = 0, offset: int = 0, **fields):
    """Fetches once as a consumer; returns the partition's data."""
    return part_of(await fetch(broker, topic, index, offset, **fields))


async def fetch(
    broker: Broker, topic: str, index=0, offset=0, *, epoch=-1, rack="", wait_ms=0, min_bytes=1
):
    """Fetches once as a consumer by topic id; returns the answer."""
    wanted = FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
    )
    topic_id = broker.node.metadata.image.topics[topic].topic_id
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=16 << 20,
        rack_id=rack,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )
    patience_s = _PATIENCE_S + wait_ms / 1000
    return await ask(broker, request, apis.FETCH, least_version=16, patience_s=patience_s)


async def list_end(broker: Broker, topic: str, *, index: int = 0):
    """Asks for a partition's end; returns the answer's part of the partition."""
    wanted = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    return (await ask(broker, request, apis.LIST_OFFSETS)).topics[0].partitions[0]


async def delete_before(broker: Broker, topic: str, offset: int, *, timeout_ms: int = 20_000):
    """Deletes the records before an offset; returns the answer's part of the partition."""
    wanted = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])],
        timeout_ms=timeout_ms,
    )
    return (await ask(broker, request, apis.DELETE_RECORDS)).topics[0].partitions[0]


def values_of(log) -> list[bytes]:
    """The values of all records of a log."""
    buffers, _, _ = log.read(
        log.log_start_offset, 1 << 30, upper_offset=log.log_end_offset, minimum_one=True
    )
    data = b"".join(buffers)
    return [record.value for each in scan(data) for record in records(data, each)]
