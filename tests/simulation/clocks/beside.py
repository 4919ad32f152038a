"""The runs beside the main one, and bugs to inject in what they try.

Committed offsets, producer ids and tombstones, lookups below zero, and three brokers with a clock each.
Each life is short, and has its own trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.clocks.compacted import CompactedWorld
from tests.simulation.clocks.lookups import LookupsWorld
from tests.simulation.clocks.offsets import OffsetsWorld
from tests.simulation.clocks.replicated import ReplicatedWorld
from tidelog.broker.coordinators.groups import offset_expiry
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.compaction import cleaner, compared_times
from tidelog.storage.log.producers.producer_state import Producers
from tidelog.storage.log.times.append_clock import AppendClock
from tidelog.storage.segment import time_search

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.storage.segment.segment import Segment

LOOKUPS_EVERY = 5  # seeds
REACHED_BY = time_search._reached_by


def lives(path: Path, seed: int, *, blinks: bool) -> Iterator[Any]:
    """Makes the runs of a seed, one after another: each has `live()` and `trace`."""
    yield OffsetsWorld(path / "offsets", seed, blinks=blinks)
    yield CompactedWorld(path / "compacted", seed, blinks=blinks)
    yield ReplicatedWorld(path / "replicated", seed, blinks=blinks)
    if seed % LOOKUPS_EVERY == 0:
        yield LookupsWorld(path / "lookups", seed)


def expired_since_commit(kept, _names, now_ms, retention_ms) -> list:
    """Counts the retention of every offset from its commit, as Kafka did before KIP-211."""
    return [
        name
        for name, committed in kept.offsets.items()
        if committed.expire_ms == NO_TIMESTAMP and committed.commit_ms + retention_ms <= now_ms
    ]


def walked_below_zero(segment: Segment, timestamp: int) -> int:
    """Knows no index below zero."""
    return segment.base_offset if timestamp < 0 else REACHED_BY(segment, timestamp)


# Each: where a rule is, its name, what replaces it.
MISTAKES: dict[str, tuple[Any, str, Any]] = {
    # finding 5
    "a lookup below zero walks the segment": (time_search, "_reached_by", walked_below_zero),
    # finding 8
    "windows of the broker hit its own topics": (TopicConfig, "without_window", lambda self: self),
    # committed offsets
    "offsets stay as a wrong clock stamped them": (
        *(offset_expiry, "correct_times", lambda *_: ()),
    ),
    "a restart forgets what offsets count as": (AppendClock, "changes_at", lambda *_: []),
    "offsets of a group expire by their commits": (
        *(offset_expiry, "expired_offsets", expired_since_commit),
    ),
    "offsets never expire": (offset_expiry, "expired_offsets", lambda *_: []),
    # producer ids
    "producers stay as a wrong clock stamped them": (Producers, "correct", lambda *_: None),
    "producers are never forgotten": (Producers, "_expired", lambda *_: False),
    # the last value of each key
    "stamps are compared as they are": (
        *(compared_times, "compared_stamp", lambda stamp_ms, *_, **__: stamp_ms),
    ),
    # tombstones
    "the next cleaning takes tombstones": (
        *(cleaner, "is_past_horizon", lambda horizon_ms, _: horizon_ms is not None),
    ),
    "tombstones stay": (cleaner, "is_past_horizon", lambda *_: False),
    "horizons stay as a wrong clock wrote them": (
        *(cleaner, "counted_horizon", lambda horizon_ms, *_: horizon_ms),
    ),
}
