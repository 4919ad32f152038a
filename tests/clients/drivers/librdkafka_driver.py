"""Driver of a bare librdkafka, 0.9 to 2.x, through librdkafka_binding.py.

Arguments: the library's path comes first, then the broker's address.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p

import librdkafka_transactions
import lines
from librdkafka_binding import (
    ASSIGN_PARTITIONS,
    CONSUMER,
    HAS_HEADERS,
    MSG_F_COPY,
    PRODUCER,
    V_END,
    V_HEADER,
    V_KEY,
    V_MSGFLAGS,
    V_OPAQUE,
    V_PARTITION,
    V_TIMESTAMP,
    V_TOPIC,
    V_VALUE,
    DeliveryReport,
    GroupList,
    List,
    Rebalanced,
    check,
    client_of,
    configure,
    entries_of,
    leaders,
    list_of,
    rd,
)

TYPES = {0: "none", 1: "create", 2: "append"}
CALL_MS = 60_000
TRANSPORT = -195
# What a commit says when a rebalance came between: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
# REBALANCE_IN_PROGRESS, and the library's own _NO_OFFSET and _ASSIGNMENT_LOST.
LOST = {22, 25, 27, -168, -142}
# What a question about a partition says when its topic is deleted between metadata and question.
# Version 0.9 waits for the leader of such a partition until its time is over.
DELETED = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_TIMED_OUT"}
ASKED_MS = 2_000


def payload(tag, data):
    """A KEY or VALUE argument; NULL is no key, no value."""
    return [c_int(tag), c_char_p(data), c_size_t(len(data) if data is not None else 0)]


def produce_one(handle, batch, record, number):
    arguments = [c_int(V_TOPIC), c_char_p(batch["topic"].encode())]
    arguments += [c_int(V_PARTITION), c_int32(batch["partition"])]
    arguments += payload(V_VALUE, lines.raw(record["value"]))
    arguments += payload(V_KEY, lines.raw(record["key"]))
    arguments += [c_int(V_MSGFLAGS), c_int(MSG_F_COPY), c_int(V_OPAQUE), c_void_p(number)]
    if record.get("timestamp"):
        arguments += [c_int(V_TIMESTAMP), c_int64(record["timestamp"])]
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
        "acks": "all",
        "compression.codec": command["codec"],
        "queue.buffering.max.ms": 100,
        "message.timeout.ms": 60_000,
        "max.in.flight.requests.per.connection": 1,
        "produce.offset.report": "true",  # before 1.0 it tells the last offset of a set alone
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
    rd.rd_kafka_flush(handle, 90_000)
    for batch, numbers in ranges:
        answer = {"topic": batch["topic"], "partition": batch["partition"]}
        outcome = [reports.get(n) for n in numbers]
        if None in outcome:
            answer["error"] = lines.failure(None, "NoDeliveryReport", "no delivery report in 90 s")
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
        "headers": headers_of(message) if HAS_HEADERS else None,
    }


def consume(command):
    options = {
        "group.id": "matrix",
        "enable.auto.commit": "false",
        "fetch.wait.max.ms": 50,
        "check.crcs": "true",
        **({"isolation.level": command["isolation"]} if "isolation" in command else {}),
    }
    handle = client_of(CONSUMER, configure(options))
    rd.rd_kafka_poll_set_consumer(handle)
    wanted = {(p["topic"], p["partition"]): p for p in command["partitions"]}
    found = {key: [] for key in wanted}
    problems = {}
    assignment = list_of([(*place, entry["from"]) for place, entry in wanted.items()])
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


def watermark(handle, entry, timeout_ms=CALL_MS):
    low, high = c_int64(), c_int64()
    topic = entry["topic"].encode()
    check(
        rd.rd_kafka_query_watermark_offsets(
            handle, topic, entry["partition"], byref(low), byref(high), timeout_ms
        )
    )
    return low.value if entry["timestamp"] == lines.START else high.value


def find_times(handle, places):
    """The offsets of times, None where no record is as late: the library answers OFFSET_END there."""
    targets = list_of(places)
    check(rd.rd_kafka_offsets_for_times(handle, targets, CALL_MS))
    found = {(topic, partition): offset for topic, partition, offset, _ in entries_of(targets)}
    rd.rd_kafka_topic_partition_list_destroy(targets)
    offsets = [found[topic, partition] for topic, partition, _ in places]
    return [None if offset < 0 else offset for offset in offsets]


def find(command):
    handle = outsider("matrix")
    entries = command["partitions"]
    if all(entry["timestamp"] in (lines.START, lines.END) for entry in entries):
        offsets = [watermark(handle, entry) for entry in entries]
    else:
        places = [(e["topic"], e["partition"], e["timestamp"]) for e in entries]
        offsets = find_times(handle, places)
    for entry, offset in zip(entries, offsets, strict=True):
        yield {"topic": entry["topic"], "partition": entry["partition"], "offset": offset}
    close(handle)


def outsider(group):
    """A client with a group's name that is not its member."""
    return client_of(CONSUMER, configure({"group.id": group}))


def close(handle):
    rd.rd_kafka_consumer_close(handle)
    rd.rd_kafka_destroy(handle)


class Member:
    """A member of a group; one at a time."""

    def __init__(self):
        self.handle = None
        self.pending = lines.Pending()
        # With a callback of its own the assignment changes within a poll alone.
        self.rebalanced = Rebalanced(self.rebalance)

    def rebalance(self, handle, error, places, _opaque):
        # What is taken away is handed out again from what is committed, be it to this member.
        self.pending.clear()
        rd.rd_kafka_assign(handle, places if error == ASSIGN_PARTITIONS else None)

    def join(self, command):
        options = {
            "group.id": command["group"],
            "enable.auto.commit": "false",
            "session.timeout.ms": lines.SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 50,
            "topic.metadata.refresh.interval.ms": 2_000,
            "auto.offset.reset": "earliest",
        }
        if command["assignor"] is not None:
            options["partition.assignment.strategy"] = command["assignor"]
        self.pending.clear()
        conf = configure(options)
        rd.rd_kafka_conf_set_rebalance_cb(conf, self.rebalanced)
        self.handle = client_of(CONSUMER, conf)
        rd.rd_kafka_poll_set_consumer(self.handle)
        topics = list_of([(command["topic"], -1, 0)])
        check(rd.rd_kafka_subscribe(self.handle, topics))
        rd.rd_kafka_topic_partition_list_destroy(topics)

    def take(self):
        """One poll; whether a message came."""
        message = rd.rd_kafka_consumer_poll(self.handle, 50)
        if not message:
            return False
        fields = message.contents
        if not fields.err:
            topic = rd.rd_kafka_topic_name(fields.rkt).decode()
            value = ctypes.string_at(fields.payload, fields.len)
            self.pending.add(topic, fields.partition, fields.offset, value)
        rd.rd_kafka_message_destroy(message)
        return True

    def poll(self, command):
        told, deadline = [], time.monotonic() + command["ms"] / 1000
        while not told and time.monotonic() < deadline:
            while self.take() and time.monotonic() < deadline:
                pass
            if self.pending:
                nexts = self.pending.nexts()
                offsets = list_of([(*place, offset) for place, offset in nexts.items()])
                error = rd.rd_kafka_commit(self.handle, offsets, 0)
                rd.rd_kafka_topic_partition_list_destroy(offsets)
                if error in LOST:
                    continue  # it joins again; what stays ours is committed then
                check(error)
                told = self.pending.settle()
        yield lines.polled(self.owned(), told)

    def owned(self):
        found = List()
        check(rd.rd_kafka_assignment(self.handle, byref(found)))
        places = {(topic, partition) for topic, partition, _, _ in entries_of(found)}
        rd.rd_kafka_topic_partition_list_destroy(found)
        return places

    def rewind(self, command):
        self.pending.clear()
        places = [(*place, command["timestamp"]) for place in sorted(self.owned())]
        offsets = find_times(self.handle, places)
        # Assigned anew it goes on there; rd_kafka_seek needs an object for each topic.
        targets = list_of([(t, p, o) for (t, p, _), o in zip(places, offsets, strict=True)])
        check(rd.rd_kafka_assign(self.handle, targets))
        rd.rd_kafka_topic_partition_list_destroy(targets)

    def leave(self, _command):
        close(self.handle)


def commit(command):
    handle = outsider(command["group"])
    offsets = list_of([(o["topic"], o["partition"], o["offset"]) for o in command["offsets"]])
    check(rd.rd_kafka_commit(handle, offsets, 0))
    rd.rd_kafka_topic_partition_list_destroy(offsets)
    close(handle)


def committed(command):
    handle = outsider(command["group"])
    places = list_of([(p["topic"], p["partition"], -1001) for p in command["partitions"]])
    check(rd.rd_kafka_committed(handle, places, CALL_MS))
    for topic, partition, offset, error in entries_of(places):
        check(error)
        yield {"topic": topic, "partition": partition, "offset": None if offset < 0 else offset}
    rd.rd_kafka_topic_partition_list_destroy(places)
    close(handle)


def ask_leaders(handle):
    """Ask every leader for an offset; ask again if another client deletes the topic meanwhile."""
    over = time.monotonic() + CALL_MS / 1000
    while True:
        try:
            for topic, partition in leaders(handle, CALL_MS).values():
                entry = {"topic": topic, "partition": partition, "timestamp": lines.START}
                watermark(handle, entry, ASKED_MS)
            return
        except RuntimeError as problem:
            if str(problem) not in DELETED or time.monotonic() > over:
                raise
        time.sleep(0.01)


def admin(command):
    """Groups are listed and described by one function; what came later, confluent-kafka binds."""
    handle = outsider("matrix")
    found = POINTER(GroupList)()
    group = command.get("group")
    wanted = None if group is None else group.encode()
    # Version 0.9 asks the brokers to which it has an id by then: those that it has asked as leaders.
    ask_leaders(handle)
    over = time.monotonic() + CALL_MS / 1000
    # Version 0.9 fails so, asking nobody, as long as the broker it is connected to has no id to it:
    # metadata has come by then, but the broker's own thread has yet to take the id in.
    while (error := rd.rd_kafka_list_groups(handle, wanted, byref(found), CALL_MS)) == TRANSPORT:
        if time.monotonic() > over:
            break
        time.sleep(0.01)
    check(error)
    groups = [found.contents.groups[number] for number in range(found.contents.group_cnt)]
    if command["what"] == "list_groups":
        yield {"groups": [one.group.decode() for one in groups]}
    else:
        (one,) = groups
        yield {"state": one.state.decode(), "members": one.member_cnt}
    rd.rd_kafka_group_list_destroy(found)
    close(handle)


if __name__ == "__main__":
    member = Member()
    lines.serve(
        f"librdkafka {rd.rd_kafka_version_str().decode()}",
        produce=produce,
        consume=consume,
        find=find,
        join=member.join,
        poll=member.poll,
        rewind=member.rewind,
        leave=member.leave,
        commit=commit,
        committed=committed,
        admin=admin,
        transaction=librdkafka_transactions.Transactions().run,
    )
