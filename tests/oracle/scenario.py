"""What a comparison is made of: cases of steps, played against one broker, giving plain values.

A `Case` owns one partition of the topic kind it names and is a list of `Step`s; a step is one
request. `play` sends the steps to one broker and returns one canonical answer per step: what may
differ between two correct brokers (append times, topic ids, texts of messages, how a payload was
compressed) is replaced by a name, everything else stays. The same case is played against both
brokers with the same bytes; `differences` then lists where the two answers part.

Append times become `append#n` for the n-th Produce of the case, so a stored stamp that is not the
one the producer was told is still seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.oracle import recordset, wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ANY_TEXT = "<text>"
CLOSED = "<connection closed>"
SILENT = "<no answer>"
NO_LIMIT_BYTES = 1 << 20


class Append(NamedTuple):
    """Stands for the append time of the case's n-th Produce, plus `plus` ms, in a lookup."""

    number: int
    plus: int = 0


@dataclass(frozen=True)
class Step:
    """One request: its fields may depend on what the broker answered before."""

    name: str
    api: str
    version: int
    fields: Callable[[Context], dict[str, Any]]
    answered: bool = True
    raw: bytes | None = None


@dataclass(frozen=True)
class Case:
    """A named list of steps on a partition of its own; `tags` say what is special, for reasons."""

    name: str
    topic: str
    steps: tuple[Step, ...]
    tags: dict[str, Any] = field(default_factory=dict)


@dataclass
class Context:
    """What the steps of one case know about the broker they are played against."""

    topic: str
    partition: int
    topic_ids: dict[str, str]
    append_times: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def timestamp(self, wanted: int | Append) -> int:
        """The integer to look up."""
        if isinstance(wanted, Append):
            return self.append_times[wanted.number] + wanted.plus
        return wanted


class Difference(NamedTuple):
    """One place where two canonical answers part."""

    case: Case
    step: Step
    path: str
    kafka: Any
    tidelog: Any
    kafka_answer: Any
    tidelog_answer: Any

    def __str__(self) -> str:
        return (
            f"{self.case.name} / {self.step.name}: {self.path}: "
            f"kafka {show(self.kafka)}, tidelog {show(self.tidelog)}"
        )


def show(value: Any, limit: int = 120) -> str:
    """A value for a failure message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


# ------------------------------------------------------------------------------------ steps


def produce(
    version: int,
    records: bytes | None,
    *,
    acks: int = -1,
    name: str = "",
    topic: str | None = None,
    partition: int | None = None,
    transactional_id: str | None = None,
) -> Step:
    """Produce one record set to the case's partition (or to the one named)."""

    def fields(context: Context) -> dict[str, Any]:
        index = context.partition if partition is None else partition
        data = {
            "name": topic or context.topic,
            "partition_data": [{"index": index, "records": records}],
        }
        return {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [data],
        }

    label = f"produce v{version}" + (f" {name}" if name else "")
    return Step(label, "Produce", version, fields, answered=acks != 0)


def fetch(
    version: int,
    offset: int = 0,
    *,
    max_bytes: int = NO_LIMIT_BYTES,
    isolation: int = 0,
    topic: str | None = None,
    topic_id: str | None = None,
    partition: int | None = None,
    **more: Any,
) -> Step:
    """Fetch from the case's partition without waiting."""
    request_keys = {
        key: more.pop(key) for key in tuple(more) if key.startswith(("session", "min_", "max_wait"))
    }
    request_max = more.pop("request_max_bytes", NO_LIMIT_BYTES)

    def fields(context: Context) -> dict[str, Any]:
        wanted = {
            "partition": context.partition if partition is None else partition,
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
            **more,
        }
        target = {
            "topic": topic or context.topic,
            "topic_id": topic_id or context.topic_ids.get(context.topic),
            "partitions": [wanted],
        }
        base = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": request_max,
            "isolation_level": isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [target],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return base | request_keys

    label = f"fetch v{version} @{offset}"
    if max_bytes != NO_LIMIT_BYTES:
        label += f" max {max_bytes}"
    return Step(label, "Fetch", version, fields)


def lookup(
    version: int,
    timestamp: int | Append,
    *,
    isolation: int = 0,
    max_offsets: int = 100,
    topic: str | None = None,
    partitions: Sequence[int] | None = None,
    epoch: int = -1,
) -> Step:
    """ListOffsets for one time (or sentinel) of the case's partition."""

    def fields(context: Context) -> dict[str, Any]:
        wanted = [
            {
                "partition_index": index,
                "current_leader_epoch": epoch,
                "timestamp": context.timestamp(timestamp),
                "max_num_offsets": max_offsets,
            }
            for index in (partitions or [context.partition])
        ]
        topics = [{"name": topic or context.topic, "partitions": wanted}]
        return {"replica_id": -1, "isolation_level": isolation, "topics": topics}

    return Step(f"lookup v{version} {timestamp}", "ListOffsets", version, fields)


def ask(name: str, api: str, version: int, fields: Any) -> Step:
    """Any other request: `fields` is a dict, or a function of the context giving one."""
    return Step(name, api, version, fields if callable(fields) else lambda _: fields)


def send_raw(name: str, key: int, version: int, body: bytes) -> Step:
    """A request with a body of our own making; only what comes back raw is compared."""
    return Step(name, f"raw {key}", version, lambda _: {}, raw=body)


# ------------------------------------------------------------------------------------ playing


def play(case: Case, connection: wire.Connection, context: Context) -> list[Any]:
    """Play every step against one broker; one canonical answer per step."""
    answers = []
    for step in case.steps:
        if step.raw is not None:
            key = int(step.api.split()[1])
            frame = connection.ask_raw(key, step.version, step.raw)
            answers.append(CLOSED if frame is None else frame.hex())
            continue
        begin_ms = time.time_ns() // 1_000_000
        fields = step.fields(context)
        try:
            answer = connection.ask(step.api, step.version, answered=step.answered, **fields)
        except wire.NoAnswerError:
            answers.append(SILENT)
            continue
        if not step.answered:
            connection.close()  # whether it went well is seen by fetching
        context.answers.append(answer)
        if step.api == "Produce":
            _note_append_time(context, answer, begin_ms)
        answers.append(CLOSED if answer is None else canonical(step.api, answer, context))
    return answers


def _note_append_time(context: Context, answer: Any, begin_ms: int) -> None:
    """Remember the stamp that the broker reported, and keep the next one apart from it."""
    stamp = -1
    for partition in _partitions(answer, "responses", "partition_responses"):
        stamp = partition.get("log_append_time_ms", -1)
    if stamp == -1:
        stamp = begin_ms  # not reported: what a lookup may use instead
    context.append_times.append(stamp)
    while time.time_ns() // 1_000_000 <= max(stamp, begin_ms) + 1:
        time.sleep(0.0005)  # two appends in one millisecond could not be told apart


def _partitions(answer: Any, topics: str, partitions: str) -> Iterator[dict[str, Any]]:
    for topic in (answer or {}).get(topics, ()):
        yield from topic[partitions]


def canonical(api: str, answer: dict[str, Any], context: Context) -> Any:
    """An answer with everything that may differ between correct brokers replaced by names."""
    if api == "Fetch":
        for partition in _partitions(answer, "responses", "partitions"):
            partition["records"] = _canonical_records(partition["records"])
    stamps = {stamp: f"append#{i}" for i, stamp in enumerate(context.append_times)}
    ids = {identity: f"<id of {name}>" for name, identity in context.topic_ids.items()}
    return _replace(answer, stamps, ids)


def _canonical_records(records: bytes | None) -> Any:
    if records is None:
        return None
    batches, rest = recordset.parse(records)
    return {"batches": batches, "rest": rest}


TEXTS = {"error_message", "batch_index_error_message"}
STAMPED = {"log_append_time_ms", "timestamp", "max_timestamp", "base_timestamp"}


def _replace(value: Any, stamps: dict[int, str], ids: dict[str, str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            name: _replace(one, stamps, ids, name)
            for name, one in value.items()
            if name != "throttle_time_ms"
        }
    if isinstance(value, list | tuple):
        return [_replace(one, stamps, ids, key) for one in value]
    if key in TEXTS and value is not None:
        return ANY_TEXT
    if key in STAMPED:
        return stamps.get(value, value)
    if key == "topic_id":
        return ids.get(value, value)
    return value


# ------------------------------------------------------------------------------------ comparing


def differences(case: Case, kafka: Sequence[Any], tidelog: Sequence[Any]) -> list[Difference]:
    """Where the answers of the two brokers part, step by step."""
    found = []
    for step, one, other in zip(case.steps, kafka, tidelog, strict=True):
        for path, left, right in walk(one, other):
            found.append(Difference(case, step, path, left, right, one, other))
    return found


def walk(left: Any, right: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Leaves at which two nested values differ; lists of unequal length differ as a whole, once."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            yield from walk(
                left.get(key, "<missing>"),
                right.get(key, "<missing>"),
                f"{path}.{key}" if path else key,
            )
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for i, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from walk(one, other, f"{path}[{i}]")
    elif left != right or type(left) is not type(right):
        yield path, left, right
