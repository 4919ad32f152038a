"""Driver of aiokafka; one event loop in a thread, so that a member lives between two commands."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
import time

import aiokafka
import aiokafka_admin
import aiokafka_transactions
import lines
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
)

SERVER = sys.argv[1]
TYPES = {0: "create", 1: "append", None: "none", -1: "none"}


async def produce_all(command):
    client = AIOKafkaProducer(
        bootstrap_servers=SERVER,
        acks="all",
        compression_type=None if command["codec"] == "none" else command["codec"],
        linger_ms=100,
        max_batch_size=1 << 20,
        max_request_size=8 << 20,
        enable_idempotence=bool(command["idempotent"]),
        request_timeout_ms=60_000,
    )
    await client.start()
    answers = []
    try:
        pending = []
        for batch in command["batches"]:
            futures = [
                await client.send(
                    batch["topic"],
                    key=lines.raw(record["key"]),
                    value=lines.raw(record["value"]),
                    partition=batch["partition"],
                    timestamp_ms=record.get("timestamp"),
                    headers=[(k, lines.raw(v)) for k, v in record.get("headers") or []] or None,
                )
                for record in batch["records"]
            ]
            pending.append((batch, futures))
        for batch, futures in pending:
            answer = {"topic": batch["topic"], "partition": batch["partition"]}
            results = await asyncio.gather(*futures, return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if errors:
                code = errors[0].errno if isinstance(errors[0], KafkaError) else None
                answer["error"] = lines.failure(code, type(errors[0]).__name__, errors[0])
            else:
                answer["offsets"] = [result.offset for result in results]
            answers.append(answer)
    finally:
        await client.stop()
    return answers


class Sender:
    """A producer that stays open."""

    def __init__(self):
        self.client = None

    async def send(self, command):
        if self.client is None:
            idempotent = command["idempotent"]
            self.client = AIOKafkaProducer(
                bootstrap_servers=SERVER, acks="all", enable_idempotence=idempotent
            )
            await self.client.start()
        sending, pending = lines.Sending(command), []
        while not sending.is_over:
            for number, partition, value in sending.due():
                future = await self.client.send(sending.topic, value, partition=partition)
                report = functools.partial(self.report, sending, number, time.monotonic())
                future.add_done_callback(report)
                pending.append(future)
            await asyncio.sleep(0.005)
        await asyncio.gather(*pending, return_exceptions=True)
        return [sending.answer()]

    def report(self, sending, number, sent, future):
        if (error := future.exception()) is not None:
            sending.fail(number, f"{type(error).__name__}: {error}")
        else:
            told = future.result()
            sending.acknowledge(number, told.partition, told.offset, sent)


async def consume_all(command):
    client = AIOKafkaConsumer(
        bootstrap_servers=SERVER,
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        auto_offset_reset="none",
        isolation_level=command.get("isolation", "read_uncommitted"),
    )
    await client.start()
    try:
        wanted = {TopicPartition(p["topic"], p["partition"]): p for p in command["partitions"]}
        found = {partition: [] for partition in wanted}
        client.assign(list(wanted))
        for partition, entry in wanted.items():
            client.seek(partition, entry["from"])
        missing = set(wanted)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + command["timeout_ms"] / 1000
        while missing and loop.time() < deadline:
            for partition, records in (await client.getmany(timeout_ms=200)).items():
                found[partition].extend(records)
                if len(found[partition]) >= wanted[partition]["count"]:
                    missing.discard(partition)
    finally:
        await client.stop()
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "records": [
                {
                    "offset": record.offset,
                    "key": lines.text(record.key),
                    "value": lines.text(record.value),
                    "timestamp": record.timestamp,
                    "timestamp_type": TYPES[record.timestamp_type],
                    "headers": [(name, lines.text(value)) for name, value in record.headers],
                }
                for record in records
            ],
        }
        for partition, records in found.items()
    ]


async def find_all(command):
    client = AIOKafkaConsumer(bootstrap_servers=SERVER, group_id=None, enable_auto_commit=False)
    await client.start()
    targets = {
        TopicPartition(p["topic"], p["partition"]): p["timestamp"] for p in command["partitions"]
    }
    kinds = set(targets.values())
    client.assign(list(targets))  # all topics' metadata at once, not one topic after the other
    try:
        if kinds == {lines.START}:
            offsets = await client.beginning_offsets(list(targets))
        elif kinds == {lines.END}:
            offsets = await client.end_offsets(list(targets))
        else:
            found = await client.offsets_for_times(targets)
            offsets = {place: None if one is None else one.offset for place, one in found.items()}
    finally:
        # Stopped before its background task has begun, it lets that task's cancellation out.
        with contextlib.suppress(asyncio.CancelledError):
            await client.stop()
    return [
        {"topic": place.topic, "partition": place.partition, "offset": offsets[place]}
        for place in targets
    ]


class Member:
    """A member of a group; one at a time."""

    def __init__(self):
        self.client = None
        self.at_least_once = False
        self.starting = None
        self.pending = lines.Pending()

    async def join(self, command):
        options = {}
        if command["assignor"] == "range":
            options["partition_assignment_strategy"] = [RangePartitionAssignor]
        self.pending.clear()
        self.at_least_once = command.get("at_least_once", False)
        self.client = AIOKafkaConsumer(
            command["topic"],
            bootstrap_servers=SERVER,
            group_id=command["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=lines.SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=2_000,
            fetch_max_wait_ms=50,
            **options,
        )
        # Starting waits for the assignment, and so for the other members, who may be asked to poll.
        self.starting = asyncio.create_task(self.client.start())
        return ()

    async def poll(self, command):
        loop = asyncio.get_running_loop()
        told, deadline = [], loop.time() + command["ms"] / 1000
        await asyncio.wait([self.starting], timeout=command["ms"] / 1000)
        if not self.starting.done():
            return [lines.polled(set(), [])]
        self.starting.result()
        while not told and loop.time() < deadline:
            for place, records in (await self.client.getmany(timeout_ms=50)).items():
                for record in records:
                    self.pending.add(place.topic, place.partition, record.offset, record.value)
            if self.pending:
                # Said in full: it may have joined again meanwhile, and be at other places.
                nexts = self.pending.nexts().items()
                if self.at_least_once:
                    told = self.pending.settle()
                try:
                    await self.client.commit({TopicPartition(*p): next_ for p, next_ in nexts})
                except (CommitFailedError, RebalanceInProgressError, IllegalStateError):
                    # It joins again, and goes on everywhere at what is committed.
                    self.pending.clear()
                    continue
                except KafkaError as error:
                    if not (self.at_least_once and error.retriable):
                        raise
                    continue
                told = told or self.pending.settle()
        return [lines.polled(self.owned(), told)]

    def owned(self):
        return {(place.topic, place.partition) for place in self.client.assignment()}

    async def rewind(self, command):
        self.pending.clear()
        times = dict.fromkeys(self.client.assignment(), command["timestamp"])
        for place, found in (await self.client.offsets_for_times(times)).items():
            self.client.seek(place, found.offset)
        return ()

    async def leave(self, _command):
        await self.starting
        await self.client.stop()
        return ()


@contextlib.asynccontextmanager
async def outsider(group):
    """A client that commits and asks for a group's offsets and is no member."""
    client = AIOKafkaConsumer(bootstrap_servers=SERVER, group_id=group, enable_auto_commit=False)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def commit(command):
    async with outsider(command["group"]) as client:
        offsets = {
            TopicPartition(o["topic"], o["partition"]): o["offset"] for o in command["offsets"]
        }
        client.assign(list(offsets))
        await client.commit(offsets)
    return ()


async def committed(command):
    async with outsider(command["group"]) as client:
        return [
            {
                **one,
                "offset": await client.committed(TopicPartition(one["topic"], one["partition"])),
            }
            for one in command["partitions"]
        ]


if __name__ == "__main__":
    member = Member()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def in_loop(operation):
        return lambda command: asyncio.run_coroutine_threadsafe(operation(command), loop).result()

    lines.serve(
        f"aiokafka {aiokafka.__version__}",
        produce=in_loop(produce_all),
        send=in_loop(Sender().send),
        consume=in_loop(consume_all),
        find=in_loop(find_all),
        join=in_loop(member.join),
        poll=in_loop(member.poll),
        rewind=in_loop(member.rewind),
        leave=in_loop(member.leave),
        commit=in_loop(commit),
        committed=in_loop(committed),
        admin=in_loop(aiokafka_admin.run),
        transaction=in_loop(aiokafka_transactions.Transactions(SERVER).run),
    )
