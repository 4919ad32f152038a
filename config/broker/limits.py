"""The settings that bound what clients can make a broker do: size, memory, time."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.setting import Type, setting


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """A broker's limits for clients."""

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        Type.INT,
        100 * 2**20,
        "The size, in bytes, of the largest request that is read; a larger one closes the "
        "connection. Only Produce may use all of it: the page on compatibility has the sizes of others.",
        low=1,
        dynamic=False,
    )
    request_slow_log_ms: int = setting(
        "request.slow.log.ms",
        Type.LONG,
        1_000,
        "After how many ms the answer to a request is logged as slow, with its API and its client; -1 "
        "never. Fetch, JoinGroup and SyncGroup, which wait for others, are left out. Not a Kafka "
        "setting.",
        low=-1,
    )
    auto_create_topics_per_request: int = setting(
        "auto.create.topics.per.request",
        Type.INT,
        100,
        "How many topics that do not exist one Metadata request may create; the others do not exist "
        "for this answer, and are created when the client asks again. Not a Kafka setting.",
        low=1,
    )
    max_topics: int = setting(
        "max.topics",
        Type.INT,
        50_000,
        "How many topics the cluster may have; a new one is refused with POLICY_VIOLATION while there "
        "are so many. Internal topics count, and are not refused. Not a Kafka setting.",
        low=1,
    )
    max_partitions: int = setting(
        "max.partitions",
        Type.INT,
        200_000,
        "How many partitions the topics of the cluster may have together; whatever would add more is "
        "refused with POLICY_VIOLATION, internal topics excepted. Replicas do not count. Not a Kafka "
        "setting.",
        low=1,
    )
    max_quota_entities: int = setting(
        "max.quota.entities",
        Type.INT,
        10_000,
        "How many users, client ids, pairs of both, and addresses may have quotas; a new one is refused "
        "with POLICY_VIOLATION while there are so many. Not a Kafka setting.",
        low=1,
    )
    max_config_bytes_per_resource: int = setting(
        "max.config.bytes.per.resource",
        Type.INT,
        65_536,
        "How many bytes the names and values of the settings may have that are stored for one topic, for "
        "all brokers or for one; a change that adds more is refused with POLICY_VIOLATION. Each change "
        "stores all of them again. Not a Kafka setting.",
        low=1_024,
        high=131_072,
        dynamic=False,
    )
    max_config_bytes: int = setting(
        "max.config.bytes",
        Type.INT,
        32 * 2**20,
        "How many bytes the names and values of the settings of all topics and brokers may have "
        "together; a change that adds more is refused with POLICY_VIOLATION. Not a Kafka setting.",
        low=1_024,
        dynamic=False,
    )
    quota_window_num: int = setting(
        "quota.window.num",
        Type.INT,
        11,
        "Over how many windows the rates of clients that have quotas are measured.",
        low=1,
        dynamic=False,
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        Type.INT,
        1,
        "How long, in s, each window is over which the rates of clients that have quotas are measured.",
        low=1,
        dynamic=False,
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        Type.INT,
        11,
        "The changes of topics of how many windows a client that has a quota of them may make at once.",
        low=1,
        dynamic=False,
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        Type.INT,
        1,
        "How long, in s, each window is in which changes of topics are counted.",
        low=1,
        dynamic=False,
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        Type.LONG,
        -1,
        "How many bytes of requests are in memory at most, those that are being received included; "
        "while it is reached, connections that send large requests are not read. -1: a quarter of "
        "memory.limit.bytes, which is also the most.",
        low=-1,
        dynamic=False,
    )
    memory_limit_bytes: int = setting(
        "memory.limit.bytes",
        Type.LONG,
        512 * 2**20,
        "How much memory requests may take together, in bytes: their frames, records that are "
        "decompressed or converted, and answers that have not been read. Whoever would exceed it "
        "waits, or is refused.",
        low=8 * 2**20,
        dynamic=False,
    )
