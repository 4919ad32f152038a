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

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.oracle import recordset, wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

ANY_TEXT = "<text>"
API_VERSIONS = 18
CLOSED = "<connection closed>"
SILENT = "<no answer>"
NO_LIMIT_BYTES = 1 << 20
COORDINATOR_LOAD_IN_PROGRESS = 14
LOADED_WITHIN_S = 60
CHANGES = {
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterClientQuotas",
    "IncrementalAlterConfigs",
    "AlterConfigs",
}


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
    """A named list of steps on a partition of its own; `tags` say what is special, for reasons.

    `partitions`: how many it needs; they follow each other.
    """

    name: str
    topic: str
    steps: tuple[Step, ...]
    tags: dict[str, Any] = field(default_factory=dict)
    partitions: int = 1


@dataclass
class Context:
    """What the steps of one case know about the broker they are played against."""

    topic: str
    partition: int
    topic_ids: dict[str, str]
    append_times: list[range] = field(default_factory=list)
    log_dir: Path | None = None
    settle: Callable[[wire.Connection, str, dict[str, Any], Any], None] | None = None

    def timestamp(self, wanted: int | Append) -> int:
        """The integer to look up."""
        if isinstance(wanted, Append):
            times = self.append_times[wanted.number]
            return (times[-1] if wanted.plus > 0 else times[0]) + wanted.plus
        return wanted

    def append_name(self, timestamp: int) -> int | str:
        """`append#n` if the case's n-th Produce was stamped like this, else the time as it is."""
        if not self.topic.startswith("append"):
            return timestamp  # only a LogAppendTime topic stamps
        for i, times in enumerate(self.append_times):
            if timestamp in times:
                return f"append#{i}"
        return timestamp


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


def read_log_file() -> Step:
    """What is on the disk: the case's `.log` files, field by field."""
    return Step("the log files", "Log", 0, lambda _: {})


def restrict(case: Case, newest: dict[str, int]) -> Case | None:
    """The case without the requests that are newer than `newest` knows; None if nothing is written."""
    steps = tuple(step for step in case.steps if step.version <= newest.get(step.api, -1))
    writes = any(step.api == "Produce" for step in steps)
    return replace(case, steps=steps) if writes else None


# ------------------------------------------------------------------------------------ playing


def read_log(context: Context) -> dict[str, Any]:
    """The batches of every segment of the case's partition, and the bytes after the last one."""
    assert context.log_dir is not None
    directory = context.log_dir / f"{context.topic}-{context.partition}"
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    batches, rest = recordset.parse(data)
    return {
        "segments": sorted(path.name for path in directory.glob("*.log")),
        "batches": batches,
        "rest": rest,
    }


def play(case: Case, connection: wire.Connection, context: Context) -> list[Any]:
    """Play every step against one broker; one canonical answer per step."""
    answers = []
    for step in case.steps:
        if step.api == "Log":
            answers.append(_replace(read_log(context), context, {}))
            continue
        if step.raw is not None:
            key = int(step.api.split()[1])
            frame = connection.ask_raw(key, step.version, step.raw)
            answers.append(CLOSED if frame is None else "<answered>")
            continue
        begin_ms = time.time_ns() // 1_000_000
        fields = step.fields(context)
        try:
            answer = _ask_until_loaded(connection, step, fields)
        except wire.NoAnswerError:
            answers.append(SILENT)
            continue
        if not step.answered:
            # Whether it went well is seen by fetching, once this connection has been served so far.
            with contextlib.suppress(wire.NoAnswerError):
                connection.ask_raw(API_VERSIONS, 0, b"")
            connection.close()
        if context.settle and step.api in CHANGES:
            context.settle(connection, step.api, fields, answer)
        if step.api == "Produce":
            _note_append_time(context, answer, begin_ms)
        answers.append(CLOSED if answer is None else canonical(step.api, answer, context))
    return answers


def _ask_until_loaded(connection: wire.Connection, step: Step, fields: dict[str, Any]) -> Any:
    """Ask, and ask again for a while if the broker is still loading what it needs for an answer."""
    deadline = time.monotonic() + LOADED_WITHIN_S
    while True:
        answer = connection.ask(step.api, step.version, answered=step.answered, **fields)
        is_loading = answer and answer.get("error_code") == COORDINATOR_LOAD_IN_PROGRESS
        if not is_loading or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)  # a foreign process can only be polled


def _note_append_time(context: Context, answer: Any, begin_ms: int) -> None:
    """Remember the stamp that the broker reported, and keep the next one apart from it.

    Produce v0 and v1 report none: then it is one of the milliseconds that the request took.
    """
    stamp, end_ms = -1, time.time_ns() // 1_000_000
    for partition in _partitions(answer, "responses", "partition_responses"):
        stamp = partition.get("log_append_time_ms", -1)
    context.append_times.append(
        range(begin_ms, end_ms + 1) if stamp == -1 else range(stamp, stamp + 1)
    )
    while time.time_ns() // 1_000_000 <= end_ms + 1:
        time.sleep(0.0005)  # two appends in one millisecond could not be told apart


def _partitions(answer: Any, topics: str, partitions: str) -> Iterator[dict[str, Any]]:
    for topic in (answer or {}).get(topics, ()):
        yield from topic[partitions]


def canonical(api: str, answer: dict[str, Any], context: Context) -> Any:
    """An answer with everything that may differ between correct brokers replaced by names."""
    if api == "Fetch":
        for partition in _partitions(answer, "responses", "partitions"):
            partition["records"] = _canonical_records(partition["records"])
    if api == "Metadata":
        _name_the_broker(answer)
    if api == "FindCoordinator":
        for one in (answer, *(answer.get("coordinators") or ())):
            if one.get("port", -1) >= 0:
                one["host"], one["port"] = "<host>", "<port>"
    if api in ("DescribeCluster", "DescribeLogDirs"):
        _name_the_machine(answer)
    if api in ("CreatePartitions", "AlterConfigs", "ElectLeaders"):
        _in_order(answer)
    if api == "DeleteTopics":
        answer["responses"].sort(key=lambda one: one["name"] or "")
    if answer.get("session_id"):
        answer["session_id"] = "<session>"
    if answer.get("finalized_features_epoch", -1) >= 0:
        answer["finalized_features_epoch"] = "<epoch>"
    if api == "InitProducerId" and answer["producer_id"] >= 0:
        answer["producer_id"] = "<producer id>"
    ids = {identity: f"<id of {name}>" for name, identity in context.topic_ids.items()}
    return _replace(answer, context, ids)


def _name_the_broker(answer: dict[str, Any]) -> None:
    """What a Metadata answer says of the broker itself; partitions come in any order."""
    for broker in answer["brokers"]:
        broker["host"], broker["port"] = "<host>", "<port>"
    if answer.get("cluster_id") is not None:
        answer["cluster_id"] = "<cluster>"
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda one: one["partition_index"])
    answer["topics"].sort(key=lambda one: (one["name"] or "", one.get("topic_id") or ""))


def _name_the_machine(answer: dict[str, Any]) -> None:
    """What DescribeCluster and DescribeLogDirs say of where a broker runs."""
    for broker in answer.get("brokers", ()):
        broker["host"], broker["port"] = "<host>", "<port>"
    if answer.get("cluster_id"):
        answer["cluster_id"] = "<cluster>"
    for directory in answer.get("results", ()):
        directory["log_dir"] = "<directory>"
        for key in ("total_bytes", "usable_bytes"):
            if directory.get(key, -1) > 0:
                directory[key] = "<bytes>"
        for topic in directory["topics"]:
            topic["partitions"].sort(key=lambda one: one["partition_index"])


def _in_order(answer: dict[str, Any]) -> None:
    """Results of topics, resources and partitions, which come in any order; none of coordinators' topics."""
    if "replica_election_results" in answer:
        answer["replica_election_results"] = [
            one for one in answer["replica_election_results"] if not one["topic"].startswith("__")
        ]
    for one in answer.get("replica_election_results", ()):
        one["partition_result"].sort(key=lambda each: each["partition_id"])
    for key, name in (
        ("results", "name"),
        ("responses", "resource_name"),
        ("replica_election_results", "topic"),
    ):
        if key in answer:
            answer[key].sort(key=lambda one: one[name])


def _canonical_records(records: bytes | None) -> Any:
    if records is None:
        return None
    batches, rest = recordset.parse(records)
    return {"batches": batches, "rest": rest}


KNOWN_IDS = {"00000000-0000-0000-0000-000000000000", "11111111-2222-3333-4444-555555555555"}
TEXTS = {"error_message", "batch_index_error_message"}
STAMPED = {"log_append_time_ms", "timestamp", "max_timestamp", "base_timestamp"}


def _replace(value: Any, context: Context, ids: dict[str, str], key: str = "") -> Any:
    if key == "configs" and isinstance(value, list):
        value = {one["name"]: one for one in value}  # in any order
    if key == "synonyms" and isinstance(value, list):
        value = {f"{one['name']} from {one['source']}": one for one in value}
    if isinstance(value, dict):
        return {
            name: _replace(one, context, ids, name)
            for name, one in value.items()
            if name != "throttle_time_ms"
        }
    if isinstance(value, list | tuple):
        return [_replace(one, context, ids, key) for one in value]
    if key in TEXTS:
        return (
            ANY_TEXT if value else None
        )  # Kafka sends an empty text where there is nothing to say
    if key == "documentation":
        return ANY_TEXT if value else value
    if key in STAMPED:
        return context.append_name(value)
    if key == "topic_id":
        return ids.get(value, value if value in KNOWN_IDS else "<new id>")
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
