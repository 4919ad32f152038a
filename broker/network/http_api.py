"""What Kafka's protocol cannot say, as JSON over HTTP below /v1: read-only, on the port of the metrics.

Both times of an offset; lookups by any record time, the six milliseconds before 1970 that ListOffsets has
no number for included; lookups by append time; why each segment is still there, when it will go, and
what other settings would delete (`http_explain`). ROUTES says what there is, docs/http.md shows each. A
time is given as milliseconds, as ISO 8601 with its zone, or from the broker's now ("-2h").

Everything is looked up, and written down, in a pool of its own: neither requests nor the lookups of
Kafka's protocol wait for it.
"""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.network.http_answers import Refused, answering, line, partition_number, twice
from broker.network.http_explain import explain
from config.instants import parse_instant
from protocol.errors import BrokerError, OffsetOutOfRange, UnknownTopicOrPartition
from storage.time.timestamp import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.metadata.image import Topic
    from broker.node import Node
    from storage.log.partition import Partition

log = logging.getLogger("tidelog.http")

_BREATH_S = 0.0002
_NONE = -1  # the offset of what is not found
_ISOLATION = ("read_uncommitted", "read_committed")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


class Asked(NamedTuple):
    """One request: the broker, what is meant by the path, what was given, and what time it is."""

    node: Node
    path: Mapping[str, str]
    given: Mapping[str, list[str]]
    now_ms: int

    def one(self, name: str) -> str | None:
        """A parameter that may be given once; raises Refused."""
        values = self.given.get(name, [])
        if len(values) > 1:
            raise Refused(400, "BAD_REQUEST", f"{name} is given {len(values)} times")
        return values[0] if values else None

    def flag(self, name: str) -> bool:
        """A parameter that is true or false; raises Refused."""
        text = self.one(name)
        if text is None:
            return False
        if text.lower() not in _TRUTH:
            raise Refused(400, "BAD_REQUEST", f"{name}={text[:40]}: expected true or false")
        return _TRUTH[text.lower()]

    def time(self, name: str) -> int | None:
        """A time that may be given; the one that is none is refused, or shifted if that is asked for.

        Nothing has the time -1, so what is at or after it is what is at or after 0. Raises Refused.
        """
        text = self.one(name)
        if text is None:
            return None
        try:
            timestamp = parse_instant(text[:100], self.now_ms)
        except ValueError as error:
            raise Refused(400, "BAD_TIME", f"{name}: {error}") from None
        if timestamp != NO_TIMESTAMP:
            return timestamp
        if self.flag("shift"):
            return 0
        raise Refused(
            400,
            "NO_TIME",
            f'{name}: 1969-12-31T23:59:59.999Z is -1 in milliseconds, which means "no time": no record '
            "has it. Ask for a millisecond more or less, or have it shifted to 1970-01-01T00:00Z "
            "(shift=true, --shift)",
        )

    @property
    def topic(self) -> Topic:
        """The topic; raises UnknownTopicOrPartition."""
        topic = self.node.metadata.image.topics.get(self.path["topic"])
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {self.path['topic'][:260]}")
        return topic

    def about(self) -> dict[str, Any]:
        """The topic's name, and its id, which no topic of another cluster has.

        Raises UnknownTopicOrPartition.
        """
        return {"topic": self.topic.name, "topic_id": str(self.topic.topic_id)}

    def partitions(self) -> list[int]:
        """The partitions that are asked for: one, or all of the topic.

        Raises UnknownTopicOrPartition and Refused.
        """
        topic = self.topic
        text = self.path.get("partition") or self.one("partition")
        if text is None:
            return list(range(topic.partitions))
        index = partition_number(text)
        if index >= topic.partitions:
            raise UnknownTopicOrPartition(
                f"there is no partition {topic.name}-{index}: it has {topic.partitions}"
            )
        return [index]

    def each(self, told: Callable[[Partition], dict[str, Any]]) -> list[dict[str, Any]]:
        """What is told of every partition asked for.

        One that fails says so in its place, unless it is the only one asked for: then its BrokerError
        is raised. Raises Refused when the broker stops.
        """
        rows: list[dict[str, Any]] = []
        for index in self.partitions():
            if not self.node.ready:
                raise Refused(503, "NOT_READY", "the broker is stopping")
            try:
                partition = self.node.partition(self.path["topic"], index)
                try:
                    row = told(partition)
                except OffsetOutOfRange:  # retention was faster: what it left is told
                    row = told(partition)
                rows.append({"partition": index, **row})
            except BrokerError as error:
                if "partition" in self.given:
                    raise
                rows.append(
                    {"partition": index, "error": error.code.name, "message": error.message}
                )
            time.sleep(_BREATH_S)  # the loop need not wait until the interpreter is taken from here
        return rows


# --- offsets -------------------------------------------------------------------------------------


def offsets(asked: Asked) -> dict[str, Any]:
    """The first offset at or after a time, or appended at or after it; without a time, the ends."""
    at, appended_at = asked.time("at"), asked.time("appended-at")
    if at is not None and appended_at is not None:
        raise Refused(400, "BAD_REQUEST", "at and appended-at are two questions: ask one at a time")
    isolation = asked.one("isolation") or _ISOLATION[0]
    if isolation not in _ISOLATION:
        raise Refused(
            400, "BAD_REQUEST", f"isolation={isolation[:40]}: expected {' or '.join(_ISOLATION)}"
        )
    told = asked.about()
    if at is not None:
        told |= twice("at", at)
    elif appended_at is not None:
        told |= twice("appended_at", appended_at)
    look = partial(_look, at=at, appended_at=appended_at, is_committed=isolation == _ISOLATION[1])
    return {**told, "partitions": asked.each(look)}


def _look(
    partition: Partition, *, at: int | None, appended_at: int | None, is_committed: bool
) -> dict[str, Any]:
    upper = partition.last_stable_offset if is_committed else partition.high_watermark
    start = min(partition.log_start_offset, upper)
    told: dict[str, Any] = {"log_start_offset": start, "end_offset": upper}
    if at is not None:
        found = partition.reader.find_by_time(at, upper_offset=upper)
        offset = _NONE if found is None else found[0]
        return told | _times(partition, offset) | _before(partition, offset, upper)
    if appended_at is None:
        largest = partition.reader.find_largest_time(upper_offset=upper)
        return told | {
            "first": _times(partition, start if start < upper else _NONE),
            "last": _times(partition, upper - 1 if start < upper else _NONE),
            "largest": _times(partition, _NONE if largest is None else largest[0]),
        }
    since = partition.reader.find_by_append_time(appended_at, upper_offset=upper)
    offset = _NONE if since.offset is None else since.offset
    if since.unknown_from is None:
        told |= _times(partition, offset) | _before(partition, offset, upper)
        return told | {"unknown": None}
    until = upper if since.offset is None else since.offset
    told |= {**_times(partition, _NONE), "offset": None}
    told |= _before(partition, since.unknown_from, upper)
    return told | {"unknown": {"start_offset": since.unknown_from, "end_offset": until}}


def _times(partition: Partition, offset: int) -> dict[str, Any]:
    """An offset and both its times."""
    record_time = append_time = None
    if offset != _NONE:
        _, record_time, append_time, _ = partition.reader.times_of(offset)
    return {
        "offset": offset,
        **twice("timestamp", record_time),
        **twice("append_time", append_time),
    }


def _before(partition: Partition, offset: int, upper: int) -> dict[str, Any]:
    """How much lies before an offset, or the end where it is none: what DeleteRecords would take."""
    offset = upper if offset == _NONE else offset
    return {
        "offsets_before": max(offset - partition.log_start_offset, 0),
        "bytes_before": partition.reader.size_before(offset),
    }


def record_times(asked: Asked) -> dict[str, Any]:
    """Both times of one offset, or with next=true of the first record from there on."""
    (index,) = asked.partitions()
    text = asked.path["offset"]
    if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) >= 2**63:
        raise Refused(400, "BAD_OFFSET", f"{text[:40]!r} is no offset: expected a number from 0 on")
    offset = int(text)
    partition = asked.node.partition(asked.path["topic"], index)
    if asked.flag("next"):
        record = partition.reader.first_record(offset)
        if record is None:
            raise OffsetOutOfRange(f"there is no record from offset {offset} on")
        offset, found = record
    else:
        found = partition.reader.times_of(offset)
    timestamp_type = None
    if found.record_time is not None:
        timestamp_type = "LogAppendTime" if found.is_log_append_time else "CreateTime"
    return {
        **asked.about(),
        "partition": index,
        "offset": offset,
        "kind": found.kind,
        **twice("timestamp", found.record_time),
        "timestamp_type": timestamp_type,
        **twice("append_time", found.append_time),
    }


# --- the routes ----------------------------------------------------------------------------------


class _Route(NamedTuple):
    """One thing that can be asked for, and the parameters it may have."""

    path: str
    tell: Callable[[Asked], dict[str, Any]]
    parameters: tuple[str, ...] = ()


ROUTES = (
    _Route(
        "/v1/topics/{topic}/offsets",
        offsets,
        ("at", "appended-at", "partition", "isolation", "shift"),
    ),
    _Route(
        "/v1/topics/{topic}/partitions/{partition}/records/{offset}/times", record_times, ("next",)
    ),
    _Route("/v1/topics/{topic}/explain", explain, ("partition", "set")),
)


def api(web: Any, node: Node) -> Any:
    """The application that serves ROUTES."""

    def failed() -> None:
        node.metrics.unexpected_errors += 1

    routes = ", ".join(f"GET {route.path}" for route in ROUTES)
    app = web.Application(middlewares=[answering(web, log, routes, failed)])
    for route in ROUTES:
        app.router.add_get(
            route.path.removeprefix("/v1"), _handler(node, route, web), allow_head=True
        )
    return app


def _handler(node: Node, route: _Route, web: Any) -> Any:
    async def handle(request: Any) -> Any:
        given: dict[str, list[str]] = {}
        for name, value in request.query.items():
            if name not in route.parameters:
                known = ", ".join(route.parameters)
                raise Refused(
                    400,
                    "UNKNOWN_PARAMETER",
                    f"{name[:40]!r} is no parameter of this request: "
                    + (f"it may have {known}" if known else "it takes none"),
                )
            given.setdefault(name, []).append(value)
        asked = Asked(node, request.match_info, given, node.clock.now_ms())
        text = await node.pools.http.run(_told, route, asked)
        return web.Response(text=text, content_type="application/json")

    return handle


def _told(route: _Route, asked: Asked) -> str:
    """In the thread: the answer, written down there too, partition by partition.

    One call that writes all of a long one would keep the interpreter from everybody else.
    """
    told = route.tell(asked)
    if "partitions" not in told:
        return line(told)
    rows = ", ".join(json.dumps(row) for row in told.pop("partitions"))
    return f'{json.dumps(told)[:-1]}, "partitions": [{rows}]}}\n'
