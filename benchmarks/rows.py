"""The measured rows: one declaration per row, with its figures and the goal of each.

TABLE is the comparison with Apache Kafka that `make bench` prints, measured in two states. *Fresh*:
a broker that has just started runs the rows in this order, each for the first time, like a broker
in a test or on a development machine; the goals are for this state. *Warm*: each row has run
before, more than once, and Java's compiler has had its time. FACTORS (warm) begins with a base row
and changes one factor at a time.

CPU figures are the broker's own seconds, per million records (or per request), so a smaller load
gives the same figure, except for one-time costs.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import loads
import prepared
import raw
from brokers import Broker, cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Goal(NamedTuple):
    """The goal for tidelog: a ratio to Kafka, or a limit of its own."""

    text: str
    ratio_max: float | None = None
    ratio_min: float | None = None
    limit: float | None = None
    at_least: float | None = None

    def is_met(self, ratio: float | None, own: float) -> bool:
        """Returns whether a ratio (tidelog / Kafka) or tidelog's own figure reaches the goal."""
        if self.limit is not None:
            return own <= self.limit
        if self.at_least is not None:
            return own >= self.at_least
        if ratio is None:
            return False
        if self.ratio_min is not None:
            return ratio >= self.ratio_min
        return self.ratio_max is None or ratio <= self.ratio_max


class Figure(NamedTuple):
    """One number of a row, with `digits` decimal places."""

    key: str
    title: str
    unit: str
    digits: int
    goal: Goal | None = None


class Place(NamedTuple):
    """The environment of a row: a running broker, the result of `prepare`, and the scale."""

    broker: Broker
    state: Any
    scale: float

    def scaled(self, count: int) -> int:
        """Returns a count of the full load, scaled."""
        return max(1000, int(count * self.scale))


class Row(NamedTuple):
    """One row: how to prepare a broker, how to measure it once, and what to remove."""

    key: str
    figures: tuple[Figure, ...]
    prepare: Callable[[Place], Any]  # creates topics and records to fetch
    measure: Callable[[Place], dict[str, float]]
    clean: Callable[[Place], None] = lambda _place: None
    tidelog_only: str = ""  # why Apache Kafka has no such figure
    full_only: bool = False


def _nothing(_place: Place) -> None:
    return None


def drop_topic_of(place: Place) -> None:
    """Deletes the topic that `prepare` created."""
    if place.state:
        loads.drop_topic(place.broker, place.state)


# --- produce -------------------------------------------------------------------------------------


def produce_row(
    key: str,
    title: str,
    count: int,
    size: int,
    *,
    goal: Goal | None = None,
    partitions: int = 1,
    client: Mapping[str, Any] | None = None,
    topic: Mapping[str, str] | None = None,
    **options: Any,
) -> Row:
    """Broker CPU of producing with librdkafka, per million records."""

    def once(place: Place, records: int) -> float:
        name = loads.make_topic(place.broker, key, partitions, topic)
        before = cpu_s(place.broker)
        loads.produce(place.broker, name, records, size, partitions=partitions, settings=client)
        used = cpu_s(place.broker) - before
        loads.drop_topic(place.broker, name)
        return used

    def measure(place: Place) -> dict[str, float]:
        records = place.scaled(count)
        return {"cpu": once(place, records) / records * 1e6}

    return Row(key, (Figure("cpu", title, "s/M", 3, goal),), _nothing, measure, **options)


_CONNECTIONS = 8


def requests_row(key: str, title: str, depth: int, goal: Goal | None = None, **options: Any) -> Row:
    """One-record Produce v9 requests as fast as the broker answers, `depth` in flight on each of 8.

    Both brokers fill their core with this, so on a machine without other load the figures by CPU
    and by wall clock are the same. On a shared machine the wall clock shows how much of the core
    was left.
    """

    def prepare(place: Place) -> str:
        return loads.make_topic(place.broker, key, _CONNECTIONS)

    def run(place: Place, name: str) -> raw.Pipelined:
        records = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
        frames = [prepared.produce_v9(name, index, records) for index in range(_CONNECTIONS)]
        at = prepared.produce_v9_error_at(name)
        seconds = 4 * place.scale
        return raw.pipelined(
            place.broker.port, frames, depth, at, seconds, lambda: cpu_s(place.broker)
        )

    def measure(place: Place) -> dict[str, float]:
        done = run(place, place.state)
        return {
            "rate": done.requests / done.broker_cpu_s,
            "wall": done.requests / done.seconds,
        }

    figures = (
        Figure("rate", f"{title}, per second of broker CPU", "req/s", 0, goal),
        Figure("wall", f"{title}, per second by the clock", "req/s", 0),
    )
    return Row(key, figures, prepare, measure, drop_topic_of, **options)


def _latency_row() -> Row:
    def prepare(place: Place) -> str:
        return loads.make_topic(place.broker, "latency")

    def run(place: Place, name: str) -> list[float]:
        records = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
        return raw.latencies_us(
            place.broker.port,
            prepared.produce_v9(name, 0, records),
            prepared.produce_v9_error_at(name),
            place.scaled(8000),
        )

    def measure(place: Place) -> dict[str, float]:
        times = sorted(run(place, place.state))
        return {"p50": statistics.median(times), "p99": times[int(len(times) * 0.99)]}

    half = Goal("<= 1/2", ratio_max=0.5)
    return Row(
        "latency",
        (
            Figure("p50", "produce latency, one at a time, p50", "us", 0, half),
            Figure("p99", "produce latency, one at a time, p99", "us", 0, half),
        ),
        prepare,
        measure,
        drop_topic_of,
    )


# --- fetch ---------------------------------------------------------------------------------------


def fetch_row(
    key: str,
    title: str,
    count: int,
    size: int,
    *,
    goal: Goal | None = None,
    client: Mapping[str, Any] | None = None,
    **options: Any,
) -> Row:
    """Broker CPU of reading with librdkafka the records that it produced, per million records."""

    def prepare(place: Place) -> str:
        name = loads.make_topic(place.broker, key)
        loads.produce(place.broker, name, place.scaled(count), size, settings=client)
        return name

    def measure(place: Place) -> dict[str, float]:
        records = place.scaled(count)
        before = cpu_s(place.broker)
        loads.fetch(place.broker, place.state, records)
        return {"cpu": (cpu_s(place.broker) - before) / records * 1e6}

    return Row(
        key, (Figure("cpu", title, "s/M", 3, goal),), prepare, measure, drop_topic_of, **options
    )


def _old_fetch_row() -> Row:
    count = 200_000

    def prepare(place: Place) -> str:
        name = loads.make_topic(place.broker, "old-fetch")
        loads.produce(place.broker, name, place.scaled(count), 100)
        return name

    def measure(place: Place) -> dict[str, float]:
        records = place.scaled(count)
        before = cpu_s(place.broker)
        got = raw.read_v2(place.broker.port, place.state, records)
        used = cpu_s(place.broker) - before
        if got != records:
            raise loads.LoadError(f"{place.broker.name}: {got} of {records} came down-converted")
        return {"cpu": used / records * 1e6}

    title = "fetch by an old client (v2: converted to format 1)"
    return Row("old-fetch", (Figure("cpu", title, "s/M", 3),), prepare, measure, drop_topic_of)


def _many_partitions_fetch_row() -> Row:
    partitions, requests = 1000, 200

    def prepare(place: Place) -> str:
        return loads.make_topic(place.broker, "wide-fetch", partitions)

    def measure(place: Place) -> dict[str, float]:
        before = cpu_s(place.broker)
        raw.fetch_all(place.broker.port, prepared.fetch_v11(place.state, partitions, 0), requests)
        return {"cpu": (cpu_s(place.broker) - before) / requests * 1e3}

    title = "fetch of 1,000 empty partitions, no session"
    return Row("wide-fetch", (Figure("cpu", title, "ms/req", 3),), prepare, measure, drop_topic_of)


# --- old producers -------------------------------------------------------------------------------


def _old_produce_row(
    key: str, title: str, config: Mapping[str, str] | None = None, only: str = ""
) -> Row:
    """Produces v2 with sets of 100 format-1 messages, as a client of 0.10 sends them."""
    requests, messages = 2000, 100

    def run(place: Place, name: str) -> float:
        records = prepared.messages_v1(loads.values_of(100)[:messages], int(time.time() * 1000))
        frame = prepared.produce_v2(name, 0, records)
        before = cpu_s(place.broker)
        raw.latencies_us(
            place.broker.port, frame, prepared.produce_v2_error_at(name), place.scaled(requests)
        )
        return cpu_s(place.broker) - before

    def prepare(place: Place) -> str:
        return loads.make_topic(place.broker, key, 1, config)

    def measure(place: Place) -> dict[str, float]:
        used = run(place, place.state)
        return {"cpu": used / (place.scaled(requests) * messages) * 1e6}

    figures = (Figure("cpu", title, "s/M", 3),)
    return Row(key, figures, prepare, measure, drop_topic_of, tidelog_only=only)


LIFE = (
    Figure("start", "start to first metadata answer", "s", 3, Goal("<= 0.3 s", limit=0.3)),
    Figure("idle", "resident memory, idle", "MB", 0, Goal("<= 60 MB", limit=60)),
    Figure("loaded", "resident memory, after these loads", "MB", 0, Goal("<= 120 MB", limit=120)),
)
"""What a fresh broker tells beside the rows of TABLE."""
LIFE_KEY = "life"

TABLE: tuple[Row, ...] = (
    produce_row(
        "produce-100",
        "broker CPU, produce 3 M x 100 B",
        3_000_000,
        100,
        goal=Goal("<= 1/5", ratio_max=1 / 5),
    ),
    produce_row(
        "produce-1000",
        "broker CPU, produce 600 k x 1,000 B",
        600_000,
        1000,
        goal=Goal("<= 1/4", ratio_max=1 / 4),
    ),
    produce_row(
        "produce-lz4",
        "broker CPU, produce 3 M x 100 B lz4",
        3_000_000,
        100,
        client={"compression.type": "lz4"},
        goal=Goal("<= 1/2", ratio_max=1 / 2),
    ),
    requests_row(
        "requests",
        "one-record requests, 8 connections x 16 under way",
        16,
        Goal(">= 4 x", ratio_min=4),
    ),
    _latency_row(),
    fetch_row(
        "fetch-100",
        "broker CPU, fetch 700 k x 100 B",
        700_000,
        100,
        goal=Goal("<= 1/3", ratio_max=1 / 3),
    ),
    fetch_row(
        "fetch-1000",
        "broker CPU, fetch 140 k x 1,000 B",
        140_000,
        1000,
        goal=Goal("<= 1/5", ratio_max=1 / 5),
    ),
)

_BASE = 400_000


def _factor(key: str, title: str, *, count: int = _BASE, size: int = 100, **options: Any) -> Row:
    return produce_row(f"f-{key}", title, count, size, **options)


FACTORS: tuple[Row, ...] = (
    _factor("base", "base: 100 B, acks=1, one partition"),
    _factor("acks-all", "acks=all", client={"acks": "all"}),
    _factor("idempotent", "enable.idempotence", client={"acks": "all", "enable.idempotence": True}),
    _factor("gzip", "gzip", client={"compression.type": "gzip"}),
    _factor("snappy", "snappy", client={"compression.type": "snappy"}),
    _factor("lz4", "lz4", client={"compression.type": "lz4"}),
    _factor("zstd", "zstd", client={"compression.type": "zstd"}),
    _factor(
        "append-time", "LogAppendTime topic", topic={"message.timestamp.type": "LogAppendTime"}
    ),
    _factor(
        "topic-lz4",
        "topic compresses (compression.type=lz4)",
        topic={"compression.type": "lz4"},
        full_only=True,
    ),
    _factor("partitions", "100 partitions in turn", partitions=100),
    _factor(
        "batches-of-10", "batches of 10 records", count=100_000, client={"batch.num.messages": 10}
    ),
    _factor("tiny", "10 B records", size=10, full_only=True),
    _factor("large", "10,000 B records", count=40_000, size=10_000, full_only=True),
    _old_produce_row("f-old-client", "Produce v2, sets of 100 format-1 messages (converted up)"),
    _old_produce_row(
        "f-format-1",
        "the same onto a format-1 topic",
        {"message.format.version": "0.10.2"},
        "no format-1 topics since 3.0",
    ),
    requests_row("f-serial", "one-record requests, 8 connections x 1 under way", 1),
    fetch_row("f-fetch-base", "fetch base: 100 B, librdkafka", _BASE, 100),
    fetch_row(
        "f-fetch-lz4", "fetch lz4", _BASE, 100, client={"compression.type": "lz4"}, full_only=True
    ),
    _old_fetch_row(),
    _many_partitions_fetch_row(),
)
