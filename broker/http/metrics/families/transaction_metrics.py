"""Metrics of transactions: states at the coordinators, and the lag of the last stable offset (LSO).

The lag of the LSO is known for partitions whose logs were opened since the start. Its seconds are the clock
minus the append time of the first record at or after the LSO, which is read from the log in a thread.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.open_transactions import OpenTransaction, late
from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family, Scrape
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.transaction_log import State

if TYPE_CHECKING:
    from tidelog.broker.coordinators.transactions.transaction import Transaction
    from tidelog.broker.http.metrics.family import Samples
    from tidelog.storage.log.partition import Partition

_STATES = tuple(state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE))


def _transactions(scrape: Scrape) -> list[Transaction]:
    try:
        return scrape.services.transactions.all()
    except BrokerError:  # the ids are still being read
        return []


def _states(scrape: Scrape) -> Samples:
    counts = Counter(each.state for each in _transactions(scrape))
    for state in _STATES:
        yield (state.word,), counts[state]


def _oldest(scrape: Scrape) -> Samples:
    began = [each.metadata.start_ms for each in _transactions(scrape) if each.is_open]
    yield (), max(scrape.now_ms - min(began), 0) / 1000 if began else 0


def _ended(scrape: Scrape) -> Samples:
    counts = scrape.services.metrics.transactions
    yield ("committed",), counts.committed
    yield ("aborted",), counts.aborted
    yield ("timed out",), counts.timed_out


def _expired(scrape: Scrape) -> Samples:
    yield (), scrape.services.metrics.transactions.expired_ids


def _refused(scrape: Scrape) -> Samples:
    for (api, code), count in dict(scrape.services.metrics.transactions.refused).items():
        yield (api, code.name), count


def _below_high_watermark(scrape: Scrape) -> list[tuple[Partition, int]]:
    """Returns the partitions whose last stable offset lies below the high watermark, and by how much."""
    found = scrape.shared.get(__name__)
    if found is None:
        ends = ((partition, partition.state.ends) for partition in scrape.partitions)
        found = scrape.shared[__name__] = [
            (partition, high_watermark - last_stable_offset)
            for partition, (_, high_watermark, last_stable_offset) in ends
            if last_stable_offset < high_watermark
        ]
    assert isinstance(found, list)
    return found


def _lag_records(scrape: Scrape) -> Samples:
    for partition, records in _below_high_watermark(scrape):
        yield (partition.topic, str(partition.index)), records


def _lag_seconds(scrape: Scrape) -> Samples:
    for partition, _ in _below_high_watermark(scrape):
        try:
            record = partition.reader.first_record(partition.state.ends.last_stable_offset)
        except BrokerError:  # deleted meanwhile, or its disk has failed, which other metrics show
            continue
        append_time = None if record is None else record[1][2]
        if append_time is not None:
            labels = partition.topic, str(partition.index)
            yield labels, max(scrape.now_ms - append_time, 0) / 1000


def _late(scrape: Scrape) -> Samples:
    longest_ms = scrape.services.config.transactions.transaction_max_timeout_ms
    found: list[OpenTransaction] = late(scrape.partitions, scrape.now_ms, longest_ms)
    yield (), len({(each.topic, each.partition) for each in found})


_PARTITION = ("topic", "partition")

FAMILIES = (
    Family(
        "tidelog_transactional_ids",
        GAUGE,
        "Transactional ids that this broker coordinates, by state; Ongoing ones have a transaction open",
        ("state",),
        _states,
    ),
    Family(
        "tidelog_transaction_oldest_seconds",
        GAUGE,
        "Age of the oldest transaction that has not ended, of those that this broker coordinates; 0 if "
        "there is none",
        (),
        _oldest,
    ),
    Family(
        "tidelog_transactions_ended",
        COUNTER,
        "Transactions that this broker has decided to commit or to abort; those that timed out are "
        "aborted ones as well",
        ("outcome",),
        _ended,
    ),
    Family(
        "tidelog_transactional_ids_expired",
        COUNTER,
        "Transactional ids forgotten after transactional.id.expiration.ms without use",
        (),
        _expired,
    ),
    Family(
        "tidelog_transactional_requests_refused",
        COUNTER,
        "Requests of transactions that were refused for good, by request and error",
        ("request", "error"),
        _refused,
    ),
    Family(
        "kafka_cluster_partition_laststableoffsetlag",
        GAUGE,
        "Offsets from the last stable one to the high watermark; missing where it is 0",
        _PARTITION,
        _lag_records,
    ),
    Family(
        "tidelog_last_stable_offset_lag_seconds",
        GAUGE,
        "Clock minus the append time of the first record that consumers of committed data do not see "
        "yet; missing where there is none",
        _PARTITION,
        _lag_seconds,
    ),
    Family(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        GAUGE,
        "Partitions with a transaction that is open though its producer was not heard of for longer than "
        "transaction.max.timeout.ms",
        (),
        _late,
    ),
)
