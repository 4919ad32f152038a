"""Driver of aiokafka: produces and reads assigned partitions."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import aiokafka
import lines
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

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
        request_timeout_ms=20_000,
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


async def consume_all(command):
    client = AIOKafkaConsumer(
        bootstrap_servers=SERVER,
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        auto_offset_reset="none",
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


if __name__ == "__main__":
    lines.serve(
        f"aiokafka {aiokafka.__version__}",
        lambda command: asyncio.run(produce_all(command)),
        lambda command: asyncio.run(consume_all(command)),
        lambda command: asyncio.run(find_all(command)),
    )
