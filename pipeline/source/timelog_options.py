"""The options of the `timelog` data source, parsed and checked; `timelog` says what each means."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING

from pipeline.source import levels, splits
from pipeline.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.source.splits import OffsetRange, Selection
    from protocol.topic_partition import TopicPartition

_NAMES = (
    "path",
    "paths",
    "brokers",
    "topics",
    "topicsPattern",
    "level",
    "from",
    "to",
    "upto",
    "isolation",
    "verifyCrc",
    "maxPartitionBytes",
    "maxPartitionOffsets",
    "maxBatchBytes",
    "trustTimeIndex",
    "offsets",
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "pushFilters",
)
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNLIMITED = 2**63 - 1


class OptionError(ValueError):
    """An invalid option; the message names it."""


class TimelogOptions:
    """The options, parsed and checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Parses the options, whose names may be in any case. Raises OptionError and SourceError."""
        known = {name.lower(): name for name in _NAMES}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in known:
                near = difflib.get_close_matches(name.lower(), known, 1)
                hint = f"; did you mean {known[near[0]]}?" if near else ""
                raise OptionError(f"timelog has no option {name}{hint} It has: {', '.join(_NAMES)}")
            self._given[known[name.lower()]] = value
        self.level = self._one_of("level", levels.LEVELS, levels.RECORD)
        self.depth = levels.DEPTHS[self.level]
        self.logs = self._places()
        self.brokers = self._given.get("brokers")
        if bool(self.logs) == (self.brokers is not None):
            raise OptionError("give either a path (log directories) or brokers, and not both")
        if self.level == levels.SEGMENT and self.brokers is not None:
            raise OptionError("level segment needs a path: brokers show no segments")
        is_deep = self.level in (levels.RECORD, levels.TIME)
        self.verify_crc = self._flag("verifyCrc", default=is_deep)
        self.batch_bytes = self._size("maxBatchBytes", 16 << 20)
        self.starting = self._one_of("startingOffsets", ("earliest", "latest"), "earliest")
        self.fail_on_data_loss = self._flag("failOnDataLoss", default=True)
        most = self._given.get("maxOffsetsPerTrigger")
        self.most_offsets = None if most is None else self._number("maxOffsetsPerTrigger", most)
        self.selection = self._selection()

    def _selection(self) -> Selection:
        topics = tuple(name for name in self._given.get("topics", "").split(",") if name.strip())
        size = self._size("maxPartitionBytes", splits.SPLIT_BYTES)
        most = self._given.get("maxPartitionOffsets", str(splits.SPLIT_OFFSETS))
        return splits.Selection(
            topics=tuple(name.strip() for name in topics),
            pattern=self._given.get("topicsPattern"),
            low_time=self._time("from"),
            high_time=self._time("to"),
            upto=self._one_of(
                "upto", (splits.HIGH_WATERMARK, splits.LOG_END), splits.HIGH_WATERMARK
            ),  # type: ignore[arg-type]
            isolation=self._one_of(  # type: ignore[arg-type]
                "isolation",
                (splits.READ_UNCOMMITTED, splits.READ_COMMITTED),
                splits.READ_UNCOMMITTED,
            ),
            split_bytes=_UNLIMITED if self.level == levels.SEGMENT else size,
            split_offsets=self._number("maxPartitionOffsets", most),
            trust_time_index=self._flag("trustTimeIndex", default=False),
            offsets=self._offsets(),
        )

    def pushes(self, *, default: bool) -> bool:
        """Returns whether filters are pushed down."""
        return self._flag("pushFilters", default=default)

    def _places(self) -> tuple[str, ...]:
        if "paths" in self._given:
            return tuple(json.loads(self._given["paths"]))
        return tuple(one.strip() for one in self._given.get("path", "").split(",") if one.strip())

    def _one_of(self, name: str, values: Sequence[str], default: str) -> str:
        value = self._given.get(name, default).lower()
        if value not in values:
            raise OptionError(f"{name} is one of {', '.join(values)}, not '{self._given[name]}'")
        return value

    def _flag(self, name: str, *, default: bool) -> bool:
        value = self._given.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"{name} is true or false, not '{value}'")
        return value == "true"

    def _size(self, name: str, default: int) -> int:
        text = self._given.get(name, str(default))
        match = _SIZE.fullmatch(text.strip())
        size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
        if size < 1:
            raise OptionError(f"{name} is a number of bytes (128m, 65536), not '{text}'")
        return size

    def _number(self, name: str, text: str) -> int:
        if not text.strip().isdigit() or not int(text):
            raise OptionError(f"{name} is a number of offsets from 1 on, not '{text}'")
        return int(text)

    def _time(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        try:
            return parse_time(text)
        except ValueError as error:
            raise OptionError(f"{name}: {error}") from error

    def _offsets(self) -> dict[TopicPartition, OffsetRange] | None:
        text = self._given.get("offsets")
        if text is None:
            return None
        try:
            return {
                (topic, int(partition)): (int(start), int(end))
                for topic, partitions in json.loads(text).items()
                for partition, (start, end) in partitions.items()
            }
        except (ValueError, AttributeError, TypeError) as error:
            raise OptionError(
                f'offsets is {{"topic": {{"0": [start, end]}}}} in JSON, not {text!r}'
            ) from error
