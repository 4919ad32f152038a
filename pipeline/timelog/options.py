"""The options of the data source `timelog`, parsed and checked.

`docs/pipeline/source.md` says what each means, and `names` which names there are. Names are in any
case. The error for a wrong value says what was expected.
"""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidelog.client import Brokers, secured
from tidelog.pipeline.source import access, levels, splits
from tidelog.pipeline.timelog import bounds, security
from tidelog.pipeline.timelog.bounds import LATEST, LogsPlace
from tidelog.pipeline.timelog.names import OptionError, named
from tidelog.pipeline.timelog.stream_offsets import Found, resumed
from tidelog.pipeline.times import is_relative, parse_duration, parse_time
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.source.splits import OffsetRange, Selection
    from tidelog.pipeline.timelog.stream_offsets import Position
    from tidelog.protocol.topic_partition import TopicPartition

_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_UNLIMITED = 2**63 - 1
_ASKED_AGAIN_S = (1, 2)
_log = logging.getLogger("tidelog.pipeline")
_FOR_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "minPartitions")


class TimelogOptions:
    """The options, parsed and checked. Times relative to now (`-2h`) count from `now_ms`.

    `has_answered`: the brokers have answered the query before.
    """

    has_answered = False

    def __init__(self, given: Mapping[str, str], now_ms: int, *, is_stream: bool = False) -> None:
        """Parses the options. Raises OptionError and SourceError."""
        self._now_ms = now_ms
        self._secured, others = security.split(given)
        self._given, self.unused = named(others)
        self.level = self._one_of("level", levels.LEVELS, levels.RECORD)
        self.depth = levels.DEPTHS[self.level]
        self.logs = self._places()
        has_brokers = "brokers" in self._given
        if self.logs and has_brokers:
            raise OptionError("path and brokers are both given: give one of them")
        if not self.logs and not has_brokers:
            raise OptionError("give a path (log directories), or brokers")
        if self.level == levels.SEGMENT and has_brokers:
            raise OptionError("level segment needs a path: brokers show no segments")
        if (self._secured or security.COMMAND_CONFIG in self._given) and not has_brokers:
            raise OptionError("security settings are for brokers, and a path has none")
        if "rack" in self._given and not has_brokers:
            raise OptionError("rack is for brokers, and a path has none")
        is_deep = self.level in (levels.RECORD, levels.TIME)
        self.verify_crc = self._flag("verifyCrc", default=is_deep)
        self.with_headers = self._flag("includeHeaders", default=True)
        self.hides = self._flag("plausible", default=False)
        if self.hides and self.level != levels.RECORD:
            raise OptionError(
                f"plausible=true is about the column timestamp, which level {self.level} does not have:"
                " use the column plausible of level time"
            )
        self.pushes = self._flag("pushFilters", default=False)
        self.batch_bytes = self._size("maxBatchBytes", 16 << 20)
        self.start = bounds.start_of(self._given, now_ms, LATEST if is_stream else bounds.EARLIEST)
        self.end = bounds.end_of(self._given, now_ms)
        when_missing = self._one_of(
            "startingOffsetsByTimestampStrategy", ("error", LATEST), "error"
        )
        self.needs_start = when_missing == "error"
        self.fail_on_data_loss = self._flag("failOnDataLoss", default=True)
        self.most_offsets = self._count("maxOffsetsPerTrigger")
        self.least_offsets = self._count("minOffsetsPerTrigger")
        if (self.least_offsets or 0) > (self.most_offsets or _UNLIMITED):
            raise OptionError(
                f"minOffsetsPerTrigger={self.least_offsets} is more than"
                f" maxOffsetsPerTrigger={self.most_offsets}"
            )
        self.delay_ms = self._duration("maxTriggerDelay", "15m")
        self.least_tasks = self._count("minPartitions")
        self.most_in_task = self._count("maxRecordsPerPartition") or splits.NO_END
        if self.most_in_task != splits.NO_END and not is_deep:
            raise OptionError(
                f"maxRecordsPerPartition is for records, and level {self.level} has none"
            )
        self.selection = self._selection()

    @cached_property
    def brokers(self) -> Brokers | None:
        """The brokers, with their security settings; these are read from files where it is asked for.

        Raises OptionError for a mistake in the settings.
        """
        if "brokers" not in self._given:
            return None
        path = self._given.get(security.COMMAND_CONFIG)
        found = secured(self._given["brokers"], security.security_of(self._secured, path))
        found.has_answered = self.has_answered
        found.client_id = self._given.get("clientId")
        return found

    @property
    def place(self) -> LogsPlace:
        """Where the logs are."""
        return LogsPlace(self.logs, self.brokers)

    def _selection(self) -> Selection:
        topics = tuple(name for name in self._given.get("topics", "").split(",") if name.strip())
        size = self._size("maxPartitionBytes", splits.SPLIT_BYTES)
        high = self._time("to")
        if self.end.time is not None:
            high = self.end.time if high is None else min(high, self.end.time)
        selection = splits.Selection(
            topics=tuple(name.strip() for name in topics),
            pattern=self._given.get("topicsPattern"),
            low_time=self._time("from"),
            high_time=high,
            upto=self._one_of(
                "upto", (splits.HIGH_WATERMARK, splits.LOG_END), splits.HIGH_WATERMARK
            ),  # type: ignore[arg-type]
            isolation=self._one_of(  # type: ignore[arg-type]
                "isolation",
                (splits.READ_UNCOMMITTED, splits.READ_COMMITTED),
                splits.READ_UNCOMMITTED,
            ),
            split_bytes=_UNLIMITED if self.level == levels.SEGMENT else size,
            split_offsets=self._count("maxPartitionOffsets") or splits.SPLIT_OFFSETS,
            trust_time_index=self._flag("trustTimeIndex", default=False),
            offsets=self._offsets(),
            assigned=self._assigned(),
            rack=self._given.get("rack", "").strip(),
        )
        if selection.assigned is not None and (selection.topics or selection.pattern is not None):
            raise OptionError(
                "give assign, or topics by name or by a pattern, and only one of them"
            )
        return selection

    def planned(self) -> Selection:
        """Returns the selection of a batch, with the offsets that starts and ends mean now.

        Raises OptionError, SourceError, OSError and the client's errors.
        """
        if self.start.others == LATEST or LATEST in self.start.offsets.values():
            raise OptionError("startingOffsets=latest is for streams: nothing lies behind it now")
        if self.end.others == bounds.EARLIEST or bounds.EARLIEST in self.end.offsets.values():
            raise OptionError("endingOffsets=earliest would read nothing")
        is_bounded = self.start.is_timed or self.end.times or self.start.named or self.end.named
        if not is_bounded:
            return self.selection
        if self.selection.offsets is not None:
            raise OptionError("give offsets, or starting and ending ones, and not both")
        ranges = self.ranges()
        first = self.first_offsets(ranges)
        last = bounds.ends(self.end, ranges)
        fixed = {key: (first[key], last[key]) for key in ranges}
        return replace(
            self.selection, offsets=fixed, allow_gone=not self.fail_on_data_loss, assigned=None
        )

    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Returns start and end of the wanted partitions now. Raises as `planned`."""
        return self.place.ranges(self.selection)

    def found(self) -> Found:
        """Returns the ranges of the wanted partitions now, and the topics' ids. Raises as `planned`."""
        return Found(*access.identified(self.selection, logs=self.logs, brokers=self.brokers))

    def found_after(self, before: Position) -> Found:
        """Returns `found`, asked again for some seconds if something behind a checkpoint is lost.

        A leader that was deposed and does not know it yet may return an end of the past.
        """
        found = self.found()
        for pause_s in _ASKED_AGAIN_S if self.brokers is not None else ():
            if not resumed(before, found)[1]:
                break
            time.sleep(pause_s)
            found = self.found()
        return found

    def warn_of_unused(self) -> None:
        """Logs the options of Spark's own source that change nothing here."""
        for one in self.unused:
            _log.warning("%s", one)

    def note_default_start(self) -> None:
        """Logs where a new stream starts if no option says it."""
        if not any(name.startswith("starting") for name in self._given):
            _log.warning(
                "stream starts at the end of its topics, as Spark's Kafka source does:"
                " startingOffsets=earliest also reads what is there"
            )

    def report(self, losses: Sequence[str]) -> None:
        """Raises SourceError for losses, or logs them where failOnDataLoss is false."""
        if not losses:
            return
        told = "; ".join(losses)
        if self.fail_on_data_loss:
            raise splits.SourceError(
                f"{told}. failOnDataLoss=false goes on with what there is; a new checkpoint begins anew"
            )
        _log.warning("stream goes on without %s: %s", some(len(losses), "lost range"), told)

    def first_offsets(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, int]:
        """Returns where reading starts. Raises as `planned`."""
        return bounds.starts(
            self.start, self.place, self.selection, ranges, is_strict=self.needs_start
        )

    def check_for_stream(self) -> None:
        """Raises OptionError for an option that only a batch can have."""
        for name in _FOR_BATCHES:
            if name in self._given:
                raise OptionError(f"{name} is for batches: a stream has no end")
        for name in ("from", "to"):
            if name in self._given and is_relative(self._given[name]):
                raise OptionError(
                    f"{name}={self._given[name]} would be another time after each restart of the stream:"
                    " give an ISO time, or startingTimestamp, which counts at its first start alone"
                )

    def high_time_of(self, key: TopicPartition) -> int | None:
        """Returns the event time before which a partition is read; None: any."""
        times = (self.selection.high_time, self.end.times.get(key))
        return min((one for one in times if one is not None), default=None)

    def _places(self) -> tuple[str, ...]:
        if "paths" in self._given:
            try:  # Spark writes load([...]) as JSON
                return tuple(json.loads(self._given["paths"]))
            except ValueError:
                raise OptionError(f"paths is a JSON list, not '{self._given['paths']}'") from None
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

    def _count(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        if not text.strip().isdigit() or not int(text):
            what = {"minPartitions": "tasks", "maxRecordsPerPartition": "records"}.get(
                name, "offsets"
            )
            raise OptionError(f"{name} is a number of {what} from 1 on, not '{text}'")
        return int(text)

    def _duration(self, name: str, default: str) -> int:
        text = self._given.get(name, default).strip().lower()
        try:
            return parse_duration(f"{text[:-3]}m" if text.endswith("min") else text)  # as in Spark
        except ValueError as error:
            raise OptionError(f"{name}: {error}") from error

    def _time(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        try:
            return parse_time(text, self._now_ms)
        except ValueError as error:
            raise OptionError(f"{name}: {error}") from error

    def _offsets(self) -> dict[TopicPartition, OffsetRange] | None:
        text = self._given.get("offsets")
        if text is None:
            return None
        try:
            return {
                key: (int(start), int(end))
                for key, (start, end) in bounds.partitions_in("offsets", text).items()
            }
        except (ValueError, TypeError) as error:
            raise OptionError(
                f'offsets is {{"topic": {{"0": [start, end]}}}} in JSON, not {text!r}'
            ) from error

    def _assigned(self) -> frozenset[TopicPartition] | None:
        text = self._given.get("assign")
        if text is None:
            return None
        try:
            return frozenset(
                (topic, int(partition))
                for topic, partitions in json.loads(text).items()
                for partition in partitions
            )
        except (ValueError, AttributeError, TypeError) as error:
            raise OptionError(f'assign is {{"topic": [0, 1]}} in JSON, not {text!r}') from error
