"""Why tidelog may answer otherwise than Apache Kafka: one predicate for each reason, and no others.

Each `Reason` names the row of the design, or of the known behaviour of Kafka, that it rests on, and
applies to a difference only if both values are the ones it speaks of. A difference that no reason
explains fails the comparison, and so does a reason that explains nothing any more. Reasons are
tried in order; the narrow ones come first. Those for 0.10.2.2 are in kafka_0_10/differences.py, those
for lookups in random logs in logs/lookup_differences.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.oracle.scenario import Difference

LAT_BIT = 0x08
ZSTD = 4
CODECS_DIFFER_BY = 40  # bytes, in the batches of the random logs before a cut
REASONS: list[Reason] = []


class Reason(NamedTuple):
    """One accepted difference: `source` is where it is decided, `why` what it is good for.

    `spoils_the_case`: the log holds something else from here on. `sometimes`: whether it shows
    depends on the moment of the run, so a run without it is no reason to drop it.
    """

    name: str
    source: str
    why: str
    applies: Callable[[Difference], bool]
    spoils_the_case: bool = False
    sometimes: bool = False


def register(reasons: list[Reason], name: str, source: str, why: str, **flags: bool) -> Any:
    """A decorator that adds its predicate to `reasons`."""

    def add(applies: Callable[[Difference], bool]) -> Callable[[Difference], bool]:
        reasons.append(Reason(name, source, why, applies, **flags))
        return applies

    return add


def reason(name: str, source: str, why: str, **flags: bool) -> Any:
    """Register the decorated predicate for Apache Kafka 3.9.1."""
    return register(REASONS, name, source, why, **flags)


def partitions(answer: Any) -> Iterator[dict[str, Any]]:
    """Every partition of a Produce, Fetch or ListOffsets answer."""
    if isinstance(answer, dict):
        for topic in answer.get("responses") or answer.get("topics") or ():
            yield from topic.get("partition_responses") or topic.get("partitions") or ()


def error(answer: Any) -> int | None:
    """The error of the first partition, None without one."""
    return next((one["error_code"] for one in partitions(answer)), None)


def is_once(d: Difference, key: str) -> bool:
    """Whether tidelog answers once what Kafka answers as often as it is asked for."""
    kafka, tidelog = ([each[key] for each in found] for found in (d.kafka, d.tidelog))
    return tidelog == list(dict.fromkeys(kafka)) and all(each in d.kafka for each in d.tidelog)


def served(answer: Any) -> tuple[list[dict[str, Any]], int]:
    """What a Fetch answer's first partition, or a log, holds: batches, and bytes left over."""
    if isinstance(answer, dict) and "batches" in answer:
        return answer["batches"], answer["rest"]
    records = next((one.get("records") for one in partitions(answer)), None) or {
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


def zstd_sent(answer: Any) -> bool:
    """Whether any batch of a Fetch answer is compressed with zstd."""
    return any(one["attributes"] & 7 == ZSTD for one in served(answer)[0])


def without_codec(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one | {"attributes": one["attributes"] & ~7} for one in batches]


def without_largest(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Batches whose largest time is negative say -1 there, as Kafka's do."""
    found = without_codec(batches)
    for one in found:
        if isinstance(one.get("max_timestamp"), int) and one["max_timestamp"] < -1:
            one["max_timestamp"] = -1
    return found


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
    converted = d.step.version < 4 or (d.step.version < 10 and zstd_sent(d.kafka_answer))
    if d.step.api != "Fetch" or not converted or ".records." not in d.path:
        return False
    (ours, our_rest), (theirs, _) = served(d.tidelog_answer), served(d.kafka_answer)
    shorter = min(len(ours), len(theirs))
    same = shorter > 0 and without_codec(ours[:shorter]) == without_codec(theirs[:shorter])
    return same and (our_rest == 0 or " max " in d.step.name)


@reason(
    "a fetch goes on into the next segment",
    "DESIGN 4 (segment borders may differ); clients know no segments",
    "Kafka answers at most the rest of one segment file",
)
def next_segment(d: Difference) -> bool:
    if d.step.api != "Fetch" or not d.case.tags.get("segments") or ".records." not in d.path:
        return False
    (ours, _), (theirs, their_rest) = served(d.tidelog_answer), served(d.kafka_answer)
    same = without_largest(ours[: len(theirs)]) == without_largest(theirs)
    longer = len(ours) >= len(theirs) > 0 and same
    return longer and (their_rest == 0 or d.step.version < 4)


@reason(
    "a batch that the broker compressed has a size of its own",
    "DESIGN 6: other compressors than Java's",
    "so a limited fetch is cut elsewhere: within the same batch, or where that is just whole",
    sometimes=True,
)
def other_compressor(d: Difference) -> bool:
    limited = d.step.api == "Fetch" and d.step.version >= 4 and " max " in d.step.name
    cut = d.path.endswith(("records.rest", "records.batches"))
    if not (limited and cut and d.case.tags.get("random", False)):
        return False
    shorter, longer = sorted(
        map(served, (d.tidelog_answer, d.kafka_answer)), key=lambda s: len(s[0])
    )
    if shorter[0] == longer[0]:
        return shorter[1] > 0 and abs(shorter[1] - longer[1]) < CODECS_DIFFER_BY
    # One got the batch whole that is cut in the other's answer, and little of the next one.
    packed = any(one["attributes"] & 7 for one in longer[0])
    just_whole = longer[1] < CODECS_DIFFER_BY and shorter[1] > 0
    return packed and just_whole and shorter[0] == longer[0][:-1]


@reason(
    "a segment ends where its compressed bytes do",
    "DESIGN 6: other compressors than Java's",
    "a batch that the broker compressed may fill the file a little earlier or later",
    sometimes=True,
)
def segment_borders(d: Difference) -> bool:
    names = (
        d.step.api == "Log" and d.path.startswith("segments") and d.case.tags.get("random", False)
    )
    return names and served(d.kafka_answer) == served(d.tidelog_answer)


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


@reason(
    "a transactional id that is named twice is described once",
    "docs/compatibility.md: limits",
    "its description may be thousands of times as long as its name",
)
def transaction_described_once(d: Difference) -> bool:
    described = d.step.api == "DescribeTransactions" and d.path == "transaction_states"
    return described and is_once(d, "transactional_id")


@reason(
    "a partition that cannot be fetched has no list of aborted transactions",
    "facts 5.6: null for read_uncommitted",
    "Kafka has null for some errors and an empty list for others; clients read neither",
)
def no_aborted_list(d: Difference) -> bool:
    nothing = d.path.endswith("aborted_transactions") and (d.kafka, d.tidelog) == ([], None)
    return nothing and error(d.tidelog_answer) not in (0, None)


# ------------------------------------------------------------------------------- produce


@reason(
    "a refusal says why",
    "DESIGN 2 (errors carry a sentence); KIP-467",
    "Kafka leaves error_message null for most errors",
)
def says_why(d: Difference) -> bool:
    return d.path.endswith(".error_message") and d.kafka is None and d.tidelog is not None


@reason(
    "a lie inside a compressed payload is refused",
    "DESIGN 2 (bad input is a named error); facts 5.2",
    "Kafka stores it, and fails when somebody searches or converts it, or drops a cut message",
    spoils_the_case=True,
)
def lie_refused(d: Difference) -> bool:
    lies = ("inner cut", "record size lies", "record size negative")
    known = d.step.api == "Produce" and d.case.name.startswith(lies)
    return known and error(d.kafka_answer) == 0 and error(d.tidelog_answer) == 87


@reason(
    "the offsets of a produced old set mean nothing",
    "protocol/records/prepare.py: old clients write -1, and Kafka 0.8 to 0.10 took it",
    "Kafka refuses a wrapper whose offset is below that of a message inside it",
    spoils_the_case=True,
)
def old_offset_taken(d: Difference) -> bool:
    known = d.step.api == "Produce" and d.case.name.startswith("wrapper offset")
    return known and error(d.kafka_answer) == 87 and error(d.tidelog_answer) == 0


@reason(
    "unreadable bytes have an error of their own",
    "DESIGN 2, anything unforeseen is UNKNOWN_SERVER_ERROR, so what is foreseen is not",
    "Kafka answers UNKNOWN_SERVER_ERROR to a payload or codec it cannot read",
)
def named_error(d: Difference) -> bool:
    foreseen = ("garbage payload", "codec ", "inner is a batch", "lz4 with a broken checksum")
    known = d.step.api == "Produce" and d.case.name.startswith(foreseen)
    return known and error(d.kafka_answer) == -1 and error(d.tidelog_answer) in (2, 87)


@reason(
    "offsets inside a batch are made consecutive",
    "facts 5.2: offsets are assigned by the leader",
    "Kafka stores a plain batch as it is and answers UNKNOWN_SERVER_ERROR to a compressed one",
    spoils_the_case=True,
)
def consecutive(d: Difference) -> bool:
    if d.case.tags.get("lie") not in ("offset deltas backwards", "offset deltas all 0"):
        return False
    if d.step.api == "Produce":
        return error(d.kafka_answer) == -1 and error(d.tidelog_answer) == 0
    ours, _ = served(d.tidelog_answer)
    return bool(ours) and all(
        one.get("records") is None or [each["offset"] for each in one["records"]] == [0, 1, 2]
        for one in ours
    )


@reason(
    "zstd is refused where no producer of that version knows it",
    "facts 5.1: zstd with Produce below v7 is 76",
    "Kafka checks batches of Produce v3-6 alone",
    spoils_the_case=True,
)
def zstd_too_early(d: Difference) -> bool:
    zstd = d.case.name.startswith("zstd ") and d.step.api == "Produce" and d.step.version < 3
    return zstd and error(d.kafka_answer) in (0, 87) and error(d.tidelog_answer) == 76


@reason(
    "null records are answered",
    "facts 5.1: an empty set is INVALID_RECORD from v3 on",
    "Kafka runs into a null pointer and never answers",
)
def null_records(d: Difference) -> bool:
    return (
        d.case.name == "null records" and d.kafka == "<no answer>" and error(d.tidelog_answer) == 87
    )


@reason(
    "a refused append tells the log start",
    "facts 2: log_start_offset, Produce v5+",
    "Kafka leaves it out for sets that it refuses before it looks at the log",
)
def refused_log_start(d: Difference) -> bool:
    refused = d.step.api == "Produce" and d.path.endswith("log_start_offset")
    return refused and (d.kafka, d.tidelog) == (-1, 0) and error(d.tidelog_answer) in (76, 87)


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
    time = looked_up(d)
    return d.case.tags.get("edge") == "no times" and time is not None and time >= 0 and hidden


# ------------------------------------------------------------------------------- around the log


@reason(
    "a producer's last timestamp is an append time",
    "DESIGN 3: nothing of the broker's own is decided by record times",
    "Kafka tells the record time of the last batch, and forgets a producer by it",
)
def producers_append_time(d: Difference) -> bool:
    last = d.step.api == "DescribeProducers" and d.path.endswith(".last_timestamp")
    return last and d.kafka in (1_000, 1_001) and d.tidelog > 1_600_000_000_000


@reason(
    "no coordinator of share groups",
    "docs/compatibility.md: share groups are not served; facts 1.3",
    "FindCoordinator for a share group is refused, so that a consumer does not retry for ever",
)
def no_coordinators(d: Difference) -> bool:
    if d.step.api != "FindCoordinator" or isinstance(d.tidelog_answer, str):
        return False
    theirs, ours = (
        {one["error_code"] for one in answer.get("coordinators") or (answer,)}
        for answer in (d.kafka_answer, d.tidelog_answer)
    )
    return d.step.version == 6 and theirs == {15} and ours == {42}


NOT_OFFERED = ("remote.", "local.retention.", "leader.replication.thr", "follower.replication.thr")


@reason(
    "the list of settings is tidelog's own",
    "docs/configuration.md: every setting declared once",
    "tiered storage and replication throttling are not offered, settings of tidelog are",
)
def own_settings(d: Difference) -> bool:
    if ".configs." not in d.path or d.step.api not in ("DescribeConfigs", "CreateTopics"):
        return False
    name = d.path.split(".configs.", 1)[1]
    if ".synonyms." in name:
        return "synonyms.log.retention." in name and "<missing>" in (d.kafka, d.tidelog)
    return d.kafka == "<missing>" or (d.tidelog == "<missing>" and name.startswith(NOT_OFFERED))


@reason(
    "a setting is described as it was understood",
    "config: one type, one check, one spelling of each value",
    "Kafka keeps blanks around a number",
)
def without_blanks(d: Difference) -> bool:
    value = d.path.endswith(".value") and isinstance(d.kafka, str)
    return value and d.kafka != d.tidelog and d.kafka.strip() == d.tidelog


@reason(
    "DescribeConfigs v0 says which settings are defaults",
    "facts 2: every version is served as its schema says",
    "Kafka 3.9 no longer fills is_default, which only v0 has",
)
def defaults_told(d: Difference) -> bool:
    flag = (
        d.step.api == "DescribeConfigs" and d.step.version == 0 and d.path.endswith(".is_default")
    )
    return flag and d.kafka is False and d.tidelog is True


@reason(
    "topic ids are understood from Metadata v10 on",
    "facts 1.1: topic ids",
    "Kafka's v10 and v11 carry ids and answer INVALID_REQUEST; an unknown id fails its whole answer",
)
def metadata_by_id(d: Difference) -> bool:
    by_id = d.step.api == "Metadata" and " by " in d.step.name
    codes = (
        [topic["error_code"] for topic in d.tidelog_answer["topics"]]
        if by_id and isinstance(d.tidelog_answer, dict)
        else []
    )
    return codes in ([0], [42], [100]) and [
        topic["error_code"] for topic in d.kafka_answer["topics"]
    ] in ([42], [-1])


@reason(
    "a mistake in a request has an error of its own",
    "DESIGN 2, anything unforeseen is UNKNOWN_SERVER_ERROR, so what is foreseen is not",
    "Kafka answers UNKNOWN_SERVER_ERROR to an unknown operation or a negative number of offsets",
)
def foreseen_mistake(d: Difference) -> bool:
    alter = d.step.api == "IncrementalAlterConfigs" and d.kafka == -1 and d.tidelog == 42
    offsets = d.step.api == "ListOffsets" and d.step.version == 0 and error(d.kafka_answer) == -1
    return alter or (offsets and error(d.tidelog_answer) == 0)


@reason(
    "the list of APIs is tidelog's own",
    "facts 2: what is advertised is what is served",
    "other APIs, and newer versions of the same ones",
)
def own_versions(d: Difference) -> bool:
    return d.step.api == "ApiVersions" and d.path.startswith(
        ("api_keys", "supported_features", "finalized_features")
    )
