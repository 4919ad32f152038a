"""The settings that say which broker this is, and which cluster it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.broker.checks import parse_broker_ids, parse_metadata_store, parse_node_id
from tidelog.config.setting import Type, setting
from tidelog.config.versions import check_release

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
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        Type.BOOLEAN,
        True,
        "Whether a broker that has come back leads again the partitions of which it is the first replica. "
        "Without it, `tidelog cluster elect` lets it. A leader whose disk is "
        "slow is relieved in any case. leader.imbalance.per.broker.percentage has no effect, as in Kafka "
        "without ZooKeeper.",
        dynamic=False,
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        Type.LONG,
        300,
        "How long, in seconds, a broker must be back before it leads again what it led. One that is new "
        "need not wait.",
        low=1,
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
    cordoned_brokers: tuple[int, ...] = setting(
        "cordoned.brokers",
        Type.LIST,
        (),
        "The brokers, by id, that get no new replicas, unless a client chooses them: they are to be "
        "removed. `tidelog broker remove` adds a broker, `tidelog broker forget` takes it out. "
        "Not a Kafka setting.",
        convert=parse_broker_ids,
    )
