"""Counters of compaction, as plain numbers; `http/metrics` declares the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from tidelog.broker.metadata.image import Topic
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.compaction.plan import DirtySection


UNREADABLE = "unreadable"
STUCK = "stuck"  # its cleaning made no progress


class Uncleanable(NamedTuple):
    """A log that no round compacts any more."""

    topic_id: UUID | None
    reason: str
    held_by: str  # UNREADABLE or STUCK


class CompactionCounters:
    """The counters of one broker. Written by one round at a time, read by any thread."""

    def __init__(self) -> None:
        self.cleanings = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.longest_s = 0.0  # the longest cleaning
        self.last_recopy: float | None = None  # bytes written / bytes read, of the last cleaning
        self.last_round_ms: int | None = None  # when a round last began, by the steady clock
        self.max_dirty_ratio = 0.0  # as of the last round
        self.max_delay_ms = 0
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.processes: set[int] = set()  # the pids of running cleanings
        self._ratio, self._delay_ms = 0.0, 0

    def begin_round(self) -> None:
        """Starts the largest values of a round."""
        self._ratio, self._delay_ms = 0.0, 0

    def note_dirty_section(self, dirty_section: DirtySection) -> None:
        """Counts the dirty section of a log towards the largest values of the round."""
        self._ratio = max(self._ratio, dirty_section.ratio)
        self._delay_ms = max(self._delay_ms, dirty_section.delay_ms)

    def drop_deleted(self, topics: Mapping[str, Topic]) -> None:
        """Drops uncleanable logs whose topic was deleted, or replaced by one of the same name."""
        for (name, index), given_up in dict(self.uncleanable).items():
            known = topics.get(name)
            if known is None or known.topic_id != given_up.topic_id:
                self.uncleanable.pop((name, index), None)

    def end_round(self, steady_ms: int) -> None:
        """Publishes the largest values of a round that has examined all logs, at `steady_ms`."""
        self.last_round_ms = steady_ms
        self.max_dirty_ratio, self.max_delay_ms = self._ratio, self._delay_ms

    def cleaned(self, bytes_read: int, bytes_written: int, seconds: float) -> None:
        """Counts a log that was compacted."""
        self.cleanings += 1
        self.bytes_read += bytes_read
        self.bytes_written += bytes_written
        self.longest_s = max(self.longest_s, seconds)
        self.last_recopy = bytes_written / bytes_read if bytes_read else 0.0
