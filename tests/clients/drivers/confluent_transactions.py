"""Transactions of confluent-kafka: producers by name, and copies of records with their offsets."""

from __future__ import annotations

import time

import lines
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 60


class Transactions(lines.Transactions):
    """The transactional producers of one driver.

    They ask for no delivery reports: where one is fatal, the binding raises in the middle of flush(). What
    was not delivered is raised by commit_transaction().
    """

    raised = KafkaException

    def __init__(self, server):
        super().__init__()
        self.server = server

    def failure_of(self, error):
        told = error.args[0]
        return lines.failure(told.code() if told.code() > 0 else None, told.name(), told.str())

    def abort(self, client):
        client.abort_transaction(TIMEOUT_S)

    def begin(self, client):
        client.begin_transaction()

    def close(self, command):
        del self.producers[command["as"]]

    def open(self, command):
        options = {"bootstrap.servers": self.server, "transactional.id": command["id"]}
        client = Producer({**options, "transaction.timeout.ms": 60_000, "log_level": 0})
        client.init_transactions(TIMEOUT_S)
        self.producers[command["as"]] = client

    def write(self, command):
        client = self.begun_by(command["as"])
        for batch in command["batches"]:
            for record in batch["records"]:
                value = lines.raw(record["value"])
                client.produce(batch["topic"], value, partition=batch["partition"])
        self.end(client, command)

    def end(self, client, command):
        if command["end"] == "commit":
            client.commit_transaction(TIMEOUT_S)
        else:
            client.flush(TIMEOUT_S)  # an abort would throw away what is not sent yet
        if command["end"] == "abort":
            client.abort_transaction(TIMEOUT_S)
        self.ended(command)

    def copy(self, command):
        reader = Consumer(
            {
                "bootstrap.servers": self.server,
                "group.id": command["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        reader.subscribe([command["topic"]])
        try:
            messages = take(reader, command["count"])
            client = self.begun_by(command["as"])
            nexts = {}
            for message in messages:
                partition = message.partition()
                client.produce(command["to"], message.value() + b" copied", partition=partition)
                nexts[partition] = message.offset() + 1
            offsets = [TopicPartition(command["topic"], p, offset) for p, offset in nexts.items()]
            group = reader.consumer_group_metadata()
            client.send_offsets_to_transaction(offsets, group, TIMEOUT_S)
            self.end(client, command)
        finally:
            reader.close()
        return {"read": [[message.partition(), message.offset()] for message in messages]}


def take(reader, count):
    """So many records, in the order they came."""
    messages, deadline = [], time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        message = reader.poll(0.2)
        if message is not None and message.error() is not None:
            raise KafkaException(message.error())
        if message is not None:
            messages.append(message)
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{len(messages)} of {count} records")
    return messages
