"""The settings that say which broker this is, and which cluster it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from config.broker.checks import (
    parse_broker_ids,
    parse_metadata_store,
    parse_node_id,
    parse_replica_selector,
)
from config.replication_quota import (
    ALTER_LOG_DIRS_RATE,
    FOLLOWER_RATE,
    LEADER_RATE,
    QUOTA_WINDOW_S,
    QUOTA_WINDOWS,
)
from config.setting import Type, setting
from config.versions import check_release

SESSION_TIMEOUT_WITH_ETCD_MS = 6_000
"""The default of broker.session.timeout.ms with etcd: its leases end with no less than 2 s."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A broker's settings of its cluster."""

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
        "brokers of one machine share, etcd://HOST:PORT,HOST:PORT/NAME the members of etcd, and the "
        "cluster's name there (tidelog, if /NAME is left out). If empty, the broker is alone, and "
        "its metadata are in the first of log.dirs. Not a Kafka setting.",
        convert=parse_metadata_store,
        dynamic=False,
    )
    metadata_store_ca_file: str = setting(
        "metadata.store.ca.file",
        Type.STRING,
        "",
        "A file in PEM form with the certificates by which etcd is trusted. If it or a certificate "
        "of the broker's own is named, etcd is spoken to by TLS. Not a Kafka setting.",
        dynamic=False,
    )
    metadata_store_certificate_file: str = setting(
        "metadata.store.certificate.file",
        Type.STRING,
        "",
        "A file in PEM form with the certificate by which etcd knows the broker, for an etcd that "
        "asks for one. Not a Kafka setting.",
        dynamic=False,
    )
    metadata_store_key_file: str = setting(
        "metadata.store.key.file",
        Type.STRING,
        "",
        "A file in PEM form with the private key of metadata.store.certificate.file. Not a Kafka "
        "setting.",
        dynamic=False,
    )
    metadata_store_user: str = setting(
        "metadata.store.user",
        Type.STRING,
        "",
        "The user of etcd as whom the broker reads and writes its metadata, for an etcd with "
        "authentication. Its password is in metadata.store.password.file. Not a Kafka setting.",
        dynamic=False,
    )
    metadata_store_password_file: str = setting(
        "metadata.store.password.file",
        Type.STRING,
        "",
        "A file whose first line is the password of metadata.store.user. It is read for each login, so "
        "a new password needs no restart. Not a Kafka setting.",
        dynamic=False,
    )
    broker_rack: str | None = setting(
        "broker.rack",
        Type.STRING,
        None,
        "The rack of the broker: the replicas of a partition are placed in different racks, and "
        "replica.selector.class may send consumers to the one in theirs.",
        dynamic=False,
    )
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
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        Type.INT,
        3_000,
        "After how many ms without a sign of life a broker of several is taken for dead; Kafka's "
        "default is 9000. With the metadata in etcd the default is 6000, and etcd counts in whole "
        "seconds; with a file, a broker whose process has ended is noticed at once.",
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
    log_dir_slow_ms: int = setting(
        "log.dir.slow.ms",
        Type.LONG,
        15_000,
        "A broker of several lets others lead what is in a log directory in which a small write takes "
        "longer than so many ms to be durable, until its disk is fast again. 0: it does not look. Not "
        "a Kafka setting.",
        low=0,
        dynamic=False,
    )
    log_dir_reserve_bytes: int = setting(
        "log.dir.reserve.bytes",
        Type.INT,
        4 * 2**20,
        "The size, in bytes, of a file in each log directory, which has at most an eighth of its "
        "volume. Its room is given up when the disk is full, so that topics and records can be "
        "deleted and the broker stops cleanly. Until twice as much is free again, records are "
        "refused. 0: there is none. Not a Kafka setting.",
        low=0,
        dynamic=False,
    )
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        Type.STRING,
        "3.9-IV0",
        "The Kafka release whose message format is the newest that this broker stores: a broker "
        "with a release up to 0.9 gets format 0 from the leaders that it follows, with 0.10 format "
        "1. No message.format.version may be newer (KIP-32). Brokers always talk to each other in "
        "the newest protocol.",
        convert=check_release,
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
    leader_replication_throttled_rate: int = LEADER_RATE
    follower_replication_throttled_rate: int = FOLLOWER_RATE
    replica_alter_log_dirs_io_max_bytes_per_second: int = ALTER_LOG_DIRS_RATE
    replication_quota_window_num: int = QUOTA_WINDOWS
    replication_quota_window_size_seconds: int = QUOTA_WINDOW_S
    cordoned_brokers: tuple[int, ...] = setting(
        "cordoned.brokers",
        Type.LIST,
        (),
        "The brokers, by id, that get no new replicas, unless a client chooses them: they are to be "
        "removed. `tidelog broker remove` adds a broker, kafka-cluster.sh unregister takes it out. "
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
