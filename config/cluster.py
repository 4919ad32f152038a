"""The settings that say which broker this is, and which cluster it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from config.broker_checks import parse_broker_ids, parse_metadata_store, parse_node_id
from config.setting import Type, setting


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A broker's settings of its cluster; the other settings of a broker are beside them."""

    node_id: int = setting(
        "node.id",
        Type.INT,
        1,
        "The broker's id, unique in its cluster.",
        aliases=("broker.id",),
        low=-1,
        convert=parse_node_id,
        dynamic=False,
    )
    metadata_store: str = setting(
        "metadata.store",
        Type.STRING,
        "",
        "Where the brokers of a cluster keep their metadata: sqlite:PATH is a file that several "
        "brokers of one machine share. If empty, the broker is alone, and its metadata are in the "
        "first of log.dirs. Not a Kafka setting.",
        convert=parse_metadata_store,
        dynamic=False,
    )
    broker_rack: str | None = setting(
        "broker.rack",
        Type.STRING,
        None,
        "The rack of the broker: the replicas of a partition are placed in different racks.",
        dynamic=False,
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        Type.INT,
        3_000,
        "After how many ms without a sign of life a broker of several is taken for dead; Kafka's "
        "default is 9000. A broker whose process has ended is noticed at once.",
        low=300,
        dynamic=False,
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        Type.BOOLEAN,
        True,
        "Whether a broker of several lets others lead before it stops.",
        dynamic=False,
    )
    controlled_shutdown_max_wait_ms: int = setting(
        "controlled.shutdown.max.wait.ms",
        Type.LONG,
        10_000,
        "How long, in ms, a broker that stops waits until others lead and all know it. Not a Kafka "
        "setting.",
        low=0,
        dynamic=False,
    )
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
        "How long, in ms, a leader lets a follower's fetch wait for records.",
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
    cordoned_brokers: tuple[int, ...] = setting(
        "cordoned.brokers",
        Type.LIST,
        (),
        "The brokers, by id, that get no replicas of new partitions; `tidelog broker remove` sets it. "
        "Not a Kafka setting.",
        convert=parse_broker_ids,
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
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        Type.INT,
        5_000,
        "How long, in ms, offsets and groups that are written wait for the in-sync replicas of their "
        "partition of __consumer_offsets.",
        low=1,
        dynamic=False,
    )
