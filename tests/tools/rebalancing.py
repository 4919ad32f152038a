"""Members of groups that are real consumers, and what they say of what they own: Java's and librdkafka's.

A member writes its history: what it was given and what was taken from it, when (ms of the machine's clock),
and which records it has read. `owned`, `moves` and `overlaps` read histories. A history tells of a generation
when the member comes to it; in which one the group is, `generation` asks the broker.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException

from tests.tools import java_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.broker.subject import Subject

COOPERATIVE = {
    "java": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "librdkafka": "cooperative-sticky",
}
EAGER = {"java": "org.apache.kafka.clients.consumer.RangeAssignor", "librdkafka": "range"}
SESSION_MS = 180_000  # who comes back in a process of its own has to be back before
_NEVER_MS = 2**62


class Event(NamedTuple):
    """Partitions that were given to a member, or taken from it."""

    at_ms: int
    is_given: bool
    partitions: frozenset[int]


class Place(NamedTuple):
    """Where a member is, and what it reads."""

    bootstrap: str
    group: str
    topic: str
    directory: Path


class JavaMember:
    """A verifiable consumer of Kafka's own, in a process; it commits what it has read, batch by batch."""

    def __init__(
        self, place: Place, version: str, strategies: dict[str, str], instance: str | None
    ) -> None:
        name = f"{version}-{time.monotonic_ns()}"
        directory = place.directory / name
        directory.mkdir()
        static = () if instance is None else ("--group-instance-id", instance)
        self._process = java_tools.start(
            version,
            "kafka-verifiable-consumer",
            *("--bootstrap-server", place.bootstrap, "--topic", place.topic, "--verbose"),
            *("--group-id", place.group, "--session-timeout", str(SESSION_MS)),
            *("--assignment-strategy", strategies["java"], "--reset-policy", "earliest", *static),
            directory=directory,
        )

    def _said(self) -> list[dict[str, Any]]:
        whole, _, _ = self._process.out.read_text(errors="replace").rpartition("\n")
        return java_tools.json_lines(whole)

    def history(self) -> list[Event]:
        """What it was given and lost, oldest first."""
        return [
            Event(
                each["timestamp"],
                each["name"] == "partitions_assigned",
                frozenset(one["partition"] for one in each["partitions"]),
            )
            for each in self._said()
            if each["name"].startswith("partitions_")
        ]

    def read(self) -> set[tuple[int, int]]:
        """Partition and offset of every record it has read."""
        return {
            (each["partition"], each["offset"])
            for each in self._said()
            if each["name"] == "record_data"
        }

    def has_given_up(self) -> bool:
        """Whether it has ended by itself, as it does when another has taken its name."""
        return not self._process.alive()

    def vanish(self) -> None:
        """Be gone without a word."""
        self._process.kill()

    def stop(self) -> None:
        """Leave in order."""
        self._process.stop()


class LibrdkafkaMember:
    """A consumer of confluent-kafka in a thread; it commits each record it has read."""

    def __init__(self, place: Place, strategies: dict[str, str], instance: str | None) -> None:
        static = {} if instance is None else {"group.instance.id": instance}
        self._consumer = Consumer(
            {
                "bootstrap.servers": place.bootstrap,
                "group.id": place.group,
                "partition.assignment.strategy": strategies["librdkafka"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 50,
                **static,
            }
        )
        self._history: list[Event] = []
        self._read: set[tuple[int, int]] = set()
        self._is_fenced = self._is_over = False
        self._consumer.subscribe(
            [place.topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, is_given: bool, partitions: Iterable[Any]) -> None:
        names = frozenset(one.partition for one in partitions)
        self._history.append(Event(time.time_ns() // 1_000_000, is_given, names))

    def _given(self, _consumer: Consumer, partitions: Sequence[Any]) -> None:
        self._note(True, partitions)

    def _taken(self, _consumer: Consumer, partitions: Sequence[Any]) -> None:
        self._note(False, partitions)

    def _run(self) -> None:
        while not self._is_over:
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._is_fenced |= "fenced" in error.str().lower()
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._read.add((partition, offset))
            try:
                self._consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue  # a rebalance came between: the next commit, or the next owner, takes it along
        self._consumer.close()

    def history(self) -> list[Event]:
        """What it was given and lost, oldest first."""
        return list(self._history)

    def read(self) -> set[tuple[int, int]]:
        """Partition and offset of every record it has read."""
        return set(self._read)

    def has_given_up(self) -> bool:
        """Whether it was told that another has taken its name, which is the end of it."""
        return self._is_fenced

    def stop(self) -> None:
        """Close it: who has an instance id stays a member, as with Java's."""
        self._is_over = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    vanish = stop


Member = JavaMember | LibrdkafkaMember


def owned(member: Member) -> frozenset[int]:
    """The partitions a member has now."""
    has: frozenset[int] = frozenset()
    for event in member.history():
        has = has | event.partitions if event.is_given else has - event.partitions
    return has


def moves(member: Member) -> list[Event]:
    """What moved a partition: a member that keeps what it has is told so in every generation, too."""
    return [event for event in member.history() if event.partitions]


def generation(broker: Subject, group: str, instance: str) -> int | None:
    """The generation a static member may say that it lives in; None while the members gather for the next."""
    with broker.connect() as connection:
        (told,) = connection.ask("DescribeGroups", 5, groups=[group])["groups"]
        named = {each["group_instance_id"]: each["member_id"] for each in told["members"]}
        who = {"group_id": group, "group_instance_id": instance, "member_id": named[instance]}
        for number in range(1, 100):
            answer = connection.ask("Heartbeat", 4, generation_id=number, **who)
            if answer["error_code"] == 0:
                return number
    return None


def overlaps(members: Iterable[Member]) -> list[str]:
    """Where two members had one partition at the same time."""
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for number, member in enumerate(members):
        since: dict[int, int] = {}
        for event in member.history():
            for partition in event.partitions:
                if event.is_given:
                    since.setdefault(partition, event.at_ms)
                elif partition in since:
                    span = since.pop(partition), event.at_ms, number
                    spans.setdefault(partition, []).append(span)
        for partition, at_ms in since.items():
            spans.setdefault(partition, []).append((at_ms, _NEVER_MS, number))
    return [
        f"partition {partition}: {one} and {other}"
        for partition, all_of_it in spans.items()
        for one, other in itertools.pairwise(sorted(all_of_it))
        if other[0] < one[1]
    ]
