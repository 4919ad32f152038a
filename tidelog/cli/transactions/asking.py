"""What coordinators and partitions say of transactions, over Kafka's protocol.

Functions raise CommandError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.connecting import raised_as_sentences
from tidelog.cli.shared import CommandError, UsageError
from tidelog.client import RequestError
from tidelog.client.calls import producers as producer_calls
from tidelog.client.calls import transactions as calls
from tidelog.client.calls.transactions import Filters
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.wire import EncodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.cli.cluster import Cluster
    from tidelog.client.calls.transactions import ListedTransaction, ProducerTransaction
    from tidelog.protocol.topic_partition import TopicPartition

STATE_TOPIC = "__transaction_state"
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_AT_ONCE = 500  # ids in one request
_STATES = (  # by Kafka's names
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("PrepareEpochFence", "Dead"),
)


class DescribedTransaction(NamedTuple):
    """A transactional id as its coordinator knows it. Times in ms."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    """When the transaction began; None if none is open."""
    partitions: tuple[TopicPartition, ...]
    """Those in the transaction; while it ends, those that lack their marker."""


def listed(cluster: Cluster, filters: Filters) -> list[tuple[int, ListedTransaction]]:
    """Returns the transactional ids that match, each with its coordinator, sorted by id."""
    found: dict[str, tuple[int, ListedTransaction]] = {}
    for broker in cluster.node_ids():
        try:
            here, unknown = cluster.perform(calls.list_on(broker, filters))
        except EncodeError as error:
            raise CommandError(f"broker {broker} is too old for this filter: {error}") from None
        if unknown:
            raise UsageError(
                f"there is no state {', '.join(unknown)} (choose from {', '.join(_STATES)})"
            )
        found.update((each.transactional_id, (broker, each)) for each in here)
    return [found[name] for name in sorted(found)]


def described(
    cluster: Cluster, each: Iterable[tuple[int, ListedTransaction]]
) -> list[DescribedTransaction]:
    """Returns what coordinators know of listed ids; those they have forgotten since are left out."""
    by_coordinator: dict[int, list[str]] = {}
    for broker, one in each:
        by_coordinator.setdefault(broker, []).append(one.transactional_id)
    found = []
    for broker, names in by_coordinator.items():
        for first in range(0, len(names), _AT_ONCE):
            answer = cluster.perform(calls.describe_on(broker, names[first : first + _AT_ONCE]))
            found += [_transaction(broker, one) for one in answer.values()]
    return sorted(found)


def describe(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """Returns what its coordinator knows of one id."""
    if not transactional_id:
        raise CommandError("a transactional id has at least one character")
    prefix = f"{transactional_id}: "
    broker = cluster.perform(calls.coordinator(transactional_id), prefix)
    try:
        with raised_as_sentences(prefix):
            try:
                answer = cluster.client.perform(calls.describe(transactional_id))
            except RequestError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                raise CommandError(f"there is no transactional id {transactional_id}") from None
    except EncodeError as error:
        raise CommandError(f"{prefix}{error}") from None
    return _transaction(broker, answer)


def open_in(cluster: Cluster, place: TopicPartition) -> list[ProducerTransaction]:
    """Returns the transactions that are open in a partition, oldest first."""
    call = calls.open_in(*place)
    found: list[ProducerTransaction] = cluster.perform(call, f"{place[0]}-{place[1]}: ")
    return sorted(found, key=lambda each: each.start_offset)


def of_producers(cluster: Cluster, ids: Sequence[int]) -> dict[int, tuple[int, ListedTransaction]]:
    """Returns the transactional ids of producer ids, each with its coordinator."""
    found: dict[int, tuple[int, ListedTransaction]] = {}
    for first in range(0, len(ids), _AT_ONCE):
        filters = Filters(producer_ids=ids[first : first + _AT_ONCE])
        found |= {each.producer_id: (broker, each) for broker, each in listed(cluster, filters)}
    return found


def abort_in(cluster: Cluster, place: TopicPartition, opened: ProducerTransaction) -> None:
    """Aborts an open transaction in one partition."""
    cluster.perform(calls.abort_in(*place, opened), f"{place[0]}-{place[1]}: ")


def fence(cluster: Cluster, transaction: DescribedTransaction) -> None:
    """Lets the coordinator abort what an id has open, and refuse its producer from now on."""
    name = transaction.transactional_id
    call = producer_calls.init(name, transaction_timeout_ms=transaction.timeout_ms)
    cluster.perform(call, f"{name}: ")


def _transaction(coordinator: int, told: Any) -> DescribedTransaction:
    start_ms = told.transaction_start_time_ms
    is_open = told.transaction_state in OPEN_STATES and start_ms >= 0
    return DescribedTransaction(
        told.transactional_id,
        told.transaction_state,
        coordinator,
        told.producer_id,
        told.producer_epoch,
        told.transaction_timeout_ms,
        start_ms if is_open else None,
        tuple(sorted((one.topic, number) for one in told.topics for number in one.partitions)),
    )
