"""Clients that speak Kafka's protocol: producers with acks=all and acks=1, and consumers.

A producer sends a batch again, with the same sequence, until it is answered that it is there. All
ask any broker who leads, and never go back to an older leader epoch. Where brokers are cut off for
long, every second client asks the leader itself, as long as that answers. Consumers read on from
where they are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.brokers.batches import (
    VERSION_OF_MESSAGES,
    Produce,
    parsed,
    produced,
)
from tests.simulation.replication.brokers.machine import PORT
from tests.simulation.replication.brokers.process import Process
from tests.simulation.replication.network.network import CLIENTS
from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.client.errors import ClientError
from tidelog.protocol.api import fetch, produce
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.replication.checking.ledger import Ledger
    from tests.simulation.replication.checking.log import Batch
    from tests.simulation.replication.life import Life
    from tidelog.client.async_connection import AsyncConnection

PRODUCE_MS = 3_000
TIMEOUT_S = 3.5
BACKOFF_MS = 200
QUIET, QUIET_MS = 0.04, 9_000  # how often nothing is sent for so long
AHEAD_MS = (*[0] * 20, *[-5_000] * 10, *[60_000] * 5, -3_600_000, 4 * 3_600_000)  # record times
LARGE_BYTES = 17_000
BY_ID = 13  # from this version of Fetch on a topic is named by its id (KIP-516)
_NEW_EPOCH = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}


class Client:
    """What all have in common: a process, and a connection to the leader that they know."""

    is_waiting = False  # for something that must be answered in the end

    def __init__(self, world: Life, number: int, topic: str, index: int) -> None:
        self.world = world
        self.id = CLIENTS + number
        self.topic = topic
        self.index = index
        self.key = ""  # of the partition; a topic that is created again has another id
        self.leader_epoch = -1
        self.is_stopped = False
        self.process: Process | None = None
        self._connection: AsyncConnection | None = None
        self._leader = -1
        self._stays = world.cuts_off and (number % 2 == 1 or world.fault == "cut_off")
        self._asked: int | None = None  # the leader that was asked last
        self._answering: int | None = None  # the leader to stay with
        world.timeline.after(world.timeline.random.randint(0, 500), self._begin)

    def _begin(self) -> None:
        self.process = Process(self.world, self.id)
        loop = self.process.loop
        loop.call_soon(loop.create_task, self.main())

    def end(self) -> None:
        """The world ends."""
        if self.process is not None:
            self.process.die()
            self.world.bury(self.process)

    async def main(self) -> None:
        """Does what this client does, until it is stopped."""
        raise NotImplementedError

    # --- the leader -------------------------------------------------------------------------------

    def was_answered(self, *, is_served: bool) -> None:
        """Takes whether the leader did what it was asked for."""
        self._answering = self._asked if is_served and self._stays else None

    def find_leader(self) -> int | None:
        """Returns the leader by the metadata of some broker."""
        pick, brokers = self.world.timeline.random, self.world.brokers
        broker = pick.choice(list(brokers.values()))
        if self._answering is not None:
            broker, self._answering = brokers[self._answering], None
        found = broker.metadata(self.topic, self.index)
        if found is None:
            return None
        key, leader, leader_epoch = found
        if key != self.key:
            if self.world.is_older(key, self.key):
                return None
            self.key, self.leader_epoch = key, -1
            self.begin_partition()
        if leader < 0 or leader_epoch < self.leader_epoch:
            return None
        self.leader_epoch, self._asked = leader_epoch, leader
        return leader

    def begin_partition(self) -> None:
        """Begins with another partition than before: the topic was created again."""

    # --- requests ---------------------------------------------------------------------------------

    async def ask(
        self,
        leader: int,
        message: Any,
        api_key: int,
        *,
        least_version: int = 0,
        version: int | None = None,
    ) -> Any:
        """Asks a broker; returns None if there was no answer.

        `version` is one that the product's client does not speak.
        """
        try:
            if self._connection is None or self._connection.is_closed or leader != self._leader:
                self.close()
                host = self.world.brokers[leader].host
                self._connection = await open_connection(
                    host, PORT, f"client-{self.id}", timeout_s=1.0
                )
                self._leader = leader
            if version is not None:
                return await self._ask_in(version, message, api_key)
            return await self._connection.ask(
                message, api_key, timeout_s=TIMEOUT_S, least_version=least_version
            )
        except (ClientError, OSError):
            self.close()
            return None

    async def _ask_in(self, version: int, message: Any, api_key: int) -> Any:
        assert self._connection is not None
        receiver = _Receiver(asyncio.get_running_loop().create_future())
        self._connection.post_to(receiver, message, api_key, version)
        async with asyncio.timeout(TIMEOUT_S):
            return await receiver.answer

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Receiver:
    """Takes the answer to one request."""

    def __init__(self, answer: asyncio.Future[Any]) -> None:
        self.answer = answer

    def answered(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def broken(self, failure: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(failure)


class Producer(Client):
    """Sends one batch at a time, and again until it is there."""

    def __init__(self, world: Life, number: int, topic: str, index: int) -> None:
        super().__init__(world, number, topic, index)
        pick = world.timeline.random
        self.acks = pick.choice([-1, -1, -1, 1])
        self.is_idempotent = pick.random() < 0.6
        self.pause_ms = pick.choice([150, 500, 1_500])
        self.sequence = 0
        self.epoch = 0
        self.current: Produce | None = None

    def begin_partition(self) -> None:
        self.sequence = 0
        self.epoch += 1
        self.current = None

    @property
    def is_waiting(self) -> bool:
        """Whether a batch has not been answered."""
        return self.current is not None

    async def main(self) -> None:
        pick = self.world.timeline.random
        while not self.is_stopped or self.current is not None:
            leader = self.find_leader()
            if leader is None:
                await asyncio.sleep(BACKOFF_MS / 1000)
                continue
            if self.current is None:
                self.current = self._batch()
            error = await self._send(leader)
            self.was_answered(is_served=error == ErrorCode.NONE)
            if error == ErrorCode.NONE:
                self.sequence += self.current.count
                self.current = None
                pause_ms = QUIET_MS if pick.random() < QUIET else self.pause_ms
            else:
                said = "no answer" if error is None else error.name
                self.world.say("not produced", self.id, self.key[-4:], leader, said)
                pause_ms = BACKOFF_MS
                if error in _NEW_EPOCH:
                    self.epoch += 1
                    self.sequence = 0
                    self.current = self.current._replace(producer_epoch=self.epoch, sequence=0)
            await asyncio.sleep(pick.randint(1, pause_ms) / 1000)

    def _batch(self) -> Produce:
        pick, world = self.world.timeline.random, self.world
        # Compaction leaves a batch of one record as it is, or removes it.
        count = 1 if self.topic in world.compacted else pick.randint(1, 4)
        return Produce(
            world.next_value(),
            count,
            world.true_ms + pick.choice(AHEAD_MS),
            self.id if self.is_idempotent else -1,
            self.epoch,
            self.sequence,
        )

    async def _send(self, leader: int) -> ErrorCode | None:
        assert self.current is not None
        magic = self.world.format_of(self.key)
        has_key = self.topic in self.world.compacted
        data = produced(self.current, magic, has_key=has_key, pad=0 if has_key else self._pad())
        request = produce.ProduceRequest(
            acks=self.acks,
            timeout_ms=PRODUCE_MS,
            topic_data=[
                produce.TopicProduceData(
                    name=self.topic,
                    partition_data=[produce.PartitionProduceData(index=self.index, records=data)],
                )
            ],
        )
        version = VERSION_OF_MESSAGES if magic < 2 else None
        answer = await self.ask(leader, request, apis.PRODUCE, version=version)
        if answer is None:
            return None
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def _pad(self) -> int:
        """Returns by how many bytes a batch is so large that a thread appends it, or 0."""
        assert self.current is not None
        return LARGE_BYTES if self.current.value % 100 < self.world.large_percent else 0


class Consumer(Client):
    """Reads a partition from its start on, and again from the start when it is out of range.

    It names the topic by its id. By its name, a leader that has not heard yet that the topic was
    deleted and created again would answer with records of the deleted one.
    """

    offset = 0

    def begin_partition(self) -> None:
        self.offset = 0

    async def main(self) -> None:
        pick = self.world.timeline.random
        while not self.is_stopped:
            leader = self.find_leader()
            if leader is not None:
                await self._read(leader)
            await asyncio.sleep(pick.randint(100, 1_500) / 1000)

    async def _read(self, leader: int) -> None:
        request = fetch.FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                fetch.FetchTopic(
                    topic_id=self.world.ids[self.key][0],
                    partitions=[
                        fetch.FetchPartition(
                            partition=self.index,
                            fetch_offset=self.offset,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
        key, checker = self.key, self.world.checker
        ledger = checker.stored.ledgers.get(key)
        answer = await self.ask(leader, request, apis.FETCH, least_version=BY_ID)
        if answer is None or not answer.responses or self.key != key:
            return
        data = answer.responses[0].partitions[0]
        self.was_answered(is_served=not data.error_code)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.offset = self.world.log_start(key)
        elif not data.error_code and data.records:
            batches = tuple(parsed(bytes(data.records)))
            is_same = ledger is not None and ledger is checker.stored.ledgers.get(key)
            if is_same and not ledger.losses and not ledger.is_excused:
                self._check(leader, ledger, batches)
            if batches:
                self.offset = batches[-1].end

    def _check(self, leader: int, ledger: Ledger, batches: tuple[Batch, ...]) -> None:
        """Invariant 7: what was given to a consumer is what was promised."""
        self.world.checker.read += len(batches)
        for batch in batches:
            numbers = ledger.numbers(batch.base, batch.end)
            if not numbers or ledger.entries[numbers[0]].batch != batch:
                what = f"broker {leader} gave {batch}, which is not committed"
                self.world.fail(ledger.broken(7, what))
