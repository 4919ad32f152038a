"""Calls about transactions, for operators: what coordinators and partitions know (KIP-664).

Refusals raise RequestError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client import apis
from tidelog.client.cluster import TRANSACTION
from tidelog.client.errors import raise_for_code
from tidelog.client.flow import AnyBroker, Call, CoordinatorTarget, Leader, Node
from tidelog.protocol.api import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_transactions,
    write_txn_markers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListedTransaction(NamedTuple):
    """A transactional id in a coordinator's list; the state is Kafka's word."""

    transactional_id: str
    producer_id: int
    state: str


class ProducerTransaction(NamedTuple):
    """A transaction that is open in a partition: its marker has not been written there."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int
    """When its producer was last heard of there: tidelog's append time, Kafka's record time."""


class Filters(NamedTuple):
    """Which transactions to list; what is empty or None excludes none."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    open_for_ms: int | None = None
    """Only those open for longer than this, by the coordinator's clock (KIP-994)."""
    pattern: str | None = None
    """A regular expression that the whole id must match (KIP-1152)."""


def list_on(node_id: int, filters: Filters) -> Call[tuple[list[ListedTransaction], list[str]]]:
    """The transactional ids that one broker coordinates, and the state filters it does not know."""
    request = list_transactions.ListTransactionsRequest(
        state_filters=list(filters.states),
        producer_id_filters=list(filters.producer_ids),
        duration_filter=-1 if filters.open_for_ms is None else filters.open_for_ms,
        transactional_id_pattern=filters.pattern,
    )

    def read(answer: Any) -> tuple[list[ListedTransaction], list[str]]:
        raise_for_code(answer.error_code, f"transactions of broker {node_id}")
        listed = [
            ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
        ]
        return listed, list(answer.unknown_state_filters)

    return Call(apis.LIST_TRANSACTIONS, request, Node(node_id), read)


def coordinator(transactional_id: str) -> Call[int]:
    """Returns the id of the broker that coordinates a transactional id."""

    def read(answer: Any) -> int:
        what = f"coordinator of {transactional_id}"
        raise_for_code(answer.error_code, what, answer.error_message)
        return int(answer.node_id)

    request = find_coordinator.FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)
    return Call(apis.FIND_COORDINATOR, request, AnyBroker(), read)


def describe(transactional_id: str) -> Call[Any]:
    """The `TransactionState` of a transactional id.

    An id that was never initialised is refused with TRANSACTIONAL_ID_NOT_FOUND.
    """

    def read(answer: Any) -> Any:
        (one,) = answer.transaction_states
        raise_for_code(one.error_code, f"transactional id {transactional_id}")
        return one

    request = describe_transactions.DescribeTransactionsRequest(
        transactional_ids=[transactional_id]
    )
    target = CoordinatorTarget(TRANSACTION, transactional_id)
    return Call(apis.DESCRIBE_TRANSACTIONS, request, target, read)


def describe_on(node_id: int, transactional_ids: Sequence[str]) -> Call[dict[str, Any]]:
    """The `TransactionState` by id of those that a broker coordinates and has not forgotten since."""
    request = describe_transactions.DescribeTransactionsRequest(
        transactional_ids=list(transactional_ids)
    )

    def read(answer: Any) -> dict[str, Any]:
        return {
            one.transactional_id: one for one in answer.transaction_states if not one.error_code
        }

    return Call(apis.DESCRIBE_TRANSACTIONS, request, Node(node_id), read)


def open_in(topic: str, partition: int) -> Call[list[ProducerTransaction]]:
    """The transactions that are open in a partition, by what its leader knows."""
    asked = describe_producers.TopicRequest(name=topic, partition_indexes=[partition])
    request = describe_producers.DescribeProducersRequest(topics=[asked])

    def read(answer: Any) -> list[ProducerTransaction]:
        one = answer.topics[0].partitions[0]
        raise_for_code(one.error_code, f"producers of {topic}-{partition}", one.error_message)
        return [
            ProducerTransaction(
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.current_txn_start_offset,
                each.last_timestamp,
            )
            for each in one.active_producers
            if each.current_txn_start_offset >= 0
        ]

    return Call(apis.DESCRIBE_PRODUCERS, request, Leader(topic, partition), read)


def abort_in(topic: str, partition: int, opened: ProducerTransaction) -> Call[None]:
    """Writes the marker that aborts an open transaction in one partition."""
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=opened.producer_id,
        producer_epoch=opened.epoch,
        transaction_result=False,
        topics=[
            write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])
        ],
        # A producer that has no marker there yet has no epoch of a coordinator.
        coordinator_epoch=max(opened.coordinator_epoch, 0),
    )
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])

    def read(answer: Any) -> None:
        code = answer.markers[0].topics[0].partitions[0].error_code
        raise_for_code(code, f"aborting a transaction in {topic}-{partition}")

    return Call(apis.WRITE_TXN_MARKERS, request, Leader(topic, partition), read)
