"""Transactions of aiokafka: producers by name, and copies of records with their offsets."""

from __future__ import annotations

import asyncio

import lines
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

TIMEOUT_S = 60


def failure_of(error):
    """An error as the protocol writes it."""
    return lines.failure(getattr(error, "errno", None), type(error).__name__, error)


class Transactions:
    """The transactional producers of one driver."""

    def __init__(self, server):
        self.server = server
        self.producers = {}
        self.begun = set()

    async def run(self, command):
        operations = {
            "open": self.open,
            "write": self.write,
            "copy": self.copy,
            "close": self.close,
        }
        client = self.producers.get(command["as"])
        try:
            return [await operations[command["what"]](command) or {}]
        except KafkaError as error:
            fatal = isinstance(error, ProducerFenced)  # which leaves nothing to abort
            told = None if fatal else await self.abort(client, command["as"])
            return [{"error": failure_of(error), "abort": told}]

    async def abort(self, client, name):
        """What applications do after an error; what was raised, if anything."""
        self.begun.discard(name)
        if client is None:
            return None
        try:
            await client.abort_transaction()
        except KafkaError as error:
            return failure_of(error)
        return None

    async def open(self, command):
        client = AIOKafkaProducer(
            bootstrap_servers=self.server,
            transactional_id=command["id"],
            transaction_timeout_ms=60_000,
        )
        await client.start()
        self.producers[command["as"]] = client

    async def close(self, command):
        await self.producers.pop(command["as"]).stop()

    async def write(self, command):
        client = await self.begin(command["as"])
        futures = [
            await client.send(
                batch["topic"], lines.raw(record["value"]), partition=batch["partition"]
            )
            for batch in command["batches"]
            for record in batch["records"]
        ]
        await self.end(client, command, futures)

    async def begin(self, name):
        client = self.producers[name]
        if name not in self.begun:
            await client.begin_transaction()
            self.begun.add(name)
        return client

    async def end(self, client, command, futures):
        told = await asyncio.gather(*futures, return_exceptions=True)
        if command["end"] == "commit":
            await client.commit_transaction()
        elif command["end"] == "abort":
            await client.abort_transaction()
        for one in told:
            if isinstance(one, BaseException):
                raise one
        if command["end"] is not None:
            self.begun.discard(command["as"])

    async def copy(self, command):
        reader = AIOKafkaConsumer(
            command["topic"],
            bootstrap_servers=self.server,
            group_id=command["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )
        await reader.start()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                records = [await reader.getone() for _ in range(command["count"])]
            client = await self.begin(command["as"])
            futures, nexts = [], {}
            for record in records:
                value = record.value + b" copied"
                place = record.partition
                futures.append(await client.send(command["to"], value, partition=place))
                (whole,) = (p for p in reader.assignment() if p.partition == place)
                nexts[whole] = record.offset + 1
            await client.send_offsets_to_transaction(nexts, command["group"])
            await self.end(client, command, futures)
        finally:
            await reader.stop()
        return {"read": [[record.partition, record.offset] for record in records]}
