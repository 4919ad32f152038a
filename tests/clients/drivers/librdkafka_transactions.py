"""Transactions of a bare librdkafka, from 1.4 on: producers by name, copies of records with their offsets.

What the library answers is a rd_kafka_error_t, or NULL where all is well.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import c_char_p, c_int, c_int32, c_size_t, c_void_p

import lines
from librdkafka_binding import (
    CONSUMER,
    MSG_F_COPY,
    PRODUCER,
    V_END,
    V_MSGFLAGS,
    V_PARTITION,
    V_TOPIC,
    V_VALUE,
    DeliveryReport,
    List,
    check,
    client_of,
    configure,
    list_of,
    rd,
)

CALL_MS = 60_000
if hasattr(rd, "rd_kafka_init_transactions"):
    for name, result, arguments in (
        ("rd_kafka_init_transactions", c_void_p, (c_void_p, c_int)),
        ("rd_kafka_begin_transaction", c_void_p, (c_void_p,)),
        ("rd_kafka_send_offsets_to_transaction", c_void_p, (c_void_p, List, c_void_p, c_int)),
        ("rd_kafka_commit_transaction", c_void_p, (c_void_p, c_int)),
        ("rd_kafka_abort_transaction", c_void_p, (c_void_p, c_int)),
        ("rd_kafka_consumer_group_metadata", c_void_p, (c_void_p,)),
        ("rd_kafka_consumer_group_metadata_destroy", None, (c_void_p,)),
        ("rd_kafka_error_code", c_int, (c_void_p,)),
        ("rd_kafka_error_string", c_char_p, (c_void_p,)),
        ("rd_kafka_error_destroy", None, (c_void_p,)),
    ):
        function = getattr(rd, name)
        function.restype, function.argtypes = result, arguments


class Refused(Exception):
    """What the library raised; its argument is an error as the protocol writes it."""


def told(code, text):
    """An error as the protocol writes it; what is the library's own has no number of Kafka's."""
    name = rd.rd_kafka_err2name(code).decode()
    return lines.failure(code if code > 0 else None, name, text)


def demand(error):
    """Raise Refused where the library answered with an error."""
    if error:
        code, text = rd.rd_kafka_error_code(error), rd.rd_kafka_error_string(error).decode()
        rd.rd_kafka_error_destroy(error)
        raise Refused(told(code, text))


class Transactions(lines.Transactions):
    """The transactional producers of one driver."""

    raised = Refused

    def __init__(self):
        super().__init__()
        self.undelivered = []
        self.callback = DeliveryReport(self.report)

    def report(self, _client, message, _opaque):
        if message.contents.err:
            self.undelivered.append(message.contents.err)

    def failure_of(self, error):
        return error.args[0]

    def abort(self, client):
        demand(rd.rd_kafka_abort_transaction(client, CALL_MS))

    def begin(self, client):
        demand(rd.rd_kafka_begin_transaction(client))

    def open(self, command):
        conf = configure({"transactional.id": command["id"], "transaction.timeout.ms": 60_000})
        rd.rd_kafka_conf_set_dr_msg_cb(conf, self.callback)
        client = client_of(PRODUCER, conf)
        demand(rd.rd_kafka_init_transactions(client, CALL_MS))
        self.producers[command["as"]] = client

    def close(self, command):
        rd.rd_kafka_destroy(self.producers.pop(command["as"]))

    def begun_by(self, name):
        self.undelivered.clear()
        return super().begun_by(name)

    def write(self, command):
        client = self.begun_by(command["as"])
        for batch in command["batches"]:
            for record in batch["records"]:
                send(client, batch["topic"], batch["partition"], lines.raw(record["value"]))
        self.end(client, command)

    def end(self, client, command):
        rd.rd_kafka_flush(client, CALL_MS)
        if command["end"] == "commit":
            demand(rd.rd_kafka_commit_transaction(client, CALL_MS))
        elif command["end"] == "abort":
            demand(rd.rd_kafka_abort_transaction(client, CALL_MS))
        if self.undelivered:
            raise Refused(told(self.undelivered[0], "not delivered"))
        self.ended(command)

    def copy(self, command):
        options = {
            "group.id": command["group"],
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
        reader = client_of(CONSUMER, configure(options))
        rd.rd_kafka_poll_set_consumer(reader)
        topics = list_of([(command["topic"], -1, 0)])
        check(rd.rd_kafka_subscribe(reader, topics))
        rd.rd_kafka_topic_partition_list_destroy(topics)
        try:
            records = take(reader, command["count"])
            client = self.begun_by(command["as"])
            for partition, _, value in records:
                send(client, command["to"], partition, value + b" copied")
            nexts = {partition: offset + 1 for partition, offset, _ in records}
            self.send_offsets(client, reader, command["topic"], nexts)
            self.end(client, command)
        finally:
            rd.rd_kafka_consumer_close(reader)
            rd.rd_kafka_destroy(reader)
        return {"read": [[partition, offset] for partition, offset, _ in records]}

    def send_offsets(self, client, reader, topic, nexts):
        offsets = list_of([(topic, partition, offset) for partition, offset in nexts.items()])
        group = rd.rd_kafka_consumer_group_metadata(reader)
        try:
            demand(rd.rd_kafka_send_offsets_to_transaction(client, offsets, group, CALL_MS))
        finally:
            rd.rd_kafka_consumer_group_metadata_destroy(group)
            rd.rd_kafka_topic_partition_list_destroy(offsets)


def send(client, topic, partition, value):
    """One record; Refused where the library does not take it."""
    arguments = [c_int(V_TOPIC), c_char_p(topic.encode()), c_int(V_PARTITION), c_int32(partition)]
    arguments += [c_int(V_VALUE), c_char_p(value), c_size_t(len(value))]
    arguments += [c_int(V_MSGFLAGS), c_int(MSG_F_COPY)]
    error = rd.rd_kafka_producev(c_void_p(client), *arguments, c_int(V_END))
    if error:
        raise Refused(told(error, "not taken"))


def take(reader, count):
    """So many records (partition, offset, value), in the order they came."""
    taken, deadline = [], time.monotonic() + CALL_MS / 1000
    while len(taken) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(taken)} of {count} records")
        message = rd.rd_kafka_consumer_poll(reader, 200)
        if not message:
            continue
        fields = message.contents
        if not fields.err:
            value = ctypes.string_at(fields.payload, fields.len)
            taken.append((fields.partition, fields.offset, value))
        rd.rd_kafka_message_destroy(message)
    return taken
