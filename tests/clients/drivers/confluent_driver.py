"""Driver of confluent-kafka (its own librdkafka): produces and reads assigned partitions."""

from __future__ import annotations

import sys
import time

import confluent_kafka
import lines
from confluent_kafka import Consumer, Producer, TopicPartition

SERVER = sys.argv[1]
TYPES = {0: "none", 1: "create", 2: "append"}


def produce(command):
    options = {
        "bootstrap.servers": SERVER,
        "acks": "all",
        "compression.type": command["codec"],
        "linger.ms": 100,
        "message.timeout.ms": 20_000,
        "log_level": 0,
    }
    if command["idempotent"] is not None:
        options["enable.idempotence"] = command["idempotent"]
    client = Producer(options)
    pending = []
    for batch in command["batches"]:
        reports = []

        def report(error, message, reports=reports):
            reports.append((error, message.offset()))

        for record in batch["records"]:
            client.produce(
                batch["topic"],
                key=lines.raw(record["key"]),
                value=lines.raw(record["value"]),
                partition=batch["partition"],
                timestamp=record.get("timestamp") or 0,
                headers=[(k, lines.raw(v)) for k, v in record.get("headers") or []] or None,
                on_delivery=report,
            )
        pending.append((batch, reports))
    client.flush(30)
    for batch, reports in pending:
        answer = {"topic": batch["topic"], "partition": batch["partition"]}
        errors = [error for error, _ in reports if error is not None]
        if errors:
            answer["error"] = lines.failure(errors[0].code(), errors[0].name(), errors[0].str())
        elif len(reports) < len(batch["records"]):
            answer["error"] = lines.failure(None, "NoDeliveryReport", "no delivery report in 30 s")
        else:
            answer["offsets"] = [offset for _, offset in reports]
        yield answer


def describe(message):
    kind, timestamp = message.timestamp()
    return {
        "offset": message.offset(),
        "key": lines.text(message.key()),
        "value": lines.text(message.value()),
        # Without a type there is no time, whatever number stands there.
        "timestamp": timestamp if kind else None,
        "timestamp_type": TYPES[kind],
        "headers": [(name, lines.text(value)) for name, value in message.headers() or []],
    }


def consume(command):
    client = Consumer(
        {
            "bootstrap.servers": SERVER,
            "group.id": "matrix",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    wanted = {(p["topic"], p["partition"]): p for p in command["partitions"]}
    found = {key: [] for key in wanted}
    problems = {}
    client.assign([TopicPartition(p["topic"], p["partition"], p["from"]) for p in wanted.values()])
    missing = set(wanted)
    deadline = time.monotonic() + command["timeout_ms"] / 1000
    while missing and time.monotonic() < deadline:
        for message in client.consume(5000, timeout=0.2):
            key = message.topic(), message.partition()
            if message.error() is not None:
                problems[key] = message.error().str()
                continue
            found[key].append(describe(message))
            if len(found[key]) >= wanted[key]["count"]:
                missing.discard(key)
    for (topic, partition), records in found.items():
        answer = {"topic": topic, "partition": partition, "records": records}
        if (topic, partition) in problems:
            answer["problem"] = problems[topic, partition]
        yield answer
    client.close()


def find(command):
    client = Consumer({"bootstrap.servers": SERVER, "group.id": "matrix", "log_level": 0})
    places = [
        TopicPartition(p["topic"], p["partition"], p["timestamp"]) for p in command["partitions"]
    ]
    for place in places:
        if place.offset in (lines.START, lines.END):
            bounds = client.get_watermark_offsets(place, timeout=20)
            place.offset = bounds[0 if place.offset == lines.START else 1]
    targets = [
        place
        for place, asked in zip(places, command["partitions"], strict=True)
        if asked["timestamp"] not in (lines.START, lines.END)
    ]
    found = client.offsets_for_times(targets, timeout=20) if targets else places
    for place in found:
        # It answers OFFSET_END where no record is as late.
        offset = None if place.offset < 0 else place.offset
        yield {"topic": place.topic, "partition": place.partition, "offset": offset}
    client.close()


if __name__ == "__main__":
    version = f"confluent-kafka {confluent_kafka.__version__}"
    lines.serve(f"{version} (librdkafka {confluent_kafka.libversion()[0]})", produce, consume, find)
