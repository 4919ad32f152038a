"""Administration in the matrix: each client does what it has calls for, the broker is asked by another.

A client that has a call (its `admin`) must succeed with it; what came of it is read with confluent-kafka
(or, where the client itself reads, compared with what confluent-kafka did): no client is judged by its
own word.
A topic that is made again must be refused with TOPIC_ALREADY_EXISTS.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests import committing
from tests.clients.coordination.grouping import FIRST_MS, STEP_MS
from tests.clients.session import ANSWER_TIMEOUT_S, DriverError
from tests.clients.topics import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.clients import Client
    from tests.clients.report import Report
    from tests.clients.session import Session

CALLS = (
    "create_topic", "create_partitions", "describe_configs", "alter_configs", "list_offsets",
    "delete_records", "list_groups", "describe_group", "delete_group", "delete_topic",
)  # fmt: skip
TOPIC_ALREADY_EXISTS = 36
RETENTION = "retention.ms"
RECORDS = 10
DELETED_BEFORE = 4
TIMEOUT_S = 60
SHOWN_WITHIN_S = 60.0  # a change, by a broker that had not heard of it


class Different(Exception):
    """A call did not do what it must; the message says what."""


class Administrator:
    """One client's part: its topic and its groups are touched by nobody else."""

    def __init__(self, server: str, session: Session, client: Client, report: Report) -> None:
        self.session = session
        self.client = client
        self.report = report
        self.topic = "administered-by-" + client.slug
        self.idle, self.busy = f"idle-{self.topic}", f"busy-{self.topic}"
        self.options = {"bootstrap.servers": server, "log_level": 0}
        self.judge = AdminClient(self.options)

    def run(self) -> None:
        """Every call the client has, in the order of CALLS; what it cannot is done by the judge."""
        checks: dict[str, Callable[[], None]] = {name: getattr(self, name) for name in CALLS}
        for name, check in checks.items():
            if name in self.client.admin:
                try:
                    check()
                    self.report.administered[self.client.name, name] = "ok"
                except (Different, DriverError) as reason:
                    self.report.administered[self.client.name, name] = "**wrong**"
                    self.report.problems.append(f"{self.client.name}, {name}: {reason}")
            if name == "create_topic":
                self.prepare()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """One call; its answer. An error is a Different."""
        answer = self.attempt(what, **arguments)
        if "error" in answer:
            raise Different(f"error {answer['error']}")
        return answer

    def attempt(self, what: str, **arguments: Any) -> dict[str, Any]:
        """One call; its answer, be it an error."""
        command = {"op": "admin", "what": what, **arguments}
        (answer,) = self.session.ask(command, ANSWER_TIMEOUT_S)
        return answer

    def prepare(self) -> None:
        """What the other calls act on: records, a group that is idle."""
        (future,) = self.judge.create_topics([NewTopic(self.topic, 2, REPLICAS)]).values()
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != TOPIC_ALREADY_EXISTS:
                raise
        producer = Producer({**self.options, "enable.idempotence": True})
        for offset in range(RECORDS):
            producer.produce(self.topic, b"v", partition=0, timestamp=FIRST_MS + offset * STEP_MS)
        self.require(producer.flush(TIMEOUT_S) == 0, "nothing could be written")
        committing.commit({**self.options, "group.id": self.idle}, self.topic, {0: 3})

    def create_topic(self) -> None:
        configs = {RETENTION: "86400001"}
        self.ask("create_topic", topic=self.topic, partitions=2, configs=configs)
        self.check_partitions(2)
        self.check_retention("86400001")
        again = self.attempt("create_topic", topic=self.topic, partitions=2, configs=configs)
        code = again.get("error", {}).get("code")
        self.require(code == TOPIC_ALREADY_EXISTS, f"made again: {again}")

    def create_partitions(self) -> None:
        self.ask("create_partitions", topic=self.topic, partitions=5)
        self.check_partitions(5)

    def describe_configs(self) -> None:
        found = self.ask("describe_configs", topic=self.topic, configs={RETENTION: None})
        self.require(found["configs"] == {RETENTION: self.retention()}, f"{found}")

    def alter_configs(self) -> None:
        self.ask("alter_configs", topic=self.topic, configs={RETENTION: "86400002"})
        self.check_retention("86400002")

    def list_offsets(self) -> None:
        # The start, the end, and the time between the offsets 5 and 6.
        times = [-2, -1, FIRST_MS + 5 * STEP_MS + 1]
        found = self.ask("list_offsets", topic=self.topic, partition=0, timestamps=times)
        self.require(found["offsets"] == [0, RECORDS, 6], f"{found}")

    def delete_records(self) -> None:
        self.ask("delete_records", topic=self.topic, partition=0, offset=DELETED_BEFORE)
        client = Consumer({**self.options, "group.id": self.idle})
        bounds = client.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=TIMEOUT_S)
        client.close()
        self.require(bounds == (DELETED_BEFORE, RECORDS), f"the log is {bounds}")

    def list_groups(self) -> None:
        found = self.ask("list_groups")["groups"]
        self.require(self.idle in found, f"{self.idle} is not among {found}")

    def describe_group(self) -> None:
        member = Consumer({**self.options, "group.id": self.busy, "auto.offset.reset": "earliest"})
        member.subscribe([self.topic])
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while not member.assignment() and time.monotonic() < deadline:
            member.poll(0.2)
        busy = self.ask("describe_group", group=self.busy)
        member.close()
        self.require(busy == {"state": "Stable", "members": 1}, f"{busy}")
        idle = self.ask("describe_group", group=self.idle)
        self.require(idle == {"state": "Empty", "members": 0}, f"{idle}")

    def delete_group(self) -> None:
        self.ask("delete_group", group=self.idle)
        valid = self.judge.list_consumer_groups().result(TIMEOUT_S).valid
        self.require(self.idle not in [group.group_id for group in valid], "it is still there")

    def delete_topic(self) -> None:
        self.ask("delete_topic", topic=self.topic)
        self.until(lambda: self.count() == 0, "it is still there")

    def check_partitions(self, expected: int) -> None:
        self.until(lambda: self.count() == expected, f"not {expected} partitions")

    def count(self) -> int:
        """How many partitions the topic has as the judge sees it; 0 if there is no such topic."""
        topics = self.judge.list_topics(timeout=TIMEOUT_S).topics
        return len(topics[self.topic].partitions) if self.topic in topics else 0

    def check_retention(self, expected: str) -> None:
        self.until(lambda: self.retention() == expected, f"{RETENTION} is not {expected}")

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Waits: the judge may ask a broker that has not heard of the change yet."""
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while not condition():
            self.require(time.monotonic() < deadline, otherwise)
            time.sleep(0.1)

    def retention(self) -> str:
        """The topic's retention.ms as the judge sees it."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        (future,) = self.judge.describe_configs([resource]).values()
        return str(future.result(TIMEOUT_S)[RETENTION].value)

    def require(self, condition: bool, words: str) -> None:
        """Raise Different unless all is well."""
        if not condition:
            raise Different(words)
