"""Driver of kafka-python, every version from 1.4 to 3.x."""

from __future__ import annotations

import contextlib
import functools
import sys
import time

import kafka
import kafka_python_admin
import kafka_python_transactions
import lines
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
)
from kafka.structs import OffsetAndMetadata

SERVER = sys.argv[1]
TYPES = {0: "create", 1: "append", None: "none", -1: "none"}
# Up to 2.3 it takes a broker that is silent for this long for one of an old release, and writes and reads old
# formats: for 2 s if nothing is said, and half as long in 2.3.
PATIENT = kafka_python_admin.PATIENT
if len(sys.argv) > 2:  # the release of the broker that it is to take this one for
    PATIENT = {**PATIENT, "api_version": tuple(map(int, sys.argv[2].split(".")))}


def producer(command):
    options = {}
    if command["idempotent"] is not None and "enable_idempotence" in KafkaProducer.DEFAULT_CONFIG:
        options["enable_idempotence"] = command["idempotent"]
    return KafkaProducer(
        bootstrap_servers=SERVER,
        acks="all",
        compression_type=None if command["codec"] == "none" else command["codec"],
        linger_ms=command.get("linger_ms", 100),
        batch_size=1 << 20,
        max_request_size=8 << 20,
        max_block_ms=60_000,
        max_in_flight_requests_per_connection=1,
        **PATIENT,
        **options,
    )


def produce(command):
    client = producer(command)
    pending = []
    for batch in command["batches"]:
        futures = [
            client.send(
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
    client.flush(timeout=60)
    for batch, futures in pending:
        answer = {"topic": batch["topic"], "partition": batch["partition"]}
        try:
            results = [future.get(timeout=20) for future in futures]
            answer["offsets"] = [result.offset for result in results]
        except KafkaError as error:
            errno = getattr(error, "errno", None)
            answer["error"] = lines.failure(errno, type(error).__name__, error)
        yield answer
    client.close(timeout=5)


class Sender:
    """A producer that stays open."""

    def __init__(self):
        self.client = None

    def send(self, command):
        if self.client is None:
            # Without idempotence the older ones send nothing again of themselves, and out of order.
            options = {"retries": 1_000_000, "max_in_flight_requests_per_connection": 1}
            if command["idempotent"]:
                options = {"enable_idempotence": True}
            self.client = KafkaProducer(bootstrap_servers=SERVER, acks="all", **PATIENT, **options)
        sending, pending = lines.Sending(command), []
        while not sending.is_over:
            for number, partition, value in sending.due():
                future = self.client.send(sending.topic, value, partition=partition)
                sent = time.monotonic()
                future.add_callback(functools.partial(self.report, sending, number, sent))
                future.add_errback(functools.partial(sending.fail, number))
                pending.append(future)
            time.sleep(0.005)
        self.client.flush()
        for future in pending:
            with contextlib.suppress(KafkaError):  # its errback tells
                future.get(timeout=60)
        yield sending.answer()

    def report(self, sending, number, sent, told):
        sending.acknowledge(number, told.partition, told.offset, sent)


def consume(command):
    isolation = {"isolation_level": command["isolation"]} if "isolation" in command else {}
    client = KafkaConsumer(
        bootstrap_servers=SERVER,
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        max_poll_records=5000,
        auto_offset_reset="none",
        **PATIENT,
        **isolation,
    )
    wanted = {TopicPartition(p["topic"], p["partition"]): p for p in command["partitions"]}
    found = {partition: [] for partition in wanted}
    client.assign(list(wanted))
    for partition, entry in wanted.items():
        client.seek(partition, entry["from"])
    missing = set(wanted)
    deadline = time.monotonic() + command["timeout_ms"] / 1000
    while missing and time.monotonic() < deadline:
        for partition, records in client.poll(timeout_ms=200).items():
            found[partition].extend(records)
            if len(found[partition]) >= wanted[partition]["count"]:
                missing.discard(partition)
    for partition, records in found.items():
        yield {
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
    client.close()


def find(command):
    client = KafkaConsumer(
        bootstrap_servers=SERVER, group_id=None, enable_auto_commit=False, **PATIENT
    )
    targets = {
        TopicPartition(p["topic"], p["partition"]): p["timestamp"] for p in command["partitions"]
    }
    kinds = set(targets.values())
    client.assign(list(targets))  # all topics' metadata at once, not one topic after the other
    if kinds == {lines.START}:
        offsets = client.beginning_offsets(list(targets))
    elif kinds == {lines.END}:
        offsets = client.end_offsets(list(targets))
    else:
        found = client.offsets_for_times(targets)
        offsets = {place: None if one is None else one.offset for place, one in found.items()}
    for place in targets:
        yield {"topic": place.topic, "partition": place.partition, "offset": offsets[place]}
    client.close()


class Member:
    """A member of a group; one at a time."""

    def __init__(self):
        self.client = None
        self.at_least_once = False
        self.pending = lines.Pending()

    def join(self, command):
        options = {}
        if command["assignor"] == "range":
            options["partition_assignment_strategy"] = [RangePartitionAssignor]
        self.pending.clear()
        self.at_least_once = command.get("at_least_once", False)
        self.client = KafkaConsumer(
            command["topic"],
            bootstrap_servers=SERVER,
            group_id=command["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=lines.SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=2_000,
            fetch_max_wait_ms=50,
            **PATIENT,
            **options,
        )
        self.client.partitions_for_topic(command["topic"])  # else it may lead and share nothing

    def poll(self, command):
        told, deadline = [], time.monotonic() + command["ms"] / 1000
        while not told and time.monotonic() < deadline:
            # 3.0 forgets a join that its poll had no time for to the end.
            waiting_ms = 50 if self.owned() else 1000
            for place, records in self.client.poll(timeout_ms=waiting_ms).items():
                for record in records:
                    self.pending.add(place.topic, place.partition, record.offset, record.value)
            if self.at_least_once:
                told = self.pending.settle()
            elif self.pending:
                self.pending.keep(self.positions())
            if told or self.pending:
                try:
                    self.client.commit()
                except (CommitFailedError, RebalanceInProgressError, IllegalGenerationError):
                    continue  # the next poll joins again; what stays ours is committed then
                except KafkaError as error:
                    if not (self.at_least_once and error.retriable):
                        raise
                    continue
                told = told or self.pending.settle()
        yield lines.polled(self.owned(), told)

    def owned(self):
        return {(place.topic, place.partition) for place in self.client.assignment()}

    def positions(self):
        """Where the client goes on, by topic and partition: what it commits."""
        places = self.client.assignment()
        return {(p.topic, p.partition): self.client.position(p) or 0 for p in places}

    def rewind(self, command):
        self.pending.clear()
        times = dict.fromkeys(self.client.assignment(), command["timestamp"])
        for place, found in self.client.offsets_for_times(times).items():
            self.client.seek(place, found.offset)

    def leave(self, _command):
        self.client.close()


def outsider(group):
    """A client that commits and asks for a group's offsets and is no member."""
    return KafkaConsumer(
        bootstrap_servers=SERVER, group_id=group, enable_auto_commit=False, **PATIENT
    )


def commit(command):
    client = outsider(command["group"])
    offsets = {TopicPartition(o["topic"], o["partition"]): o["offset"] for o in command["offsets"]}
    client.assign(list(offsets))
    more = ("",) if "leader_epoch" not in OffsetAndMetadata._fields else ("", -1)
    client.commit({place: OffsetAndMetadata(offset, *more) for place, offset in offsets.items()})
    client.close()


def committed(command):
    client = outsider(command["group"])
    for one in command["partitions"]:
        place = TopicPartition(one["topic"], one["partition"])
        yield {**one, "offset": client.committed(place)}
    client.close()


if __name__ == "__main__":
    member = Member()
    lines.serve(
        f"kafka-python {kafka.__version__}",
        produce=produce,
        send=Sender().send,
        consume=consume,
        find=find,
        join=member.join,
        poll=member.poll,
        rewind=member.rewind,
        leave=member.leave,
        commit=commit,
        committed=committed,
        admin=kafka_python_admin.run,
        transaction=kafka_python_transactions.Transactions(SERVER, PATIENT).run,
    )
