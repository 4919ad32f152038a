"""Why tidelog may answer or store otherwise than Apache Kafka 0.10.2.2; as in ../differences.py.

Where 0.10.2.2 and later Kafkas differ, tidelog goes with the later ones, and the reason says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.differences import Reason, error, looked_up, register, segment_borders, served

if TYPE_CHECKING:
    from tests.oracle.scenario import Difference

OLD_REASONS: list[Reason] = []


def reason(name: str, source: str, why: str, **flags: bool) -> Any:
    """Register the decorated predicate for Apache Kafka 0.10.2.2."""
    return register(OLD_REASONS, name, source, why, **flags)


def codes(d: Difference) -> tuple[int | None, int | None]:
    """Both answers' errors, of a Produce; (None, None) for anything else."""
    if d.step.api != "Produce":
        return None, None
    return error(d.kafka_answer), error(d.tidelog_answer)


def flat(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Every message with its absolute offset and the time a consumer sees, wrappers undone."""
    found = []
    for one in batches:
        if "inner" not in one:
            found.append((one["offset"], one.get("timestamp"), one["key"], one["value"]))
            continue
        shift = one["offset"] - one["inner"][-1]["offset"] if one["magic"] else 0
        stamped = one["attributes"] & 0x08
        for inner in one["inner"]:
            time = one["timestamp"] if stamped else inner.get("timestamp")
            found.append((inner["offset"] + shift, time, inner["key"], inner["value"]))
    return found


# ------------------------------------------------------------------------------- what is refused


@reason(
    "negative times of formats 0 and 1 are stored",
    "DESIGN 3, every int64 but -1 is a real time; facts 5.2",
    "Kafka throws IllegalArgumentException while it converts and answers UNKNOWN_SERVER_ERROR",
    spoils_the_case=True,
)
def negative_produced(d: Difference) -> bool:
    return d.case.tags.get("times") == "negative" and codes(d) == (-1, 0)


@reason(
    "a missing time is within every window",
    "DESIGN 3, -1 is exempt; facts 5.2: since 0.11",
    "0.10 compares -1 with the clock",
    spoils_the_case=True,
)
def missing_time(d: Difference) -> bool:
    none = d.case.tags.get("times") in ("none", "some none") and d.case.topic == "create-window"
    return none and codes(d) == (32, 0)


@reason(
    "one set holds one format",
    "facts 5.2: 87 for mixed formats, since 0.11",
    "0.10 takes each message by itself",
    spoils_the_case=True,
)
def one_format(d: Difference) -> bool:
    mixed = (
        "formats 0 and 1",
        "formats 1 and 2",
        "inner magic 0",
        "inner is a batch",
        "wrapper then",
        "plain then",
    )
    return d.case.name.startswith(mixed) and codes(d) in ((0, 87), (2, 87), (-1, 87))


@reason(
    "format 2 is converted to the topic's format",
    "DESIGN 3, all nine conversions",
    "0.10 does not know format 2",
    spoils_the_case=True,
)
def format_2(d: Difference) -> bool:
    return "format 2" in d.case.name and codes(d)[0] == 2 and codes(d)[1] in (0, 76, 87)


@reason(
    "what cannot be read has an error of its own",
    "DESIGN 2, anything unforeseen is UNKNOWN_SERVER_ERROR, so what is foreseen is not",
    "Kafka answers UNKNOWN_SERVER_ERROR",
)
def named_error(d: Difference) -> bool:
    return codes(d)[0] == -1 and codes(d)[1] in (2, 76, 87)


@reason(
    "what is inside a wrapper is checked",
    "facts 5.2: inner CRC bad is 2, cut or compressed again is 87",
    "0.10 stores some of it and drops some",
    spoils_the_case=True,
)
def inner_checked(d: Difference) -> bool:
    lies = ("bad inner crc", "inner cut", "nested compression")
    return d.case.name.startswith(lies) and codes(d) in ((0, 2), (0, 87), (2, 87))


@reason(
    "one set holds at most one wrapper",
    "facts 5.2; Apache Kafka since 0.11",
    "0.10 unpacks all of them into one new wrapper",
    spoils_the_case=True,
)
def one_wrapper(d: Difference) -> bool:
    return d.case.name.startswith("two wrappers") and codes(d) == (0, 87)


@reason(
    "onto format 0 the time is ignored",
    "DESIGN 3: no window, no bit check",
    "0.10 holds a time against the window, and the bit against the topic, before it drops both",
    spoils_the_case=True,
)
def time_ignored(d: Difference) -> bool:
    onto_0 = d.case.topic in ("create-window-0", "create-format-0", "append-format-0")
    return onto_0 and codes(d) == (32, 0)


@reason(
    "a wrapper's time is the largest of its messages, if that is negative too",
    "DESIGN 3, every int64 but -1 is a real time; KIP-228",
    "Kafka starts at -1",
)
def negative_wrapper(d: Difference) -> bool:
    time = d.path.endswith("].timestamp") and (d.kafka, d.tidelog) == (-1, -5)
    return time and d.step.api in ("Fetch", "Log") and d.case.tags.get("times") == "negative"


# ------------------------------------------------------------------------------- what is served


@reason(
    "wrappers are converted one by one",
    "facts 5.6: converted eagerly, batch by batch",
    "0.10 puts all messages of a fetch into one new wrapper",
)
def one_by_one(d: Difference) -> bool:
    if d.step.api != "Fetch" or ".records.batches" not in d.path:
        return False
    ours, theirs = served(d.tidelog_answer)[0], served(d.kafka_answer)[0]
    return d.step.version < 2 and flat(ours) == flat(theirs)


@reason(
    "negative times are served to old clients",
    "DESIGN 3, every int64 but -1 is a real time; facts 5.6",
    "Kafka throws while it converts down and answers UNKNOWN_SERVER_ERROR",
)
def negative_fetched(d: Difference) -> bool:
    old = d.step.api == "Fetch" and d.step.version < 2 and d.case.tags.get("times") == "negative"
    return old and error(d.kafka_answer) == -1 and bool(served(d.tidelog_answer)[0])


@reason(
    "a fetch goes on into the next segment",
    "DESIGN 4 (segment borders may differ); clients know no segments",
    "Kafka answers at most the rest of one segment file",
)
def next_segment(d: Difference) -> bool:
    segments = d.case.topic.endswith(("segments", "indexed"))
    if d.step.api != "Fetch" or not segments or ".records." not in d.path:
        return False
    (ours, _), (theirs, their_rest) = served(d.tidelog_answer), served(d.kafka_answer)
    ours_flat, theirs_flat = flat(ours), flat(theirs)
    prefix = 0 < len(theirs_flat) <= len(ours_flat) and ours_flat[: len(theirs_flat)] == theirs_flat
    return prefix and their_rest == 0


@reason(
    "a wrapper that the broker compressed has a size of its own",
    "DESIGN 6: other compressors than Java's",
    "so a limited fetch cuts the message after it elsewhere",
    sometimes=True,
)
def other_compressor(d: Difference) -> bool:
    limited = d.step.api == "Fetch" and " max " in d.step.name and d.path.endswith("records.rest")
    (ours, our_rest), (theirs, their_rest) = served(d.tidelog_answer), served(d.kafka_answer)
    return limited and ours == theirs and our_rest > 0 and abs(our_rest - their_rest) < 200


@reason(
    "a topic without times is searched without an error",
    "DESIGN 3, lookup: none is (-1, -1) without error",
    "Kafka answers UNSUPPORTED_FOR_MESSAGE_FORMAT where the topic's format is 0",
)
def no_times_no_error(d: Difference) -> bool:
    asked = d.step.api == "ListOffsets" and (looked_up(d) or 0) >= 0
    return asked and error(d.kafka_answer) == 43 and error(d.tidelog_answer) == 0


reason(
    "a segment ends where its compressed bytes do",
    "DESIGN 6: other compressors than Java's",
    "a wrapper that the broker compressed may fill the file a little earlier or later",
    sometimes=True,
)(segment_borders)
