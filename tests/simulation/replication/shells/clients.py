"""Producers and consumers with the product's connections and codecs, as patient as those beside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.simulation.replication import clients as simulated
from tests.simulation.replication.real.batches import parsed, produced
from tests.simulation.replication.shells.machine import PORT
from tests.simulation.replication.shells.process import Process
from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.client.errors import ClientError
from tidelog.protocol.api import fetch, produce
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.replication.checking.ledger import Ledger
    from tests.simulation.replication.cluster.log import Batch
    from tests.simulation.replication.shells.life import Life
    from tidelog.client.async_connection import AsyncConnection

PRODUCE_MS = 3_000
TIMEOUT_S = 3.5
LARGE_BYTES = 17_000
BY_ID = 13  # from this version of Fetch on a topic is named by its id (KIP-516)


class Connected:
    """What both have: a process, and a connection to the leader that they know."""

    world: Life
    id: int
    process: Process | None = None

    def begin_process(self) -> None:
        """Runs `main` in a process of its own."""
        self.process = Process(self.world, self.id)
        self._connection: AsyncConnection | None = None
        self._leader = -1
        loop = self.process.loop
        loop.call_soon(loop.create_task, self.main())

    def end(self) -> None:
        """The world ends."""
        if self.process is not None:
            self.process.die()
            self.world.bury(self.process)

    async def main(self) -> None:
        raise NotImplementedError

    async def ask(self, leader: int, message: Any, api_key: int, *, least_version: int = 0) -> Any:
        """Asks a broker; returns None if there was no answer."""
        try:
            if self._connection is None or self._connection.is_closed or leader != self._leader:
                self.close()
                host = self.world.brokers[leader].host
                self._connection = await open_connection(
                    host, PORT, f"client-{self.id}", timeout_s=1.0
                )
                self._leader = leader
            return await self._connection.ask(
                message, api_key, timeout_s=TIMEOUT_S, least_version=least_version
            )
        except (ClientError, OSError):
            self.close()
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Producer(Connected, simulated.Producer):
    """Sends one batch at a time, and again until it is there."""

    def next(self) -> None:
        self.begin_process()

    async def main(self) -> None:
        pick = self.world.timeline.random
        while not self.is_stopped or self.current is not None:
            leader = self.find_leader()
            if leader is None:
                await asyncio.sleep(simulated.BACKOFF_MS / 1000)
                continue
            if self.current is None:
                self.current = self._batch()
            error = await self._send(leader)
            self.was_answered(is_served=error == ErrorCode.NONE)
            if error != ErrorCode.NONE:
                said = "no answer" if error is None else error.name
                self.world.say("not produced", self.id, self.key[-4:], leader, said)
            if error == ErrorCode.NONE:
                self.done += 1
                self.sequence += self.current.count
                self.current = None
                is_quiet = pick.random() < simulated.QUIET
                pause_ms = simulated.QUIET_MS if is_quiet else self.pause_ms
            else:
                pause_ms = simulated.BACKOFF_MS
                if error in simulated._NEW_EPOCH:
                    self.epoch += 1
                    self.sequence = 0
                    self.current = self.current._replace(producer_epoch=self.epoch, sequence=0)
            await asyncio.sleep(pick.randint(1, pause_ms) / 1000)

    async def _send(self, leader: int) -> ErrorCode | None:
        assert self.current is not None
        data, _ = produced(self.current, 2, pad=self._pad())
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
        answer = await self.ask(leader, request, apis.PRODUCE)
        if answer is None:
            return None
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def _pad(self) -> int:
        """Returns by how many bytes a batch is so large that a thread appends it, or 0."""
        assert self.current is not None
        return LARGE_BYTES if self.current.value % 100 < self.world.large_percent else 0


class Consumer(Connected, simulated.Consumer):
    """Reads a partition from its start on, and again from the start when it is out of range.

    It names the topic by its id. By its name, a leader that has not heard yet that the topic was
    deleted and created again would answer with records of the deleted one.
    """

    def next(self) -> None:
        self.begin_process()

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
            self.offset = batches[-1].end

    def _check(self, leader: int, ledger: Ledger, batches: tuple[Batch, ...]) -> None:
        """Invariant 7: what was given to a consumer is what was promised."""
        self.world.checker.read += len(batches)
        for batch in batches:
            numbers = ledger.numbers(batch.base, batch.end)
            if not numbers or ledger.entries[numbers[0]].batch != batch:
                what = f"broker {leader} gave {batch}, which is not committed"
                self.world.fail(ledger.broken(7, what))
