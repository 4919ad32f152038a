"""Where reading starts and ends in each partition, by the options of Spark's Kafka source.

A start by time is the first offset with a record of that time or later, as for Spark; everything
from there on is read. An end by time is an event time: every record before it is read, wherever it
lies. Spark's source stops at the first record that is late enough, and loses those behind it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.source import access
from tidelog.pipeline.source.reading import TIMES, ReadOptions
from tidelog.pipeline.timelog.names import OptionError
from tidelog.pipeline.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.source.splits import OffsetRange, Selection
    from tidelog.protocol.topic_partition import TopicPartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_SPECIAL: Final = {-2: EARLIEST, -1: LATEST}
_EXAMPLE: Final = '{"topic": {"0": 23}}'


@dataclass(frozen=True, slots=True)
class Bound:
    """Where all partitions start or end; `offsets` and `times` say otherwise for some of them.

    An offset may be `earliest` or `latest`. `time` is that of all partitions.
    """

    others: str
    offsets: Mapping[TopicPartition, int | str] = field(default_factory=dict)
    times: Mapping[TopicPartition, int] = field(default_factory=dict)
    time: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether times decide."""
        return self.time is not None or bool(self.times)

    def time_of(self, key: TopicPartition) -> int | None:
        """Returns the time that a partition is looked up by."""
        return self.times.get(key, self.time)

    @property
    def named(self) -> set[TopicPartition]:
        """The partitions that are named."""
        return {*self.offsets, *self.times}


def start_of(given: Mapping[str, str], now_ms: int, default: str) -> Bound:
    """Returns the start: by `startingTimestamp`, else by times, else by `startingOffsets`.

    `default`: where what is not named starts.
    """
    return _bound(given, "starting", default, now_ms)


def end_of(given: Mapping[str, str], now_ms: int) -> Bound:
    """Returns the end: by `endingTimestamp`, else by times, else by `endingOffsets`."""
    return _bound(given, "ending", LATEST, now_ms)


def _bound(given: Mapping[str, str], side: str, default: str, now_ms: int) -> Bound:
    if (text := given.get(f"{side}Timestamp")) is not None:
        return Bound(default, time=_time(f"{side}Timestamp", text, now_ms))
    if (text := given.get(f"{side}OffsetsByTimestamp")) is not None:
        name = f"{side}OffsetsByTimestamp"
        pairs = partitions_in(name, text)
        return Bound(
            default, times={key: _time(name, value, now_ms) for key, value in pairs.items()}
        )
    text = given.get(f"{side}Offsets", default).strip()
    if text.lower() in (EARLIEST, LATEST):
        return Bound(text.lower())
    pairs = partitions_in(f"{side}Offsets", text, f"{EARLIEST}, {LATEST} or ")
    return Bound(default, {key: _offset(f"{side}Offsets", one) for key, one in pairs.items()})


def partitions_in(name: str, text: str, others: str = "") -> dict[TopicPartition, Any]:
    """Returns the values of partitions in JSON. Raises OptionError for anything else."""
    try:
        return {
            (topic, int(partition)): value
            for topic, partitions in json.loads(text).items()
            for partition, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"{name} is {others}{_EXAMPLE} in JSON, not {text!r}") from error


def _time(name: str, value: Any, now_ms: int) -> int:
    try:
        return parse_time(value, now_ms)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error


def _offset(name: str, value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int) or value < min(_SPECIAL):
        raise OptionError(f"{name} has offsets, -2 (earliest) or -1 (latest), not {value!r}")
    return _SPECIAL.get(value, value)


@dataclass(frozen=True, slots=True)
class LogsPlace:
    """Where logs are: directories or a cluster."""

    logs: Sequence[str]
    brokers: str | None

    def ranges(self, selection: Selection) -> dict[TopicPartition, OffsetRange]:
        """Returns start and end of the wanted partitions now. Raises as `access.ranges`."""
        return access.ranges(selection, logs=self.logs, brokers=self.brokers)

    def first_reaching(
        self, selection: Selection, key: TopicPartition, span: OffsetRange, time_ms: int
    ) -> int | None:
        """Returns the first offset with a record of this time or later; None: there is none."""
        wanted = replace(
            selection, low_time=time_ms, high_time=None, offsets={key: span}, assigned=None
        )
        splits = access.plan(wanted, logs=self.logs, brokers=self.brokers)
        for split in sorted(splits, key=lambda one: one.start_offset):
            for columns in access.read(split, ReadOptions.of(wanted, TIMES)):
                if columns.count:
                    return int(columns.offset[0])
        return None


def starts(
    bound: Bound,
    place: LogsPlace,
    selection: Selection,
    ranges: Mapping[TopicPartition, OffsetRange],
    *,
    is_strict: bool,
) -> dict[TopicPartition, int]:
    """Returns the first offset of each partition.

    Where no record has the time or a later one, that is the end; `is_strict` makes it an error.
    Raises OptionError for a partition that does not exist.
    """
    _check(bound, ranges)
    found = {}
    for key, (low, high) in ranges.items():
        time_ms = bound.time_of(key)
        if time_ms is None:
            found[key] = _fixed(bound.offsets.get(key, bound.others), low, high)
            continue
        first = place.first_reaching(selection, key, (low, high), time_ms)
        if first is None and is_strict:
            raise OptionError(
                f"{key[0]}-{key[1]} has no record at {time_ms} ms or later;"
                " startingOffsetsByTimestampStrategy=latest starts at its end"
            )
        found[key] = high if first is None else first
    return found


def ends(bound: Bound, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
    """Returns the offset after the last one of each partition; times are for the reader.

    Raises OptionError for a partition that does not exist.
    """
    _check(bound, ranges)
    return {
        key: _fixed(bound.offsets.get(key, bound.others), low, high)
        for key, (low, high) in ranges.items()
    }


def _fixed(offset: int | str, low: int, high: int) -> int:
    if isinstance(offset, int):
        return offset
    return low if offset == EARLIEST else high


def _check(bound: Bound, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
    for topic, partition in sorted(bound.named - set(ranges)):
        raise OptionError(f"{topic}-{partition} is named, and is not among the partitions to read")
