"""What the rules of replication see of a leader: offsets, brokers and settings as of its last event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.replication.messages import (
        BrokerView,
        EpochHistory,
        LeaderRules,
    )
    from tidelog.broker.partitions.replication.remote import RemoteReplica


class LeaderView(Protocol):
    """A leader in one leader epoch; see `Leader`."""

    me: int
    leader_epoch: int
    epoch_start_offset: int
    epochs: EpochHistory
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    rules: LeaderRules
    brokers: BrokerView
    remotes: dict[int, RemoteReplica]

    @property
    def record(self) -> PartitionRecord:
        """The stored state of the partition, as far as this leader knows."""

    @property
    def isr(self) -> tuple[int, ...]:
        """The stored ISR: min.insync.replicas counts its members."""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas that the high watermark waits for (KIP-497)."""

    @property
    def min_isr(self) -> int:
        """The least size of the ISR, no more than there are replicas."""

    @property
    def fetchable_end(self) -> int:
        """Where ends what followers may fetch, and what this replica itself counts with."""
