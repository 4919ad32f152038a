"""When a segment ends, and which retention deletes: the rules (KIP-33, KIP-228, event-time retention).

Nothing here is storage's. Where segments begin, how large they are and when what has no append time
was adopted is asked of the log; what follows from it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.storage.log_model.model import EVENT_SLACK_MS, Batch, ModelLog, cap

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.topic import TopicConfig

FOR_EVER = 2**63 - 1


class Held(NamedTuple):
    """A segment: where it begins and ends, its size and its batches."""

    base: int
    end: int
    size: int
    batches: list[Batch]


def rolls(
    config: TopicConfig, here: list[Batch], clock: int | None, new: list[Batch], now: int
) -> bool:
    """Whether time ends a segment before these are appended.

    `clock` is what the clock showed at its first append, None where nobody knows.
    """
    stamp = new[0].append
    assert stamp is not None
    created = next((batch.append for batch in here if batch.append is not None), clock)
    if created is None:
        return False
    age = stamp - created if clock is None else max(stamp - created, now - clock)
    if age < config.segment_min_roll_interval_ms:
        return False
    first = next((time for batch in here for time in batch.times), None)
    times = [time for batch in new for time in batch.times]
    if first is None or not times:
        return age > config.segment_ms
    reached = min(max(times), stamp)
    return max(age, reached - min(first, created)) > config.segment_ms


class Retention:
    """What rounds delete of a log as it is."""

    def __init__(
        self,
        log: ModelLog,
        segments: list[Held],
        config: TopicConfig,
        adopted: Callable[[int], int],
    ) -> None:
        self.log, self.segments, self.config = log, segments, config
        self.adopted = adopted  # when the batch at an offset was, if its append time is unknown

    def due(self, now: int) -> list[tuple[int, str]]:
        """The segments that a round deletes now, by their bases, and the policies that delete them."""
        due, left = [], sum(segment.size for segment in self.segments)
        keep_bytes = self.config.retention_bytes
        for number, (base, end, size, _) in enumerate(self.segments):
            if number == len(self.segments) - 1 and not size:
                break
            if end <= self.log.start:
                due.append((base, "log start offset"))
            elif keep_bytes != -1 and left - size >= keep_bytes:
                due.append((base, "retention.bytes"))
            elif self.is_old(self.segments[number], now):
                due.append((base, "retention.ms"))
            elif self.is_outdated(number, now):
                due.append((base, "retention.max.eventtime.ms"))
            else:
                break
            left -= size
        return due

    def appended(self, batch: Batch) -> int:
        """When a batch counts as appended."""
        time = self.adopted(batch.end - 1) if batch.append is None else batch.append
        return min([time, *(to_ms for end, to_ms in self.log.bounds if batch.end <= end)])

    def is_floored(self, segment: Held, now: int) -> bool:
        """Whether no time policy may delete a segment yet."""
        floor_ms = self.config.retention_min_append_ms
        return floor_ms > 0 and now - self.appended(segment.batches[-1]) <= floor_ms

    def is_old(self, segment: Held, now: int) -> bool:
        keep_ms = self.config.retention_ms
        if keep_ms in {-1, FOR_EVER} or self.is_floored(segment, now):
            return False
        newest = self.appended(segment.batches[-1])
        if self.config.retention_time_basis != "append":
            newest = max(
                self.appended(batch) if row.time is None else min(row.time, self.appended(batch))
                for batch in segment.batches
                for row in batch.rows
            )
        return now - newest > keep_ms

    def is_outdated(self, number: int, now: int) -> bool:
        """Whether event time deletes a segment; one without any is judged by the next that has one."""
        keep_ms = self.config.retention_max_eventtime_ms
        if keep_ms == -1 or self.log.counted is None or self.is_floored(self.segments[number], now):
            return False
        for _, _, _, batches in self.segments[number:]:
            events = [self.log.event_of(batch) for batch in batches if batch.times]
            if events:
                break
        else:
            return False
        event = max(event for event in events if event is not None)
        newest = cap(self.appended(self.log.batches[-1]))
        if min(self.log.counted, newest) - event <= keep_ms:
            return False
        if now < event + keep_ms + 1 - EVENT_SLACK_MS:
            return False
        grace_ms = self.config.retention_max_eventtime_grace_ms
        return grace_ms == 0 or now - self.appended(batches[-1]) > grace_ms
