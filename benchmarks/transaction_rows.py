"""Rows about transactions, and about sessions of fetches: what Kafka's newer clients do.

The clients are prepared bytes (transactors.py, members.py, raw.py), the same for both brokers.
"""

from __future__ import annotations

import statistics
import uuid

import loads
import members
import raw
import transactors
from brokers import cpu_s
from rows import Figure, Place, Row, drop_topic_of

_RECORDS = 100
_PRODUCERS = 8
_ABORT_EVERY = 5
_COMMITTED = 1


def _names(count: int) -> list[str]:
    run = uuid.uuid4().hex[:8]
    return [f"bench-{run}-{number}" for number in range(count)]


def transactions_row(key: str, producers: int, full: int) -> Row:
    """Transactions of 100 records of 100 B, by so many producers at the same time."""

    def prepare(place: Place) -> str:
        return loads.make_topic(place.broker, key, producers)

    def measure(place: Place) -> dict[str, float]:
        broker = place.broker
        each = max(50, int(full * place.scale))
        took, seconds = members.run(
            transactors.transactions(
                broker.port,
                place.state,
                _names(producers),
                loads.values_of(100)[:_RECORDS],
                each,
                lambda: cpu_s(broker),
            )
        )
        done = each * producers
        times = sorted(seconds)
        return {
            "rate": done / took.broker_cpu_s,
            "wall": done / took.seconds,
            "p50": statistics.median(times) * 1e3,
            "p99": times[int(len(times) * 0.99)] * 1e3,
            "client": took.client_share,
        }

    by = "one producer" if producers == 1 else f"{producers} producers"
    title = f"transactions of {_RECORDS} records, {by}"
    figures = (
        Figure("rate", f"{title}, per second of broker CPU", "1/s", 0),
        Figure("wall", f"{title}, per second by the clock", "1/s", 0),
        Figure("p50", f"{title}, p50", "ms", 2),
        Figure("p99", f"{title}, p99", "ms", 2),
        Figure("client", f"{title}: the client's share of its CPU", "%", 0),
    )
    return Row(key, figures, prepare, measure, drop_topic_of)


def committed_fetch_row() -> Row:
    """Reads transactions, a fifth of them aborted, with read_committed; records of both count."""
    full = 2_000

    def each_of(place: Place) -> int:
        return max(100, int(full * place.scale))

    def prepare(place: Place) -> str:
        name = loads.make_topic(place.broker, "committed-fetch")
        members.run(
            transactors.transactions(
                place.broker.port,
                name,
                _names(1),
                loads.values_of(100)[:_RECORDS],
                each_of(place),
                lambda: 0.0,
                _ABORT_EVERY,
            )
        )
        return name

    def measure(place: Place) -> dict[str, float]:
        broker = place.broker
        end, passes = each_of(place) * (_RECORDS + 1), 4  # each transaction has a marker
        took = members.run(
            members.consumers(
                broker.port, place.state, end, 1, passes, lambda: cpu_s(broker), _COMMITTED
            )
        )
        records = each_of(place) * _RECORDS * passes
        return {"cpu": took.broker_cpu_s / records * 1e6, "client": took.client_share}

    title = f"fetch with read_committed, transactions of {_RECORDS} records, 100 B"
    figures = (
        Figure("cpu", f"broker CPU, {title}", "s/M", 3),
        Figure("client", f"{title}: the client's share of its CPU", "%", 0),
    )
    return Row("committed-fetch", figures, prepare, measure, drop_topic_of)


def session_row() -> Row:
    """Fetches of a session in whose partitions nothing is new."""
    partitions, requests = 1000, 200

    def prepare(place: Place) -> str:
        return loads.make_topic(place.broker, "quiet-session", partitions)

    def measure(place: Place) -> dict[str, float]:
        fetches = raw.fetch_session(place.broker.port, place.state, partitions, requests)
        before = cpu_s(place.broker)
        fetches()
        return {"cpu": (cpu_s(place.broker) - before) / requests * 1e3}

    figures = (Figure("cpu", "fetch of 1,000 quiet partitions, in a session", "ms/req", 3),)
    return Row("quiet-session", figures, prepare, measure, drop_topic_of)


TRANSACTION_ROWS: tuple[Row, ...] = (
    transactions_row("transactions", _PRODUCERS, 500),
    transactions_row("one-transactor", 1, 1_500),
    committed_fetch_row(),
    session_row(),
)
