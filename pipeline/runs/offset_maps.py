"""The offset maps that `mirror` runs wrote, combined for each partition of the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipeline.engine.failover.offsets import Ambiguous, OffsetMap
from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.replay import offset_map
from tidelog.pipeline.report.output import REPORT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.replay.offset_map import PartitionMap
    from tidelog.protocol.topic_partition import TopicPartition


class Mapped(NamedTuple):
    """The map of one partition. `hole` says why it may lack records that are in the target."""

    target: TopicPartition
    offsets: OffsetMap
    hole: str | None


def load(places: Sequence[str]) -> dict[TopicPartition, Mapped]:
    """Reads map files, or those below directories of runs with their rounds, by source partition.

    Raises UsageError if there is none, PipelineError for maps that contradict each other.
    """
    parts: dict[TopicPartition, list[PartitionMap]] = {}
    holes: dict[TopicPartition, str] = {}
    for place in places:
        for path in _files(Path(place)):
            incomplete = _incomplete(path)
            try:
                found = offset_map.read(path)
            except (OSError, ValueError, KeyError) as error:  # this includes pyarrow's own errors
                raise PipelineError(f"{path} is no map of offsets: {error}") from error
            for one in found:
                parts.setdefault((one.source_topic, one.source_partition), []).append(one)
                if (one.target_topic, one.target_partition) in incomplete:
                    key = one.source_topic, one.source_partition
                    holes[key] = f"{path} does not know where all records of its run are"
    return {key: _together(key, found, holes.get(key)) for key, found in parts.items()}


def topics_of(maps: Mapping[TopicPartition, Mapped]) -> dict[str, str]:
    """Returns the name in the target of each topic in the maps."""
    return {topic: mapped.target[0] for (topic, _), mapped in maps.items()}


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = [path for path in (place / offset_map.NAME,) if path.exists()]
    found += sorted(place.glob(f"round-*/{offset_map.NAME}"))
    if not found:
        raise UsageError(
            f"--map: there is no {offset_map.NAME} in {place}: it is written by mirror"
        )
    return found


def _incomplete(path: Path) -> set[TopicPartition]:
    """Returns the target partitions that stopped or have an incomplete map, by the run's report."""
    try:
        report = json.loads((path.parent / REPORT).read_text(encoding="utf-8"))
        return {
            (one["topic"], one["partition"])
            for one in report["partitions"]
            if not one["map_is_complete"]
        }
    except FileNotFoundError:  # only the map was copied
        return set()
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path.parent / REPORT} is no report of a mirror: {error}") from error


def _together(key: TopicPartition, found: Sequence[PartitionMap], hole: str | None) -> Mapped:
    targets = {(one.target_topic, one.target_partition) for one in found}
    where = f"{key[0]}-{key[1]}"
    if len(targets) > 1:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(targets))
        raise PipelineError(f"the maps say that {where} went to {names}: give those of one target")
    try:
        offsets = OffsetMap([run for one in found for run in one.runs])
    except Ambiguous as error:
        raise PipelineError(
            f"the maps of {where} contradict each other: {error}; give those of one target"
        ) from error
    return Mapped(targets.pop(), offsets, hole)
