"""Why tidelog may answer otherwise than Apache Kafka: one predicate for each reason, and no others.

Each `Reason` names the row of the design, or of the known behaviour of Kafka, that it rests on, and
applies to a difference only if both values are the ones it speaks of. A difference that no reason
explains fails the comparison, and so does a reason that explains nothing any more. Reasons are
tried in order; the narrow ones come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.oracle.scenario import Difference

LAT_BIT = 0x08
ZSTD = 4
REASONS: list[Reason] = []


class Reason(NamedTuple):
    """One accepted difference. `source` is where it is decided, `why` what it is good for."""

    name: str
    source: str
    why: str
    applies: Callable[[Difference], bool]
    spoils_the_case: bool = False


def reason(name: str, source: str, why: str, *, spoils_the_case: bool = False) -> Any:
    """Register the decorated predicate."""

    def register(applies: Callable[[Difference], bool]) -> Callable[[Difference], bool]:
        REASONS.append(Reason(name, source, why, applies, spoils_the_case))
        return applies

    return register


def partitions(answer: Any) -> Iterator[dict[str, Any]]:
    """Every partition of a Produce, Fetch or ListOffsets answer."""
    if isinstance(answer, dict):
        for topic in answer.get("responses") or answer.get("topics") or ():
            yield from topic.get("partition_responses") or topic.get("partitions") or ()


def error(answer: Any) -> int | None:
    """The error of the first partition, None without one."""
    return next((one["error_code"] for one in partitions(answer)), None)


def served(answer: Any) -> tuple[list[dict[str, Any]], int]:
    """What the first partition of a Fetch answer carries: batches, and bytes left over."""
    records = next((one["records"] for one in partitions(answer)), None) or {
        "batches": [],
        "rest": 0,
    }
    return records["batches"], records["rest"]


def looked_up(difference: Difference) -> int | None:
    """The time a ListOffsets step asks for, if it is written as a number."""
    words = difference.step.name.split()
    return int(words[2]) if words[0] == "lookup" and words[2].lstrip("-").isdigit() else None


def real_times(batch: dict[str, Any]) -> list[int]:
    return [one["timestamp"] for one in batch["records"] if one["timestamp"] != -1]


# ------------------------------------------------------------------------------- negative times


@reason(
    "the largest time of a batch is computed over real times, negative ones too",
    "DESIGN 3, a header's maxTimestamp is never believed; KIP-228",
    "Kafka starts at -1 and stores -1 for a batch of -5 and -7",
)
def negative_largest(d: Difference) -> bool:
    if not d.path.endswith(".max_timestamp") or d.kafka != -1 or not isinstance(d.tidelog, int):
        return False
    index = int(d.path.rsplit("batches[", 1)[1].split("]")[0])
    batch = served(d.tidelog_answer)[0][index]
    return d.tidelog < -1 and d.tidelog == max(real_times(batch))


@reason(
    "negative times of formats 0 and 1 are stored",
    "DESIGN 3, every int64 but -1 is a real time; facts 5.2 and 5.7",
    "Kafka throws IllegalArgumentException while it converts and answers UNKNOWN_SERVER_ERROR",
    spoils_the_case=True,
)
def negative_produced(d: Difference) -> bool:
    negative = d.case.tags.get("times") in ("negative", "around zero")
    return (
        d.step.api == "Produce"
        and negative
        and error(d.kafka_answer) == -1
        and error(d.tidelog_answer) == 0
    )


@reason(
    "negative times are served to old clients",
    "DESIGN 3, every int64 but -1 is a real time; facts 5.6",
    "Kafka throws while it converts down and answers UNKNOWN_SERVER_ERROR",
)
def negative_fetched(d: Difference) -> bool:
    old = d.step.api == "Fetch" and d.step.version < 4
    return (
        old
        and error(d.kafka_answer) == -1
        and error(d.tidelog_answer) == 0
        and bool(served(d.tidelog_answer)[0])
    )


@reason(
    "times before -6 are looked up",
    "DESIGN 3, T < -6 is a real time and is answered",
    "Kafka takes every negative time for an unknown sentinel and answers UNSUPPORTED_VERSION",
)
def negative_lookup(d: Difference) -> bool:
    time = looked_up(d)
    return (
        time is not None
        and time < -6
        and error(d.kafka_answer) == 35
        and error(d.tidelog_answer) == 0
    )


# ------------------------------------------------------------------------------- old fetchers


@reason(
    "zstd batches are re-encoded for clients that do not know zstd",
    "DESIGN 3 (conversion on fetch); facts 5.6 and 5.7",
    "Kafka sends Fetch v4-9 bytes that they cannot read",
)
def zstd_transcoded(d: Difference) -> bool:
    if d.step.api != "Fetch" or not 4 <= d.step.version < 10 or not d.path.endswith("].attributes"):
        return False
    return d.kafka & 7 == ZSTD and d.tidelog & 7 != ZSTD and d.kafka & ~7 == d.tidelog & ~7


@reason(
    "zstd batches are converted for clients older than zstd",
    "DESIGN 1 (every client); facts 5.6",
    "Kafka answers UNSUPPORTED_COMPRESSION_TYPE to Fetch v0-3",
)
def zstd_converted(d: Difference) -> bool:
    old = d.step.api == "Fetch" and d.step.version < 10
    return old and error(d.kafka_answer) == 76 and error(d.tidelog_answer) == 0


@reason(
    "a converted answer has its exact size",
    "facts 5.6: eager conversion needs no filler",
    "Kafka promises a size before it converts, pads with an unreadable tail, or leaves batches out",
)
def no_filler(d: Difference) -> bool:
    if d.step.api != "Fetch" or d.step.version >= 4 or ".records." not in d.path:
        return False
    (ours, our_rest), (theirs, _) = served(d.tidelog_answer), served(d.kafka_answer)
    shorter = min(len(ours), len(theirs))
    return our_rest == 0 and shorter > 0 and ours[:shorter] == theirs[:shorter]


@reason(
    "a small fetch never stalls an old client",
    "facts 5.6: the first message whole, or a prefix of it",
    "Kafka converts what fits, finds nothing, and sends an empty set again and again",
)
def no_stall(d: Difference) -> bool:
    if d.step.api != "Fetch" or d.step.version > 2 or ".records." not in d.path:
        return False
    ours, our_rest = served(d.tidelog_answer)
    return not served(d.kafka_answer)[0] and (bool(ours) or our_rest > 0)


# ------------------------------------------------------------------------------- produce


@reason(
    "a refused append says why",
    "DESIGN 2 (errors carry a sentence); KIP-467",
    "Kafka leaves error_message null for most errors",
)
def says_why(d: Difference) -> bool:
    message = d.path.endswith(".error_message")
    return d.step.api == "Produce" and message and d.kafka is None and d.tidelog is not None


@reason(
    "a duplicate on a CreateTime topic has no append time",
    "DESIGN 3, ProduceResponse reports the stamp on a LogAppendTime topic, else -1",
    "Kafka answers a duplicate with the record time of the first one as if it were a stamp",
)
def duplicate_stamp(d: Difference) -> bool:
    stamp = d.path.endswith("log_append_time_ms") and d.case.topic.startswith("create")
    return stamp and d.tidelog == -1 and error(d.kafka_answer) == error(d.tidelog_answer) == 0


@reason(
    "a LogAppendTime bit set by a client is refused",
    "DESIGN 3, rejected with 32; facts 5.2",
    "since 3.6 Kafka accepts it on CreateTime topics and believes the header's time",
    spoils_the_case=True,
)
def client_stamp(d: Difference) -> bool:
    lie = "LogAppendTime" in d.case.name or "LAT" in d.case.tags.get("lie", "")
    return (
        d.step.api == "Produce"
        and lie
        and error(d.kafka_answer) == 0
        and error(d.tidelog_answer) == 32
    )


# ------------------------------------------------------------------------------- lookups


@reason(
    "ListOffsets v0 finds the offset at a time exactly",
    "DESIGN 3, ListOffsets v0 with T >= 0",
    "Kafka compares the time with the modification times of files",
)
def exact_v0(d: Difference) -> bool:
    time = looked_up(d)
    return (
        d.step.version == 0
        and time is not None
        and time >= 0
        and d.path.endswith("old_style_offsets")
    )


@reason(
    "a log without times has no largest time",
    "DESIGN 3, 'no largest time yet' is None, never -1",
    "Kafka finds the first batch whose largest time is -1 and answers its offset with the time -1",
)
def no_largest(d: Difference) -> bool:
    ours, theirs = (next(partitions(one), {}) for one in (d.tidelog_answer, d.kafka_answer))
    none = ours.get("offset") == ours.get("timestamp") == theirs.get("timestamp") == -1
    return looked_up(d) == -3 and none and theirs.get("offset", -1) >= 0


@reason(
    "the largest time of a log may be negative",
    "DESIGN 3, every int64 but -1 is a real time; KIP-228",
    "Kafka's largest time starts at -1",
)
def negative_largest_lookup(d: Difference) -> bool:
    ours, theirs = (next(partitions(one), {}) for one in (d.tidelog_answer, d.kafka_answer))
    if looked_up(d) != -3 or not isinstance(ours.get("timestamp"), int):
        return False
    return ours["timestamp"] < -1 and theirs.get("timestamp") == -1


@reason(
    "segments without times hide nothing behind them",
    "DESIGN 3, lookup; facts 5.3: no file times",
    "Kafka takes the modification time of a file for the largest time of a segment without times",
)
def no_file_times(d: Difference) -> bool:
    ours, theirs = (next(partitions(one), {}) for one in (d.tidelog_answer, d.kafka_answer))
    hidden = theirs.get("offset") == -1 and ours.get("offset", -1) >= 0
    return d.case.tags.get("edge") == "no times" and (looked_up(d) or -1) >= 0 and hidden


# ------------------------------------------------------------------------------- around the log


@reason(
    "fetch sessions are not offered",
    "facts 1.1: session id 0 keeps a client in full fetches",
    "sessions only matter with thousands of partitions",
)
def no_sessions(d: Difference) -> bool:
    return d.path == "session_id" and d.kafka == "<session>" and d.tidelog == 0


@reason(
    "the list of APIs is tidelog's own",
    "facts 2: what is advertised is what is served",
    "other APIs, and newer versions of the same ones",
)
def own_versions(d: Difference) -> bool:
    return d.step.api == "ApiVersions" and d.path in (
        "api_keys",
        "supported_features",
        "finalized_features",
        "finalized_features_epoch",
    )
