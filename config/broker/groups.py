"""The settings of consumer groups and of the offsets that they commit."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.setting import INT_MAX, Type, setting


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """A broker's settings of the group coordinator."""

    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        Type.INT,
        6_000,
        "The shortest session timeout, in ms, that a member of a group may ask for.",
        low=1,
        dynamic=False,
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        Type.INT,
        1_800_000,
        "The longest session timeout, in ms, that a member of a group may ask for.",
        low=1,
        dynamic=False,
    )
    group_max_size: int = setting(
        "group.max.size",
        Type.INT,
        INT_MAX,
        "The largest number of members of a group.",
        low=1,
        dynamic=False,
    )
    max_groups: int = setting(
        "max.groups",
        Type.INT,
        50_000,
        "How many consumer groups this broker coordinates at most, those that hold offsets alone "
        "included; a new one is refused with POLICY_VIOLATION while there are so many.",
        low=1,
        dynamic=False,
    )
    max_groups_bytes: int = setting(
        "max.groups.bytes",
        Type.LONG,
        -1,
        "How many bytes of memory the consumer groups that this broker coordinates may take: members with "
        "their metadata and assignments, and committed offsets. New groups, members and offsets are refused "
        "with POLICY_VIOLATION beyond it. -1: as many as memory.limit.bytes. Not a Kafka setting.",
        low=-1,
        dynamic=False,
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        Type.INT,
        0,
        "How long, in ms, an empty group waits for more members after the first one; Kafka's "
        "default is 3000, and its quick start sets 0.",
        low=0,
        dynamic=False,
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        Type.INT,
        50,
        "How many partitions __consumer_offsets is created with, when the first group is stored.",
        low=1,
        dynamic=False,
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        Type.SHORT,
        3,
        "How many replicas each partition of __consumer_offsets has. Where fewer brokers are there, "
        "it has as many as there are brokers, and gets the others when more brokers come.",
        low=1,
        dynamic=False,
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        Type.INT,
        100 * 2**20,
        "The segment.bytes of __consumer_offsets when it is created.",
        low=1,
        dynamic=False,
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        Type.INT,
        5_000,
        "How long, in ms, offsets and groups that are written wait for the in-sync replicas of their "
        "partition of __consumer_offsets.",
        low=1,
        dynamic=False,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        Type.INT,
        10_080,
        "For how many minutes offsets are kept after their group became empty.",
        low=1,
        dynamic=False,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        Type.LONG,
        600_000,
        "How often, in ms, expired offsets are deleted.",
        low=1,
        dynamic=False,
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        Type.INT,
        4_096,
        "The size, in bytes, of the longest metadata string that may be committed with an offset.",
        dynamic=False,
    )
