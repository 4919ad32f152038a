"""Every topic setting, declared once, and the values derived from them.

A TopicConfig is immutable: a change makes a new one, so a reader sees all settings change at once.
Defaults come from the broker settings named in `broker_names`, if any; load.py says which one wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidelog.config.compression import CODECS, COMPRESSION_TYPE, GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL
from tidelog.config.instants import parse_times
from tidelog.config.replication_quota import FOLLOWER_REPLICAS, LEADER_REPLICAS
from tidelog.config.setting import LONG_MAX, BrokerName, Setting, Type, declared_in, setting
from tidelog.config.versions import check_release, magic_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_UNLIMITED = str(LONG_MAX)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic, with the broker's defaults filled in."""

    message_timestamp_type: str = setting(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "Which time a record has: the producer's (CreateTime), or the time at which it is "
        "appended (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker_names=(BrokerName("log.message.timestamp.type"),),
        broker_aliases=("message.timestamp.type",),
    )
    message_timestamp_before_max_ms: int | None = setting(
        "message.timestamp.before.max.ms",
        Type.LONG,
        None,
        "How far, in ms, the time of a CreateTime record may be before the broker's clock; if "
        "it is further, the append is rejected. If set, it wins over "
        "message.timestamp.difference.max.ms.",
        text=_UNLIMITED,
        low=0,
        broker_names=(BrokerName("log.message.timestamp.before.max.ms"),),
    )
    message_timestamp_after_max_ms: int | None = setting(
        "message.timestamp.after.max.ms",
        Type.LONG,
        None,
        "How far, in ms, the time of a CreateTime record may be after the broker's clock; if it "
        "is further, the append is rejected. If set, it wins over "
        "message.timestamp.difference.max.ms. Kafka 4.x has a default of one hour, tidelog no "
        "limit.",
        text=_UNLIMITED,
        low=0,
        broker_names=(BrokerName("log.message.timestamp.after.max.ms"),),
    )
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms",
        Type.LONG,
        LONG_MAX,
        "How far, in ms, the time of a CreateTime record may be from the broker's clock, in "
        "either direction. KIP-32 calls it max.message.time.difference.ms.",
        aliases=("max.message.time.difference.ms",),
        low=0,
        broker_names=(BrokerName("log.message.timestamp.difference.max.ms"),),
        broker_aliases=("max.message.time.difference.ms",),
    )
    message_timestamp_missing_values: tuple[int, ...] = setting(
        "message.timestamp.missing.values",
        Type.LIST,
        (),
        "Times, in ms, by which producers mean that a CreateTime record has none, such as the zero time "
        "of Go or .NET: the record is stored with -1 instead. At most 16. Not a Kafka setting.",
        convert=parse_times,
        broker_names=(BrokerName("log.message.timestamp.missing.values"),),
    )
    message_format_version: str = setting(
        "message.format.version",
        Type.STRING,
        "3.0-IV1",
        "The Kafka release whose message format is written to the log: format 0 up to 0.9, "
        "format 1 for 0.10, format 2 for 0.11 and later.",
        convert=check_release,
        broker_names=(BrokerName("log.message.format.version"),),
        broker_aliases=("message.format.version",),
    )
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable",
        Type.BOOLEAN,
        True,
        "Whether records are converted to older formats for clients that only know those; if "
        "not, such a client gets an error.",
        broker_names=(BrokerName("log.message.downconversion.enable"),),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        Type.INT,
        1_048_588,
        "The size, in bytes, of the largest record batch that is accepted, as it is stored.",
        low=0,
        broker_names=(BrokerName("message.max.bytes"),),
    )
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes",
        Type.INT,
        2_147_483_639,
        "The size, in bytes, of the largest batch after decompression. Whatever it says, a batch may "
        "unpack to a hundred times max.message.bytes (64 MiB at least) and no more, and never to more "
        "than an eighth of memory.limit.bytes.",
        low=1,
        high=2_147_483_639,
        broker_names=(BrokerName("max.decompressed.message.bytes"),),
    )
    compression_type: str = COMPRESSION_TYPE
    compression_gzip_level: int = GZIP_LEVEL
    compression_lz4_level: int = LZ4_LEVEL
    compression_zstd_level: int = ZSTD_LEVEL
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        Type.LIST,
        ("delete",),
        "What is done with old segments: they are deleted, compacted to the last record of each "
        "key, both, or, if this is empty, neither.",
        choices=("delete", "compact"),
        broker_names=(BrokerName("log.cleanup.policy"),),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        Type.INT,
        2**30,
        "The size, in bytes, at which a segment is closed and a new one begins.",
        low=14,
        broker_names=(BrokerName("log.segment.bytes"),),
    )
    segment_ms: int = setting(
        "segment.ms",
        Type.LONG,
        7 * _DAY_MS,
        "The span of record time, in ms, after which a segment is closed even if it is not full.",
        low=1,
        broker_names=(BrokerName("log.roll.ms"), BrokerName("log.roll.hours", _HOUR_MS)),
    )
    segment_min_roll_interval_ms: int = setting(
        "segment.min.roll.interval.ms",
        Type.LONG,
        10_000,
        "How old, in ms since its first append, a segment must be before segment.ms may close "
        "it; without it, old and new records in turn would close a segment with every append.",
        low=0,
        broker_names=(BrokerName("log.segment.min.roll.interval.ms"),),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        Type.LONG,
        0,
        "By how many ms at most segment.ms is shortened, at random, so that segments do not all "
        "close at once.",
        low=0,
        broker_names=(
            BrokerName("log.roll.jitter.ms"),
            BrokerName("log.roll.jitter.hours", _HOUR_MS),
        ),
        effective=False,
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        Type.INT,
        10 * 2**20,
        "The size, in bytes, at which an index is full and its segment is closed.",
        low=4,
        broker_names=(BrokerName("log.index.size.max.bytes"),),
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        Type.INT,
        4096,
        "How many bytes of log there are between two entries of an index.",
        low=0,
        broker_names=(BrokerName("log.index.interval.bytes"),),
    )
    retention_ms: int = setting(
        "retention.ms",
        Type.LONG,
        7 * _DAY_MS,
        "How long, in ms, records are kept before their segment may be deleted; -1 means for ever.",
        low=-1,
        broker_names=(
            BrokerName("log.retention.ms", zero=False),
            BrokerName("log.retention.minutes", 60_000, zero=False),
            BrokerName("log.retention.hours", _HOUR_MS, zero=False),
        ),
    )
    retention_time_basis: str = setting(
        "retention.time.basis",
        Type.STRING,
        "record",
        "What retention.ms counts from: record is the time of the newest record, but at most "
        "its append time; append is the last append time. Event-time retention keeps append under "
        "the name with .implied, which counts where nobody has given a basis.",
        choices=("record", "append"),
        broker_names=(BrokerName("log.retention.time.basis"),),
        implied_names=("retention.time.basis.implied", "log.retention.time.basis.implied"),
    )
    retention_refuse_expired: bool = setting(
        "retention.refuse.expired",
        Type.BOOLEAN,
        False,
        "Whether an append is rejected for a record that retention.ms, with record as "
        "retention.time.basis, or retention.max.eventtime.ms, without a grace, would delete at once. It "
        "needs delete in cleanup.policy, and does nothing where retention.min.append.ms keeps such "
        "records. Not a Kafka setting.",
        broker_names=(BrokerName("log.retention.refuse.expired"),),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        Type.LONG,
        -1,
        "The size, in bytes, beyond which a partition's oldest segments are deleted; -1 means "
        "no limit.",
        low=-1,
        broker_names=(BrokerName("log.retention.bytes"),),
    )
    retention_max_eventtime_ms: int = setting(
        "retention.max.eventtime.ms",
        Type.LONG,
        -1,
        "How much event time, in ms, a partition keeps: a segment may be deleted if its largest "
        "event time is further behind the largest event time that the partition ever had; -1 "
        "switches it off. Setting it also sets retention.time.basis=append, for good, unless a "
        "basis is given. Not a Kafka setting.",
        low=-1,
        broker_names=(BrokerName("log.retention.max.eventtime.ms"),),
    )
    retention_max_eventtime_grace_ms: int = setting(
        "retention.max.eventtime.grace.ms",
        Type.LONG,
        _HOUR_MS,
        "How long, in ms, after its last append a segment is safe from "
        "retention.max.eventtime.ms, so that old data that was just written can be read; 0 "
        "means not at all. Not a Kafka setting.",
        low=0,
        broker_names=(BrokerName("log.retention.max.eventtime.grace.ms"),),
    )
    retention_min_append_ms: int = setting(
        "retention.min.append.ms",
        Type.LONG,
        0,
        "How long, in ms, after its last append no time policy deletes a segment: neither "
        "retention.ms nor retention.max.eventtime.ms. Not a Kafka setting.",
        low=0,
        broker_names=(BrokerName("log.retention.min.append.ms"),),
    )
    event_time_ahead_max_ms: int = setting(
        "event.time.ahead.max.ms",
        Type.LONG,
        _HOUR_MS,
        "How far, in ms, the time of a record may be after its append time and still count as an "
        "event time: a later time counts as this much after the append time, so that one wrong "
        "time expires nothing, and with compaction.strategy=timestamp replaces no later update. "
        "As an event time it counts as it did at its append, whatever is set later. Not a Kafka "
        "setting.",
        low=0,
        broker_names=(BrokerName("log.event.time.ahead.max.ms"),),
    )
    flush_messages: int = setting(
        "flush.messages",
        Type.LONG,
        LONG_MAX,
        "After how many records the log is forced to disk: the append of the last of them is "
        "answered once all of them are on disk. With 1 every append is forced to disk before it "
        "is acknowledged, those of many producers together, and consumers see nothing before "
        "that.",
        low=1,
        broker_names=(BrokerName("log.flush.interval.messages"),),
    )
    flush_ms: int = setting(
        "flush.ms",
        Type.LONG,
        LONG_MAX,
        "How long, in ms, a record may wait before the log is forced to disk in the background; "
        "every log is, within half a minute.",
        low=0,
        broker_names=(
            BrokerName("log.flush.interval.ms"),
            BrokerName("log.flush.scheduler.interval.ms"),
        ),
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        Type.INT,
        1,
        "How many replicas must have a record before acks=all is answered with success.",
        low=1,
        broker_names=(BrokerName("min.insync.replicas"),),
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        Type.LONG,
        60_000,
        "How long, in ms, the files of a deleted segment stay on disk, renamed.",
        low=0,
        broker_names=(BrokerName("log.segment.delete.delay.ms"),),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        Type.LONG,
        _DAY_MS,
        "How long, in ms, compaction keeps a tombstone after it first met it, so that consumers "
        "that read the log meanwhile see the deletion. With compaction.strategy=timestamp it stays "
        "longer where a later record of its key waits to be compacted.",
        low=0,
        broker_names=(BrokerName("log.cleaner.delete.retention.ms"),),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        Type.LONG,
        0,
        "How long, in ms, a record is safe from compaction, counted from its record time or its "
        "append time, whichever is earlier.",
        low=0,
        broker_names=(BrokerName("log.cleaner.min.compaction.lag.ms"),),
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        Type.LONG,
        LONG_MAX,
        "How long, in ms, a record may stay uncompacted, also one in the active segment, which "
        "is then closed by the next append.",
        low=1,
        broker_names=(BrokerName("log.cleaner.max.compaction.lag.ms"),),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        Type.DOUBLE,
        0.5,
        "What part of the bytes of a log's closed segments must be uncompacted before "
        "compaction starts.",
        low=0,
        high=1,
        broker_names=(BrokerName("log.cleaner.min.cleanable.ratio"),),
    )
    compaction_strategy: str = setting(
        "compaction.strategy",
        Type.STRING,
        "offset",
        "Which record of a key compaction keeps: the last one written (offset), or the one with "
        "the newest record time (timestamp); if two have the same time, or one has none, or both "
        "have LogAppendTime, the last one written. Not a Kafka setting.",
        choices=("offset", "timestamp"),
        broker_names=(BrokerName("log.cleaner.compaction.strategy"),),
    )
    preallocate: bool = setting(
        "preallocate",
        Type.BOOLEAN,
        False,
        "Whether a segment's file gets its full size when it is created.",
        broker_names=(BrokerName("log.preallocate"),),
        effective=False,
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Whether a replica that is behind may become leader when no other replica is left.",
        broker_names=(BrokerName("unclean.leader.election.enable"),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = LEADER_REPLICAS
    follower_replication_throttled_replicas: tuple[str, ...] = FOLLOWER_REPLICAS

    # Where each value came from, by setting name; names that are missing have their defaults.
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    # Derived from the settings once, because every append needs them.
    target_magic: int = field(init=False, compare=False, repr=False)
    compression: int | None = field(init=False, compare=False, repr=False)
    timestamp_window: tuple[int | None, int | None] = field(init=False, compare=False, repr=False)
    is_compacted: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Derives the on-disk format, the codec (None: the producer's) and the window in ms."""
        fill = object.__setattr__
        fill(self, "target_magic", magic_of(self.message_format_version))
        fill(self, "compression", CODECS[self.compression_type])
        fill(self, "is_compacted", "compact" in self.cleanup_policy)
        fill(self, "timestamp_window", (self._bound("before"), self._bound("after")))

    @property
    def lacks_basis(self) -> bool:
        """Whether event-time retention is on and no retention.time.basis was given.

        Then retention.ms must not use record times: it would delete old data that event-time
        retention keeps.
        """
        return self.retention_max_eventtime_ms >= 0 and "retention.time.basis" not in self.sources

    def without_window(self) -> TopicConfig:
        """Returns these settings with every record time as it is, as if no other rule had been given."""
        names = {f"message.timestamp.{side}.max.ms" for side in ("before", "after", "difference")}
        names |= {"message.timestamp.missing.values", "retention.refuse.expired"}
        return replace(
            self,
            message_timestamp_before_max_ms=None,
            message_timestamp_after_max_ms=None,
            message_timestamp_difference_max_ms=LONG_MAX,
            message_timestamp_missing_values=(),
            retention_refuse_expired=False,
            sources={name: origin for name, origin in self.sources.items() if name not in names},
        )

    def _bound(self, side: str) -> int | None:
        """Returns a side of the window: its own setting if set, else the symmetric (KIP-937)."""
        own: int | None = getattr(self, f"message_timestamp_{side}_max_ms")
        bound = self.message_timestamp_difference_max_ms if own is None else own
        return None if bound == LONG_MAX else bound


TOPIC_SETTINGS: Mapping[str, Setting] = declared_in(TopicConfig)
"""Every topic setting by attribute, in order of declaration."""
