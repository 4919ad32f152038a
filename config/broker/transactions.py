"""The settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.setting import INT_MAX, Type, setting


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """A broker's settings of transactions."""

    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        Type.INT,
        900_000,
        "The longest transaction.timeout.ms, in ms, that a producer may ask for.",
        low=1,
        dynamic=False,
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        Type.INT,
        604_800_000,
        "For how long, in ms, a transactional id is kept that has no transaction open.",
        low=1,
        dynamic=False,
    )
    max_transactional_ids: int = setting(
        "max.transactional.ids",
        Type.INT,
        50_000,
        "How many transactional ids this broker coordinates at most; a new one is refused with "
        "POLICY_VIOLATION while there are so many. Not a Kafka setting.",
        low=1,
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        Type.BOOLEAN,
        True,
        "Whether the first records or offsets of a transaction in a partition are stored only if its "
        "coordinator knows that the transaction has that partition. Without it, records that come late begin "
        "a transaction that nobody ends. With transaction.version 2 the coordinator is always asked.",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        Type.INT,
        50,
        "How many partitions __transaction_state is created with, when the first transactional id "
        "is stored.",
        low=1,
        dynamic=False,
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        Type.SHORT,
        3,
        "How many replicas each partition of __transaction_state has. Where fewer brokers are there, "
        "it has as many as there are brokers.",
        low=1,
        dynamic=False,
    )
    transaction_state_log_min_isr: int | None = setting(
        "transaction.state.log.min.isr",
        Type.INT,
        None,
        "The min.insync.replicas of __transaction_state when it is created; where it is not given (Kafka: "
        "2), that of the broker holds.",
        low=1,
        dynamic=False,
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        Type.INT,
        100 * 2**20,
        "The segment.bytes of __transaction_state when it is created.",
        low=1,
        high=INT_MAX,
        dynamic=False,
    )
