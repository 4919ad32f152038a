"""One parsed HTTP request below /v1: the broker, the path, the parameters, and its time.

Every handler gets an `ApiQuery` and reads its parameters, which its route declares (`routes`). An invalid
value raises `HttpError` with a sentence.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.http.answers import HttpError, partition_number
from tidelog.broker.http.routes.route import TRUTH
from tidelog.config.instants import parse_instant
from tidelog.protocol.errors import BrokerError, OffsetOutOfRange, UnknownTopicOrPartition
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.http.services import Services
    from tidelog.broker.metadata.image import Topic
    from tidelog.storage.log.partition import Partition

_RELEASE_S = 0.0002


class ApiQuery(NamedTuple):
    """One request: the broker, the path's topic and partition, the parameters, and its time."""

    services: Services
    path: Mapping[str, str]
    given: Mapping[str, list[str]]
    now_ms: int
    here: Mapping[str, frozenset[int]] = MappingProxyType({})
    """The partitions for which this broker answers, by topic (`leader_map`)."""

    def answers_for(self, topic: str, index: int) -> bool:
        """Returns whether this broker answers for a partition."""
        return index in self.here.get(topic, ())

    def one(self, name: str) -> str | None:
        """Returns a parameter that is given at most once, None if it is not given."""
        values = self.given.get(name, [])
        return values[0] if values else None

    def flag(self, name: str) -> bool:
        """Returns a boolean parameter; false if it is not given."""
        return TRUTH[(self.one(name) or "false").lower()]

    def time(self, name: str) -> int | None:
        """Returns an optional time in ms; -1, which means no time, is refused, or 0 with shift=true.

        No record has the time -1, so the records at or after it are those at or after 0. Raises
        HttpError.
        """
        text = self.one(name)
        if text is None:
            return None
        try:
            timestamp = parse_instant(text[:100], self.now_ms)
        except ValueError as error:
            raise HttpError(400, "BAD_TIME", f"{name}: {error}") from None
        if timestamp != NO_TIMESTAMP:
            return timestamp
        if self.flag("shift"):
            return 0
        raise HttpError(
            400,
            "NO_TIME",
            f'{name}: 1969-12-31T23:59:59.999Z is -1 in milliseconds, which means "no time": no record '
            "has it. Ask for a millisecond more or less, or have it shifted to 1970-01-01T00:00Z "
            "(shift=true, --shift)",
        )

    @property
    def topic(self) -> Topic:
        """Returns the topic. Raises UnknownTopicOrPartition."""
        topic = self.services.metadata.image.topics.get(self.path["topic"])
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {self.path['topic'][:260]}")
        return topic

    def topic_fields(self) -> dict[str, Any]:
        """Returns the topic's name and its id, which differs from ids in other clusters.

        Raises UnknownTopicOrPartition.
        """
        return {"topic": self.topic.name, "topic_id": str(self.topic.topic_id)}

    def partitions(self) -> list[int]:
        """Returns the requested partitions: one, or all of the topic.

        Raises UnknownTopicOrPartition and HttpError.
        """
        topic = self.topic
        text = self.path.get("partition") or self.one("partition")
        if text is None:
            return list(range(topic.partitions))
        index = partition_number(text)
        if index >= topic.partitions:
            count = topic.partitions
            raise UnknownTopicOrPartition(
                f"there is no partition {topic.name}-{index}: the topic has {count} "
                f"partition{'' if count == 1 else 's'}"
            )
        return [index]

    def each(self, answer_of: Callable[[Partition], dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the result of `answer_of` for every requested partition that this broker answers for.

        A partition that fails has its error in its place. If it is the only one requested, its
        BrokerError is raised. Raises HttpError when the broker stops.
        """
        rows: list[dict[str, Any]] = []
        leader = {"leader": self.services.metadata.node_id}
        for index in self.partitions():
            if not self.answers_for(self.path["topic"], index):
                continue
            if not self.services.ready:
                raise HttpError(503, "NOT_READY", "the broker starts or stops")
            try:
                partition = self.services.partitions.get(self.path["topic"], index)
                try:
                    row = answer_of(partition)
                except OffsetOutOfRange:  # retention deleted it meanwhile: describe what remains
                    row = answer_of(partition)
                rows.append({"partition": index, **row, **leader})
            except BrokerError as error:
                if "partition" in self.given:
                    raise
                rows.append(
                    {
                        "partition": index,
                        "error": error.code.name,
                        "message": error.message,
                        **leader,
                    }
                )
            time.sleep(_RELEASE_S)  # releases the interpreter's lock for the loop
        return rows
