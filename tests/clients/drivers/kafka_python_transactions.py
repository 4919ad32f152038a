"""Transactions of kafka-python, from 2.1 on: producers by name, and copies of records with their offsets."""

from __future__ import annotations

import time

import lines
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 60


class Transactions(lines.Transactions):
    """The transactional producers of one driver."""

    raised = KafkaError

    def __init__(self, server, options):
        super().__init__()
        self.server = server
        self.options = options

    def failure_of(self, error):
        return lines.failure(getattr(error, "errno", None), type(error).__name__, error)

    def abort(self, client):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return client.abort_transaction()
            except KafkaError as error:
                # After some errors 3.0 asks for a new epoch by itself, and refuses all calls meanwhile.
                if "BUMPING_PRODUCER_EPOCH" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def begin(self, client):
        client.begin_transaction()

    def open(self, command):
        client = KafkaProducer(
            bootstrap_servers=self.server,
            transactional_id=command["id"],
            transaction_timeout_ms=60_000,
            **self.options,
        )
        client.init_transactions()
        self.producers[command["as"]] = client

    def close(self, command):
        self.producers.pop(command["as"]).close(timeout=5)

    def write(self, command):
        client = self.begun_by(command["as"])
        futures = [
            client.send(batch["topic"], lines.raw(record["value"]), partition=batch["partition"])
            for batch in command["batches"]
            for record in batch["records"]
        ]
        self.end(client, command, futures)

    def end(self, client, command, futures):
        client.flush(timeout=TIMEOUT_S)
        for future in futures:
            future.get(timeout=TIMEOUT_S)
        if command["end"] == "commit":
            client.commit_transaction()
        elif command["end"] == "abort":
            client.abort_transaction()
        self.ended(command)

    def copy(self, command):
        reader = KafkaConsumer(
            command["topic"],
            bootstrap_servers=self.server,
            group_id=command["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
            **self.options,
        )
        try:
            records = take(reader, command["count"])
            client = self.begun_by(command["as"])
            futures, nexts = [], {}
            for place, record in records:
                value = record.value + b" copied"
                futures.append(client.send(command["to"], value, partition=place.partition))
                more = ("",) if "leader_epoch" not in OffsetAndMetadata._fields else ("", -1)
                nexts[place] = OffsetAndMetadata(record.offset + 1, *more)
            # 2.3 names the group alone: it is older than what fences by member and generation (KIP-447).
            whole = hasattr(reader, "group_metadata")
            group = reader.group_metadata() if whole else command["group"]
            client.send_offsets_to_transaction(nexts, group)
            self.end(client, command, futures)
        finally:
            reader.close()
        return {"read": [[place.partition, record.offset] for place, record in records]}


def take(reader, count):
    """So many records with their places, in the order they came."""
    taken, deadline = [], time.monotonic() + TIMEOUT_S
    while len(taken) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(taken)} of {count} records")
        # One poll must be long enough to join: 3.0 forgets a join that its poll had no time for to the end.
        for place, records in reader.poll(timeout_ms=1000, max_records=count - len(taken)).items():
            taken += [(place, record) for record in records]
    return taken
