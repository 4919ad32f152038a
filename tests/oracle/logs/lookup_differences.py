"""Why tidelog may answer a lookup in a random log otherwise than Apache Kafka; as in differences.py.

A reason here applies only where tidelog's answer is the one that the model of the log asks for, and
where the log has what the reason speaks of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.differences import Reason, error, partitions, register

if TYPE_CHECKING:
    from tests.oracle.logs.lookups import Asked, Model
    from tests.oracle.scenario import Difference

LOOKUP_REASONS: list[Reason] = []


def reason(name: str, source: str, why: str, **flags: bool) -> Any:
    """Register the decorated predicate for lookups, in whichever Kafka."""
    return register(LOOKUP_REASONS, name, source, why, **flags)


def found(answer: Any) -> Any:
    """What a ListOffsets answer found, in the words of `Model.answer`."""
    one = next(partitions(answer), {})
    return one["old_style_offsets"] if "offset" not in one else (one["offset"], one["timestamp"])


def asked(d: Difference) -> tuple[Asked, Model] | None:
    """What was asked, if tidelog answers as it should; else None."""
    if d.step.api != "ListOffsets" or error(d.tidelog_answer) != 0:
        return None
    one = next(each for each in d.case.tags["asked"] if d.case.steps[each.number] is d.step)
    model: Model = d.case.tags["model"]
    is_right = found(d.tidelog_answer) == model.answer(one.version, one.target)
    return (one, model) if is_right else None


def is_time(target: Any) -> bool:
    """Whether a target is a time and not one of Kafka's special values."""
    return not isinstance(target, int) or target >= 0


@reason(
    "times before -6 are looked up",
    "DESIGN 3, T < -6 is a real time and is answered",
    "Kafka takes every negative time for an unknown sentinel and answers UNSUPPORTED_VERSION",
)
def negative_lookup(d: Difference) -> bool:
    known = asked(d)
    if known is None or error(d.kafka_answer) != 35:
        return False
    return isinstance(known[0].target, int) and known[0].target < -6


@reason(
    "ListOffsets v0 finds the offset at a time exactly",
    "DESIGN 3, ListOffsets v0 with T >= 0",
    "Kafka compares the time with the modification times of files",
)
def exact_v0(d: Difference) -> bool:
    known = asked(d)
    return known is not None and known[0].version == 0 and is_time(known[0].target)


@reason(
    "ListOffsets v0 names where segments begin, each offset once",
    "DESIGN 4 (segment borders may differ), DESIGN 3, ListOffsets v0",
    "a batch that the broker compressed fills a segment earlier or later; Kafka names the log's start "
    "for every segment that begins before it",
    sometimes=True,
)
def v0_borders(d: Difference) -> bool:
    known = asked(d)
    if known is None or known[0].version or known[0].target != -1:
        return False
    model = known[1]
    begins = {max(base, model.log_start) for base in model.kafka_bases}
    return set(found(d.kafka_answer)) == begins | {len(model.times)}


@reason(
    "a topic without times is searched without an error",
    "DESIGN 3, lookup: none is (-1, -1) without error",
    "Kafka answers UNSUPPORTED_FOR_MESSAGE_FORMAT where the topic's format is 0",
)
def no_times_no_error(d: Difference) -> bool:
    known = asked(d)
    return known is not None and known[1].topic_format == 0 and error(d.kafka_answer) == 43


@reason(
    "segments without times hide nothing behind them",
    "DESIGN 3, lookup; facts 5.3: no file times",
    "Kafka takes the modification time of a file for the largest time of a segment without times "
    "of the year 1970 or later",
)
def no_file_times(d: Difference) -> bool:
    known = asked(d)
    if known is None or found(d.kafka_answer) != (-1, -1) or not is_time(known[0].target):
        return False
    model, (offset, _) = known[1], found(d.tidelog_answer)
    return any(
        not any((at or -1) >= 0 for at in model.times[base : model.segment_of(base).stop])
        for base in model.kafka_bases
        if offset >= model.segment_of(base).stop
    )


@reason(
    "deleted records hide nothing behind them",
    "DESIGN 3, lookup: the first record from the log's start on",
    "Kafka chooses the segment by times of deleted records, finds none in it, and stops there",
)
def behind_the_deleted(d: Difference) -> bool:
    known = asked(d)
    if known is None or found(d.kafka_answer) != (-1, -1) or not is_time(known[0].target):
        return False
    model, (offset, _) = known[1], found(d.tidelog_answer)
    bound = model.bound(known[0].target)
    hiding = (one for one, at in enumerate(model.times[: model.log_start]) if (at or -1) >= bound)
    return any(model.segment_of(one).stop <= offset for one in hiding)


@reason(
    "the largest time is that of a record that is there",
    "DESIGN 3, MAX_TIMESTAMP (KIP-734)",
    "Kafka answers an offset before the log's start, of a record that was deleted",
)
def largest_of_the_deleted(d: Difference) -> bool:
    known = asked(d)
    if known is None or known[0].target != -3:
        return False
    return 0 <= found(d.kafka_answer)[0] < known[1].log_start


@reason(
    "a log without times has no largest time",
    "DESIGN 3, 'no largest time yet' is None, never -1",
    "Kafka finds the first batch whose largest time is -1 and answers its offset with the time -1",
)
def no_largest(d: Difference) -> bool:
    known = asked(d)
    if known is None or known[0].target != -3 or found(d.tidelog_answer) != (-1, -1):
        return False
    offset, at = found(d.kafka_answer)
    return offset >= 0 and at == -1


@reason(
    "the largest time of a log may be negative",
    "DESIGN 3, every int64 but -1 is a real time; KIP-228",
    "Kafka's largest time starts at -1",
)
def negative_largest(d: Difference) -> bool:
    known = asked(d)
    if known is None or known[0].target != -3:
        return False
    at = found(d.tidelog_answer)[1]
    return isinstance(at, int) and at < -1 and found(d.kafka_answer)[1] == -1


@reason(
    "every format has a leader epoch",
    "facts 1.1: the epoch of the leader that answers",
    "Kafka keeps no epochs while a topic's format is below 2, and none for what was written then",
)
def epoch_of_every_format(d: Difference) -> bool:
    known = asked(d)
    if known is None or not d.path.endswith(".leader_epoch") or d.kafka != -1:
        return False
    model, offset = known[1], found(d.kafka_answer)[0]
    same = offset >= 0 and found(d.kafka_answer) == found(d.tidelog_answer)
    return same and (model.topic_format < 2 or model.formats[offset] < 2)
