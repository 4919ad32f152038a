"""Every broker setting, declared once; `checks.py` has the rules between settings.

Kafka's settings have Kafka's names, and our own (http.listener, clock ...) follow its style. The
defaults of topic settings are broker settings too: config/topic.py declares them under `broker_names`. A
subject with many settings has a class in a file of its own, and BrokerConfig holds one of each.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.config.broker.checks import parse_log_dirs
from tidelog.config.broker.cluster import ClusterConfig
from tidelog.config.broker.connections import ConnectionsConfig
from tidelog.config.broker.fetches import FetchConfig
from tidelog.config.broker.groups import GroupsConfig
from tidelog.config.broker.http import HttpConfig
from tidelog.config.broker.limits import LimitsConfig
from tidelog.config.broker.listeners import (
    Listener,
    check_protocol_map,
    parse_address,
    parse_advertised_listeners,
    parse_bound_listeners,
    parse_protocol_map,
    protocol_of,
    split_address,
)
from tidelog.config.broker.replication import ReplicationConfig
from tidelog.config.broker.tls import TlsConfig
from tidelog.config.broker.transactions import TransactionConfig
from tidelog.config.setting import LONG_MAX, PART, Given, Setting, Type, declared_in, setting
from tidelog.config.topic import TopicConfig
from tidelog.config.versions import magic_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker: those of each subject that has a class of its own, and the others."""

    connections: ConnectionsConfig = field(default_factory=ConnectionsConfig, metadata=PART)
    limits: LimitsConfig = field(default_factory=LimitsConfig, metadata=PART)
    fetches: FetchConfig = field(default_factory=FetchConfig, metadata=PART)
    http: HttpConfig = field(default_factory=HttpConfig, metadata=PART)
    groups: GroupsConfig = field(default_factory=GroupsConfig, metadata=PART)
    transactions: TransactionConfig = field(default_factory=TransactionConfig, metadata=PART)
    cluster: ClusterConfig = field(default_factory=ClusterConfig, metadata=PART)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig, metadata=PART)
    tls: TlsConfig = field(default_factory=TlsConfig, metadata=PART)
    listeners: tuple[Listener, ...] = setting(
        "listeners",
        Type.LIST,
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        "The addresses to listen on, as NAME://host:port; an empty host means every interface (Kafka's "
        "default), port 0 any free port.",
        convert=parse_bound_listeners,
        dynamic=False,
    )
    advertised_listeners: tuple[Listener, ...] = setting(
        "advertised.listeners",
        Type.LIST,
        (),
        "The addresses that clients are given to connect to, by listener name; if not set, the "
        "listeners.",
        convert=parse_advertised_listeners,
        dynamic=False,
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        Type.STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener, by name; a listener that is bound must be "
        "PLAINTEXT or SSL.",
        convert=check_protocol_map,
        dynamic=False,
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        Type.LIST,
        (),
        "The listeners of a KRaft controller; tidelog has none, so these are not bound.",
        dynamic=False,
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name",
        Type.STRING,
        "",
        "The listener, by name, by which the other brokers of the cluster reach this one; if not set, "
        "the first of the listeners.",
        convert=str.upper,
        dynamic=False,
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        Type.LIST,
        ("data",),
        "The directories of the logs, separated by commas; the first one also holds the metadata.",
        fallbacks=("log.dir",),
        convert=parse_log_dirs,
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
    log_dir_group_readable: bool = setting(
        "log.dir.group.readable",
        Type.BOOLEAN,
        False,
        "Whether the group of a log directory may read the logs in it: what is made there has the modes "
        "0640 and 0750 instead of 0600 and 0700. The metadata, lock files and sockets are the owner's "
        "alone. Not a Kafka setting.",
        dynamic=False,
    )
    control_listener: str = setting(
        "control.listener",
        Type.STRING,
        "",
        "The host:port on which tests move a manual clock, inject faults and start rounds of "
        "maintenance; it has no access control. If empty, there is none. Not a Kafka setting.",
        convert=parse_address,
        dynamic=False,
    )
    log_level: str = setting(
        "log.level",
        Type.STRING,
        "info",
        "The least level of messages that are logged to standard error. Not a Kafka setting.",
        choices=("debug", "info", "warning", "error"),
        dynamic=False,
    )
    clock: str = setting(
        "clock",
        Type.STRING,
        "system",
        "The broker's clock: the machine's (system), or one that stands still until it is moved "
        "through the control listener (manual). Not a Kafka setting.",
        choices=("system", "manual"),
        dynamic=False,
    )
    clock_start_ms: int | None = setting(
        "clock.start.ms",
        Type.LONG,
        None,
        "The time, in ms since the epoch, at which a manual clock starts; if not set, the "
        "machine's time. Not a Kafka setting.",
        low=1 - LONG_MAX,
        dynamic=False,
    )
    clock_scope: str = setting(
        "clock.scope",
        Type.STRING,
        "log",
        "What follows a manual clock: only the log (stamps, windows, rolls, retention, "
        "compaction), or all, which includes group sessions and the expiry of offsets. Not a "
        "Kafka setting.",
        choices=("log", "all"),
        dynamic=False,
    )
    clock_start_pause_ms: int = setting(
        "clock.start.pause.ms",
        Type.LONG,
        30 * 86_400_000,
        "How long, in ms, the machine may have been off: a clock that is further ahead after a "
        "restart of the machine is not trusted, and nothing is deleted by it. Not a Kafka setting.",
        low=0,
        dynamic=False,
    )
    num_partitions: int = setting(
        "num.partitions",
        Type.INT,
        1,
        "How many partitions a topic gets if its creator does not say.",
        low=1,
        dynamic=False,
    )
    max_partitions_per_topic: int = setting(
        "max.partitions.per.topic",
        Type.INT,
        10_000,
        "The largest number of partitions that a topic may have. Not a Kafka setting.",
        low=1,
        dynamic=False,
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        Type.INT,
        1,
        "How many replicas a partition gets if the topic's creator does not say.",
        low=1,
        high=32_767,
        dynamic=False,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        True,
        "Whether a request for a topic that does not exist creates it.",
        dynamic=False,
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable",
        Type.BOOLEAN,
        True,
        "Whether topics may be deleted.",
        dynamic=False,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        Type.LONG,
        600_000,
        "After how many ms without a request a connection is closed.",
        low=1,
        dynamic=False,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        Type.LONG,
        300_000,
        "How often, in ms, segments that are due are deleted.",
        low=1,
        dynamic=False,
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        Type.BOOLEAN,
        True,
        "Whether topics with cleanup.policy=compact are compacted.",
        dynamic=False,
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        Type.INT,
        1,
        "How many logs are compacted at once, each in its own process.",
        low=0,
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        Type.LONG,
        15_000,
        "How often, in ms, the broker checks whether a log is to be compacted.",
        low=0,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        Type.LONG,
        128 * 2**20,
        "The memory, in bytes, for the keys of all logs that are compacted at once, 24 bytes a "
        "key, 40 with compaction.strategy=timestamp; a log with more keys is compacted in parts.",
        low=0,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        Type.DOUBLE,
        0.9,
        "What part of the memory for keys may be used, from 0 to 1.",
        low=0,
        high=1,
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        Type.INT,
        524_288,
        "How many bytes of a compacted segment are collected before they are written.",
        low=0,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        Type.DOUBLE,
        sys.float_info.max,
        "How many bytes a second compaction reads and writes at most, in all its processes together; the "
        "default is no limit.",
        low=1,
    )
    log_cleaner_progress_timeout_ms: int = setting(
        "log.cleaner.progress.timeout.ms",
        Type.LONG,
        600_000,
        "After how many ms without progress the process that compacts a log is killed; the log "
        "is then not compacted until the next start. Not a Kafka setting.",
        low=2_000,
    )
    log_scrub_interval_ms: int = setting(
        "log.scrub.interval.ms",
        Type.LONG,
        -1,
        "How many ms after a pass of scrubbing the next one begins: it reads all closed segments again, to "
        "find batches that the disk has spoilt; -1 never. Not a Kafka setting.",
        low=-1,
        dynamic=False,
    )
    log_scrub_io_max_bytes_per_second: int = setting(
        "log.scrub.io.max.bytes.per.second",
        Type.LONG,
        10 * 2**20,
        "How many bytes a second scrubbing reads at most. Not a Kafka setting.",
        low=1,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        Type.INT,
        86_400_000,
        "How long, in ms since its last append, the state of an idempotent producer is kept.",
        low=1,
        dynamic=False,
    )
    # The defaults of every topic setting, from their broker names.
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    # Every value that was set, by the name it was set under, also those that a stronger one overrides.
    given: Mapping[str, Given] = field(default_factory=dict, compare=False, repr=False)
    # Kafka's settings that have no effect here, with their values (secrets hidden).
    ignored: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    # The origin of each value, by the name of the setting; settings with their default are missing.
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def listeners_with_tls(self) -> frozenset[str]:
        """The names of the listeners whose security protocol is SSL."""
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return frozenset(at.name for at in self.listeners if protocol_of(at, protocols) == "SSL")

    @property
    def newest_magic(self) -> int:
        """The newest message format that this broker stores, by `inter.broker.protocol.version`."""
        return magic_of(self.cluster.inter_broker_protocol_version)

    @property
    def control(self) -> tuple[str, int] | None:
        """Host and port of the control listener; None if there is none."""
        return split_address(self.control_listener) if self.control_listener else None


BROKER_SETTINGS: Mapping[str, Setting] = declared_in(BrokerConfig)
"""Every broker setting that is no topic default, by attribute (http.http_listener is in a part), in order."""
