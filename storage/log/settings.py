"""A topic's settings for the append path, read once instead of for every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.setting import LONG_MAX
from tidelog.protocol.records.compression import produce_limit
from tidelog.protocol.records.plan import AppendPlan
from tidelog.storage.time.event_time import event_slack
from tidelog.storage.time.rolling import rolling_of
from tidelog.storage.time.stamping import (
    StampingRules,
    Stamps,
    event_time_kept,
    missing_times,
    rules_of,
    why_too_old,
)

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig

NEWEST_MAGIC = 2


def has_flush_rules(config: TopicConfig) -> bool:
    """Returns whether some append has to wait for a commit: so each marks the end of append times."""
    return (config.flush_messages, config.flush_ms) != (LONG_MAX, LONG_MAX)


class AppendSettings(NamedTuple):
    """The settings of a topic for appending batches of one format."""

    magic: int  # the format on disk
    compression: int | None  # None: the producer's codec
    rules: StampingRules
    compacted: bool
    max_message_bytes: int
    max_unpacked_bytes: int  # a batch's records, decompressed
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    segment_ms: int
    min_roll_interval_ms: int
    too_old: str  # why a time before the window is refused; empty: for the window alone
    missing: tuple[int, ...]  # times of records that mean none
    event_kept_ms: int | None  # records further behind the largest event time are refused

    def plan(
        self,
        stamps: Stamps,
        first_offset: int,
        leader_epoch: int,
        internal: bool,
        unpack_limit: int,
    ) -> AppendPlan:
        """Returns the plan of an append that is made now, at the log's end."""
        # The same as AppendPlan(...), without the Python frame of a NamedTuple's constructor.
        return tuple.__new__(
            AppendPlan,
            (
                first_offset,
                self.magic,
                self.compression,
                *stamps,
                leader_epoch,
                self.compacted,
                self.max_message_bytes,
                internal,
                unpack_limit,
                self.too_old,
                self.missing,
            ),
        )


def settings_of(config: TopicConfig, magic: int) -> AppendSettings:
    """Returns a topic's settings for batches that are stored in format `magic`."""
    rolling, rules = rolling_of(config), rules_of(config, magic)
    return AppendSettings(
        magic,
        config.compression,
        rules,
        config.is_compacted,
        config.max_message_bytes,
        min(produce_limit(config.max_message_bytes), config.max_decompressed_message_bytes),
        config.segment_bytes,
        config.segment_index_bytes,
        config.index_interval_bytes,
        rolling.segment_ms,
        rolling.min_interval_ms,
        why_too_old(config, rules),
        missing_times(config, magic),
        event_time_kept(config, magic),
    )


class TopicRules(NamedTuple):
    """A topic's settings, and what follows from them for a log."""

    config: TopicConfig
    has_flush_rules: bool
    event_slack_ms: int  # how far after its append time an event time counts
    settings: AppendSettings
    internal_settings: AppendSettings  # for batches of the broker itself


def rules_for(config: TopicConfig) -> TopicRules:
    """Returns the rules of a topic. Partitions that are opened one after another share them."""
    shared = _shared.get(id(config))
    if shared is not None and shared.config is config:
        return shared
    rules = TopicRules(
        config,
        has_flush_rules(config),
        event_slack(config),
        settings_of(config, config.target_magic),
        settings_of(config, NEWEST_MAGIC),
    )
    _shared.clear()
    _shared[id(config)] = rules
    return rules


_shared: dict[int, TopicRules] = {}  # the last one that was made
