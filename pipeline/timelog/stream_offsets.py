"""Offsets of a stream: as Spark's log has them, what is lost or not yet read, and how a limit is shared.

Spark's log has {"topic": {"0": next offset, "id": "the topic's id"}}. There is no id where none is
known: from brokers and directories without ids, and in checkpoints of older versions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipeline.source.splits import OffsetRange
    from tidelog.protocol.topic_partition import TopicPartition

    Offsets = dict[str, dict[str, int | str]]

_ID: Final = "id"


class Position(NamedTuple):
    """The next offset of each partition, and the ids of their topics as far as they are known."""

    offsets: Mapping[TopicPartition, int]
    ids: Mapping[str, str]


class Found(NamedTuple):
    """The start and end of each log at some moment, and the ids of their topics."""

    ranges: Mapping[TopicPartition, OffsetRange]
    ids: Mapping[str, str]

    def latest(self) -> Offsets:
        """Returns the ends as JSON has them."""
        return nested({key: end for key, (_, end) in self.ranges.items()}, self.ids)


def nested(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> Offsets:
    """Returns offsets as JSON has them."""
    nested: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    for topic in nested:
        if ids.get(topic):
            nested[topic][_ID] = ids[topic]
    return nested


def flat(offsets: Offsets) -> Position:
    """Returns the position that JSON has."""
    return Position(
        {
            (topic, int(partition)): int(offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
            if partition != _ID
        },
        {topic: str(one[_ID]) for topic, one in offsets.items() if _ID in one},
    )


def resumed(before: Position, found: Found) -> tuple[dict[TopicPartition, int], list[str]]:
    """Returns where reading goes on behind a checkpoint, and a sentence for each loss.

    A topic that was created again is read from its beginning, and a log that ends before the
    checkpoint from its end. Partitions that are not found now keep their offset.
    """
    again = _created_again(before, found)
    losses = [
        f"topic {topic} was created again: the checkpoint is of the one with id {before.ids[topic]}, and"
        f" now there is {found.ids[topic]}; what was not yet read of the first is gone"
        for topic in sorted(again)
    ]
    starts = {}
    for key, offset in before.offsets.items():
        low, high = found.ranges.get(key, (offset, offset))
        name = f"{key[0]}-{key[1]}"
        if key[0] in again:
            if key in found.ranges:
                starts[key] = low
            continue
        starts[key] = min(max(low, offset), max(low, high))
        if high < offset:
            losses.append(
                f"{name} ends at offset {high}, {some(offset - high, 'offset')} before the {offset} of the"
                " checkpoint: it was truncated, or its topic was created again"
            )
        elif low > offset:
            losses.append(
                f"{name} begins at offset {low}: {offset} to {low - 1} are gone (retention),"
                f" {some(low - offset, 'offset')}"
            )
    return starts, losses


def to_read(
    before: Position, after: Position, found: Found
) -> tuple[dict[TopicPartition, OffsetRange], list[str]]:
    """Returns what to read of each partition in a micro-batch, and a sentence for each loss.

    Partitions that are not in `before` are read from their beginning.
    """
    starts, losses = resumed(before, found)
    again = _created_again(after, found)  # since the batch was planned, before a restart
    losses += [
        f"topic {topic} was created again after this batch was planned: its records are gone"
        for topic in sorted(again)
    ]
    reach = {}
    for key, last in after.offsets.items():
        if key[0] in again:
            continue
        low, high = found.ranges.get(key, (0, last))
        first, end = starts.get(key, low), min(last, high)
        if high < last and first < last:
            losses.append(
                f"{key[0]}-{key[1]} ends at offset {high}: there is no {high} to {last - 1},"
                f" {some(last - high, 'offset')}"
            )
        if first < end:
            reach[key] = first, end
    return reach, losses


def _created_again(position: Position, found: Found) -> set[str]:
    return {
        topic
        for topic, known in position.ids.items()
        if found.ids.get(topic) and found.ids[topic] != known
    }


def offsets_behind(source: Any) -> dict[str, str]:
    """Returns how far behind the end of its logs a stream was after a micro-batch, in offsets.

    `source` is a source in the progress of a query (`query.lastProgress.sources[0]`). The names and
    the form are those of the metrics of Spark's Kafka source. Returns {} if the progress has no
    `latestOffset`.
    """
    if not source.latestOffset or not source.endOffset:
        return {}
    done = flat(json.loads(source.endOffset)).offsets
    latest = flat(json.loads(source.latestOffset)).offsets
    behind = [max(end - done.get(key, 0), 0) for key, end in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def share(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Distributes `most` offsets over the partitions by their size; at least one advances."""
    left = {key: end - starts[key] for key, end in ends.items() if end > starts[key]}
    total = sum(left.values())
    if total <= most:
        return dict(ends)
    shared, given = dict(starts), 0
    for key, count in left.items():
        part = count * most // total
        shared[key] += part
        given += part
    for key in sorted(left, key=left.__getitem__, reverse=True):
        if given >= most:
            break
        if shared[key] < ends[key]:
            shared[key] += 1
            given += 1
    return shared
