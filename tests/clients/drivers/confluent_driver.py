"""Driver of confluent-kafka (its own librdkafka)."""

from __future__ import annotations

import functools
import sys
import time

import confluent_admin
import confluent_kafka
import confluent_transactions
import lines
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SERVER = sys.argv[1]
TYPES = {0: "none", 1: "create", 2: "append"}
TIMEOUT_S = confluent_admin.TIMEOUT_S
ASSIGNOR = "partition.assignment.strategy"
# What a commit says when a rebalance came between.
LOST = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
}
# What a commit says when its connection broke, or no coordinator was found in time.
UNANSWERED = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def produce(command):
    options = {
        "bootstrap.servers": SERVER,
        "acks": "all",
        "compression.type": command["codec"],
        "linger.ms": command.get("linger_ms", 100),
        "max.in.flight": 1,
        "message.timeout.ms": 60_000,
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
    client.flush(90)
    for batch, reports in pending:
        answer = {"topic": batch["topic"], "partition": batch["partition"]}
        errors = [error for error, _ in reports if error is not None]
        if errors:
            answer["error"] = lines.failure(errors[0].code(), errors[0].name(), errors[0].str())
        elif len(reports) < len(batch["records"]):
            answer["error"] = lines.failure(None, "NoDeliveryReport", "no delivery report in 90 s")
        else:
            answer["offsets"] = [offset for _, offset in reports]
        yield answer


class Sender:
    """A producer that stays open."""

    def __init__(self):
        self.client = None

    def send(self, command):
        if self.client is None:
            self.client = Producer(
                {
                    "bootstrap.servers": SERVER,
                    "acks": "all",
                    "enable.idempotence": command["idempotent"],
                    "max.in.flight": 5 if command["idempotent"] else 1,
                    "log_level": 0,
                }
            )
        sending = lines.Sending(command)
        while not sending.is_over:
            for number, partition, value in sending.due():
                report = functools.partial(self.report, sending, number, time.monotonic())
                self.client.produce(sending.topic, value, partition=partition, on_delivery=report)
            self.client.poll(0.005)
        self.client.flush()
        yield sending.answer()

    def report(self, sending, number, sent, error, message):
        if error is None:
            sending.acknowledge(number, message.partition(), message.offset(), sent)
        else:
            sending.fail(number, error)


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
            **({"isolation.level": command["isolation"]} if "isolation" in command else {}),
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
            bounds = client.get_watermark_offsets(place, timeout=TIMEOUT_S)
            place.offset = bounds[0 if place.offset == lines.START else 1]
    targets = [
        place
        for place, asked in zip(places, command["partitions"], strict=True)
        if asked["timestamp"] not in (lines.START, lines.END)
    ]
    found = client.offsets_for_times(targets, timeout=TIMEOUT_S) if targets else places
    for place in found:
        # It answers OFFSET_END where no record is as late.
        offset = None if place.offset < 0 else place.offset
        yield {"topic": place.topic, "partition": place.partition, "offset": offset}
    client.close()


class Member:
    """A member of a group; one at a time."""

    def __init__(self):
        self.client = None
        self.at_least_once = False
        self.revoked = []  # what was taken away before it was committed
        self.pending = lines.Pending()

    def join(self, command):
        options = {} if command["assignor"] is None else {ASSIGNOR: command["assignor"]}
        self.at_least_once = command.get("at_least_once", False)
        self.pending.clear()
        self.client = Consumer(
            {
                "bootstrap.servers": SERVER,
                "group.id": command["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": lines.SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
                **options,
            }
        )
        # With callbacks of its own the assignment changes within poll() alone. What is taken away, or was
        # lost, is handed out again from what is committed, be it to this member.
        self.client.subscribe(
            [command["topic"]],
            on_assign=lambda *_: None,
            on_revoke=lambda *_: self.revoked.extend(self.pending.settle()),
        )

    def poll(self, command):
        told, deadline = [], time.monotonic() + command["ms"] / 1000
        self.revoked.clear()
        while not told and time.monotonic() < deadline:
            # One by one, so that none from before a rebalance comes together with it.
            while (message := self.client.poll(0.05)) is not None:
                if message.error() is not None:
                    raise KafkaException(message.error())
                place = message.topic(), message.partition()
                self.pending.add(*place, message.offset(), message.value())
                if time.monotonic() > deadline:
                    break
            if self.pending:
                # Said in full: by itself the client commits nothing it is past of.
                offsets = [TopicPartition(*p, next_) for p, next_ in self.pending.nexts().items()]
                if self.at_least_once:
                    told = self.pending.settle()
                try:
                    self.client.commit(offsets=offsets, asynchronous=False)
                except KafkaException as error:
                    if not self.goes_on(error.args[0]):
                        raise
                    continue  # the next poll joins again; what stays ours is committed then
                told = told or self.pending.settle()
        yield lines.polled(self.owned(), told + (self.revoked if self.at_least_once else []))

    def goes_on(self, error):
        """Whether an application goes on after a commit that failed so."""
        return error.code() in LOST or (self.at_least_once and error.code() in UNANSWERED)

    def owned(self):
        return {(place.topic, place.partition) for place in self.client.assignment()}

    def rewind(self, command):
        self.pending.clear()
        times = [TopicPartition(*place, command["timestamp"]) for place in sorted(self.owned())]
        for place in self.client.offsets_for_times(times, timeout=TIMEOUT_S):
            self.client.seek(place)

    def leave(self, _command):
        self.client.close()


def outsider(group):
    """A client that commits and asks for a group's offsets and is no member."""
    return Consumer({"bootstrap.servers": SERVER, "group.id": group, "log_level": 0})


def commit(command):
    client = outsider(command["group"])
    offsets = [TopicPartition(o["topic"], o["partition"], o["offset"]) for o in command["offsets"]]
    for place in client.commit(offsets=offsets, asynchronous=False):
        if place.error is not None:
            raise KafkaException(place.error)
    client.close()


def committed(command):
    client = outsider(command["group"])
    places = [TopicPartition(p["topic"], p["partition"]) for p in command["partitions"]]
    for place in client.committed(places, timeout=TIMEOUT_S):
        if place.error is not None:
            raise KafkaException(place.error)
        offset = None if place.offset < 0 else place.offset
        yield {"topic": place.topic, "partition": place.partition, "offset": offset}
    client.close()


if __name__ == "__main__":
    version = f"confluent-kafka {confluent_kafka.__version__}"
    member = Member()
    lines.serve(
        f"{version} (librdkafka {confluent_kafka.libversion()[0]})",
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
        admin=confluent_admin.run,
        transaction=confluent_transactions.Transactions(SERVER).run,
    )
