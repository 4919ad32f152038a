"""Driver of a bare librdkafka shared library through ctypes: any release, any Python, no compiler.

Arguments: the library's path comes first, then the broker's address. Structures and constants are
those of the library's public C header, unchanged from 0.11 to 2.x.
"""

from __future__ import annotations

import ctypes
import sys
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p

import lines

LIBRARY, SERVER = sys.argv[1:3]
TYPES = {0: "none", 1: "create", 2: "append"}
PRODUCER, CONSUMER = 0, 1
CONF_OK = 0
MSG_F_COPY = 2
# Tags of rd_kafka_producev's arguments.
V_END, V_TOPIC, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE = 0, 1, 3, 4, 5, 6
V_MSGFLAGS, V_TIMESTAMP, V_HEADER = 7, 8, 9


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class TopicPartitionEntry(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


DeliveryReport = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
rd = ctypes.CDLL(LIBRARY)
for name, result, arguments in (
    ("rd_kafka_version_str", c_char_p, ()),
    ("rd_kafka_conf_new", c_void_p, ()),
    ("rd_kafka_conf_set", c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    ("rd_kafka_conf_set_dr_msg_cb", None, (c_void_p, DeliveryReport)),
    ("rd_kafka_new", c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    ("rd_kafka_flush", c_int, (c_void_p, c_int)),
    ("rd_kafka_poll", c_int, (c_void_p, c_int)),
    ("rd_kafka_destroy", None, (c_void_p,)),
    ("rd_kafka_topic_name", c_char_p, (c_void_p,)),
    ("rd_kafka_err2name", c_char_p, (c_int,)),
    ("rd_kafka_err2str", c_char_p, (c_int,)),
    ("rd_kafka_poll_set_consumer", c_int, (c_void_p,)),
    ("rd_kafka_topic_partition_list_new", c_void_p, (c_int,)),
    (
        "rd_kafka_topic_partition_list_add",
        POINTER(TopicPartitionEntry),
        (c_void_p, c_char_p, c_int32),
    ),
    (
        "rd_kafka_topic_partition_list_find",
        POINTER(TopicPartitionEntry),
        (c_void_p, c_char_p, c_int32),
    ),
    (
        "rd_kafka_query_watermark_offsets",
        c_int,
        (c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int),
    ),
    ("rd_kafka_offsets_for_times", c_int, (c_void_p, c_void_p, c_int)),
    ("rd_kafka_topic_partition_list_destroy", None, (c_void_p,)),
    ("rd_kafka_assign", c_int, (c_void_p, c_void_p)),
    ("rd_kafka_consumer_poll", POINTER(Message), (c_void_p, c_int)),
    ("rd_kafka_consumer_close", c_int, (c_void_p,)),
    ("rd_kafka_message_destroy", None, (POINTER(Message),)),
    ("rd_kafka_message_timestamp", c_int64, (POINTER(Message), POINTER(c_int))),
    ("rd_kafka_message_headers", c_int, (POINTER(Message), POINTER(c_void_p))),
    (
        "rd_kafka_header_get_all",
        c_int,
        (c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)),
    ),
):
    function = getattr(rd, name)
    function.restype, function.argtypes = result, arguments
rd.rd_kafka_producev.restype = c_int  # variadic: every argument carries its own C type


def configure(options):
    """A configuration object; raises RuntimeError with librdkafka's words."""
    conf = rd.rd_kafka_conf_new()
    problem = ctypes.create_string_buffer(512)
    for option, value in options.items():
        done = rd.rd_kafka_conf_set(conf, option.encode(), str(value).encode(), problem, 512)
        if done != CONF_OK:
            raise RuntimeError(problem.value.decode())
    return conf


def client_of(kind, conf):
    problem = ctypes.create_string_buffer(512)
    handle = rd.rd_kafka_new(kind, conf, problem, 512)
    if not handle:
        raise RuntimeError(problem.value.decode())
    return handle


def payload(tag, data):
    """A KEY or VALUE argument; NULL is no key, no value."""
    return [c_int(tag), c_char_p(data), c_size_t(len(data) if data is not None else 0)]


def produce_one(handle, batch, record, number):
    arguments = [c_int(V_TOPIC), c_char_p(batch["topic"].encode())]
    arguments += [c_int(V_PARTITION), c_int32(batch["partition"])]
    arguments += payload(V_VALUE, lines.raw(record["value"]))
    arguments += payload(V_KEY, lines.raw(record["key"]))
    arguments += [c_int(V_MSGFLAGS), c_int(MSG_F_COPY), c_int(V_OPAQUE), c_void_p(number)]
    arguments += [c_int(V_TIMESTAMP), c_int64(record.get("timestamp") or 0)]
    for name, value in record.get("headers") or []:
        data = lines.raw(value)
        size = -1 if data is None else len(data)
        arguments += [c_int(V_HEADER), c_char_p(name.encode())]
        arguments += [c_char_p(data), c_ssize_t(size)]
    return rd.rd_kafka_producev(c_void_p(handle), *arguments, c_int(V_END))


def produce(command):
    reports = {}

    def report(_client, message, _opaque):
        reports[message.contents.private] = (message.contents.err, message.contents.offset)

    callback = DeliveryReport(report)
    options = {
        "bootstrap.servers": SERVER,
        "acks": "all",
        "compression.codec": command["codec"],
        "queue.buffering.max.ms": 100,
        "message.timeout.ms": 20_000,
        "log_level": 0,
    }
    if command["idempotent"] is not None:
        options["enable.idempotence"] = str(command["idempotent"]).lower()
    conf = configure(options)
    rd.rd_kafka_conf_set_dr_msg_cb(conf, callback)
    handle = client_of(PRODUCER, conf)
    number = 0
    ranges = []
    for batch in command["batches"]:
        first = number + 1
        for record in batch["records"]:
            number += 1
            error = produce_one(handle, batch, record, number)
            if error:
                reports[number] = (error, -1)
        ranges.append((batch, range(first, number + 1)))
    rd.rd_kafka_flush(handle, 30_000)
    for batch, numbers in ranges:
        answer = {"topic": batch["topic"], "partition": batch["partition"]}
        outcome = [reports.get(n) for n in numbers]
        if None in outcome:
            answer["error"] = lines.failure(None, "NoDeliveryReport", "no delivery report in 30 s")
        elif any(error for error, _ in outcome):
            code = next(error for error, _ in outcome if error)
            label = rd.rd_kafka_err2name(code).decode()
            answer["error"] = lines.failure(code, label, rd.rd_kafka_err2str(code).decode())
        else:
            answer["offsets"] = [offset for _, offset in outcome]
        yield answer
    rd.rd_kafka_destroy(handle)


def headers_of(message):
    headers = c_void_p()
    if rd.rd_kafka_message_headers(message, byref(headers)) != 0:
        return []
    found = []
    name, value, size = c_char_p(), c_void_p(), c_size_t()
    while not rd.rd_kafka_header_get_all(
        headers, len(found), byref(name), byref(value), byref(size)
    ):
        data = ctypes.string_at(value.value, size.value) if value.value else None
        found.append((name.value.decode(), lines.text(data)))
    return found


def describe(message):
    kind = c_int()
    timestamp = rd.rd_kafka_message_timestamp(message, byref(kind))
    fields = message.contents
    key = ctypes.string_at(fields.key, fields.key_len) if fields.key else None
    value = ctypes.string_at(fields.payload, fields.len) if fields.payload else None
    return {
        "offset": fields.offset,
        "key": lines.text(key),
        "value": lines.text(value),
        # Without a type there is no time, whatever number stands there.
        "timestamp": timestamp if kind.value else None,
        "timestamp_type": TYPES[kind.value],
        "headers": headers_of(message),
    }


def consume(command):
    options = {
        "bootstrap.servers": SERVER,
        "group.id": "matrix",
        "enable.auto.commit": "false",
        "fetch.wait.max.ms": 50,
        "check.crcs": "true",
        "log_level": 0,
    }
    handle = client_of(CONSUMER, configure(options))
    rd.rd_kafka_poll_set_consumer(handle)
    wanted = {(p["topic"], p["partition"]): p for p in command["partitions"]}
    found = {key: [] for key in wanted}
    problems = {}
    assignment = rd.rd_kafka_topic_partition_list_new(len(wanted))
    for (topic, partition), entry in wanted.items():
        added = rd.rd_kafka_topic_partition_list_add(assignment, topic.encode(), partition)
        added.contents.offset = entry["from"]
    rd.rd_kafka_assign(handle, assignment)
    rd.rd_kafka_topic_partition_list_destroy(assignment)
    missing = set(wanted)
    deadline = time.monotonic() + command["timeout_ms"] / 1000
    while missing and time.monotonic() < deadline:
        message = rd.rd_kafka_consumer_poll(handle, 200)
        if not message:
            continue
        fields = message.contents
        if fields.rkt:
            key = rd.rd_kafka_topic_name(fields.rkt).decode(), fields.partition
            if fields.err:
                problems[key] = rd.rd_kafka_err2name(fields.err).decode()
            else:
                found[key].append(describe(message))
                if len(found[key]) >= wanted[key]["count"]:
                    missing.discard(key)
        rd.rd_kafka_message_destroy(message)
    for (topic, partition), records in found.items():
        answer = {"topic": topic, "partition": partition, "records": records}
        if (topic, partition) in problems:
            answer["problem"] = problems[topic, partition]
        yield answer
    rd.rd_kafka_consumer_close(handle)
    rd.rd_kafka_destroy(handle)


def watermark(handle, entry):
    low, high = c_int64(), c_int64()
    error = rd.rd_kafka_query_watermark_offsets(
        handle, entry["topic"].encode(), entry["partition"], byref(low), byref(high), 20_000
    )
    if error:
        raise RuntimeError(rd.rd_kafka_err2name(error).decode())
    return low.value if entry["timestamp"] == lines.START else high.value


def find(command):
    options = {"bootstrap.servers": SERVER, "group.id": "matrix", "log_level": 0}
    handle = client_of(CONSUMER, configure(options))
    entries = command["partitions"]
    if all(entry["timestamp"] in (lines.START, lines.END) for entry in entries):
        offsets = [watermark(handle, entry) for entry in entries]
    else:
        targets = rd.rd_kafka_topic_partition_list_new(len(entries))
        added = []
        for entry in entries:
            topic = entry["topic"].encode()
            rd.rd_kafka_topic_partition_list_add(targets, topic, entry["partition"])
        for entry in entries:
            topic = entry["topic"].encode()
            place = rd.rd_kafka_topic_partition_list_find(targets, topic, entry["partition"])
            place.contents.offset = entry["timestamp"]
            added.append(place)
        error = rd.rd_kafka_offsets_for_times(handle, targets, 20_000)
        if error:
            raise RuntimeError(rd.rd_kafka_err2name(error).decode())
        # It answers OFFSET_END where no record is as late.
        offsets = [None if p.contents.offset < 0 else p.contents.offset for p in added]
        rd.rd_kafka_topic_partition_list_destroy(targets)
    for entry, offset in zip(entries, offsets, strict=True):
        yield {"topic": entry["topic"], "partition": entry["partition"], "offset": offset}
    rd.rd_kafka_consumer_close(handle)
    rd.rd_kafka_destroy(handle)


if __name__ == "__main__":
    lines.serve(f"librdkafka {rd.rd_kafka_version_str().decode()}", produce, consume, find)
