"""The settings of replication: how followers fetch, who is in sync, and which replica consumers read."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.broker.checks import parse_replica_selector
from tidelog.config.replication_quota import (
    ALTER_LOG_DIRS_RATE,
    FOLLOWER_RATE,
    LEADER_RATE,
    QUOTA_WINDOW_S,
    QUOTA_WINDOWS,
)
from tidelog.config.setting import Type, setting


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """A broker's settings of replication."""

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        Type.LONG,
        30_000,
        "A follower that has not had the leader's whole log for so many ms leaves the in-sync "
        "replicas.",
        low=1,
        dynamic=False,
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        Type.INT,
        500,
        "How long, in ms, a leader lets a follower's fetch wait for records: a third of "
        "`broker.session.timeout.ms` at most.",
        low=0,
        dynamic=False,
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        Type.INT,
        1 << 20,
        "How many bytes of one partition a follower asks for at once; a larger batch comes whole.",
        low=0,
        dynamic=False,
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        Type.INT,
        10 << 20,
        "How many bytes of all partitions a follower asks for at once; a larger batch comes whole.",
        low=0,
        dynamic=False,
    )
    leader_replication_throttled_rate: int = LEADER_RATE
    follower_replication_throttled_rate: int = FOLLOWER_RATE
    replica_alter_log_dirs_io_max_bytes_per_second: int = ALTER_LOG_DIRS_RATE
    replication_quota_window_num: int = QUOTA_WINDOWS
    replication_quota_window_size_seconds: int = QUOTA_WINDOW_S
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        Type.STRING,
        None,
        "Which replica a leader tells a consumer to read from (KIP-392): with "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector an in-sync one in the rack that the "
        "consumer names (client.rack), if the leader is in another; with "
        "org.apache.kafka.common.replica.LeaderSelector, and by default, the leader.",
        convert=parse_replica_selector,
        dynamic=False,
    )
