"""The measured rows of several brokers: one function per row, with its figures and goals.

A row is prepared once for a running cluster, measured again and again, and says how often it has to
run uncounted until a Java broker is warm. CPU figures are those of all processes of the cluster.
"""

from __future__ import annotations

import statistics
import time
import uuid
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import loads
import prepared
import raw
from clusters import Cluster, TidelogCluster, cpu_s
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from loads import LoadError
from rows import Figure, Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TIMEOUT_S = 120
_REPLICAS = 3
_PARTITIONS = 3  # each broker leads one


class ClusterRow(NamedTuple):
    """One row: how to prepare a cluster, how to measure it once, and how often to warm up."""

    key: str
    figures: tuple[Figure, ...]
    prepare: Callable[[Cluster], Any]
    measure: Callable[[Cluster, Any, float], dict[str, float]]  # what was prepared; the scale
    warm_up: int = 4  # of Kafka; once is enough for tidelog
    tidelog_only: bool = False


class Led(NamedTuple):
    """A topic, and the port of the leader of each partition."""

    topic: str
    ports: list[int]


def make_topic(cluster: Cluster, name: str, partitions: int, replicas: int = _REPLICAS) -> Led:
    """Creates a topic whose partitions all replicas have; returns it when they are in sync."""
    unique = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = _admin(cluster)
    for created in admin.create_topics([NewTopic(unique, partitions, replicas)]).values():
        created.result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        metadata = admin.list_topics(unique, timeout=_TIMEOUT_S)
        found = metadata.topics[unique].partitions
        ports = {broker.id: broker.port for broker in metadata.brokers.values()}
        if len(found) == partitions and all(
            len(each.isrs) == replicas and each.leader in ports for each in found.values()
        ):
            for index in (*range(min(partitions, 16)), partitions - 1):
                end_offset(cluster, unique, index)
            return Led(unique, [ports[found[index].leader] for index in range(partitions)])
        if time.monotonic() > deadline:
            raise LoadError(f"{cluster.name}: {unique} is not replicated")
        time.sleep(0.05)  # another process can only be polled


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def end_offset(cluster: Cluster, topic: str, partition: int) -> int:
    """Returns the offset after the last record that may be read.

    A leader that is new, or was just replaced, is asked again. Raises LoadError if nobody answers.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    consumer = loads.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "bench", "log_level": 0}
    )
    try:
        while True:
            try:
                at = TopicPartition(topic, partition)
                return int(consumer.get_watermark_offsets(at, _TIMEOUT_S)[1])
            except KafkaException as error:
                if time.monotonic() > deadline:
                    what = f"{cluster.name}: {topic}-{partition} has no leader"
                    raise LoadError(what) from error
                time.sleep(0.05)  # another process can only be polled
    finally:
        consumer.close()


# --- produce -------------------------------------------------------------------------------------


def produce(
    cluster: Cluster, topic: str, count: int, size: int, settings: Mapping[str, Any]
) -> None:
    """Produces records in turn over the partitions, and waits until all have them."""
    before = [end_offset(cluster, topic, index) for index in range(_PARTITIONS)]
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "log_level": 0,
            **settings,
        }
    )
    spread = cycle(range(_PARTITIONS))
    for value in islice(cycle(loads.values_of(size)), count):
        partition = next(spread)
        while True:
            try:
                producer.produce(topic, value, None, partition)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_TIMEOUT_S):
        raise LoadError(f"{cluster.name}: records left unsent")
    after = [end_offset(cluster, topic, index) for index in range(_PARTITIONS)]
    if sum(after) - sum(before) != count:
        raise LoadError(f"{cluster.name}: {sum(after) - sum(before)} of {count} records arrived")


def _produce_row(
    key: str, title: str, count: int, size: int, settings: Mapping[str, Any], **options: Any
) -> ClusterRow:
    def prepare(cluster: Cluster) -> Led:
        return make_topic(cluster, key, _PARTITIONS)

    def measure(cluster: Cluster, led: Led, scale: float) -> dict[str, float]:
        records = max(1000, int(count * scale))
        before, began = cpu_s(cluster), time.perf_counter()
        produce(cluster, led.topic, records, size, settings)
        took = time.perf_counter() - began
        return {"cpu": (cpu_s(cluster) - before) / records * 1e6, "wall": records / took / 1e3}

    figures = (
        Figure("cpu", f"CPU of all, {title}", "s/M", 3, Goal("<= 1/3", ratio_max=1 / 3)),
        Figure("wall", f"{title}, by the clock", "k/s", 0),
    )
    return ClusterRow(key, figures, prepare, measure, **options)


def _latency_row() -> ClusterRow:
    def prepare(cluster: Cluster) -> Led:
        return make_topic(cluster, "latency", 1)

    def measure(cluster: Cluster, led: Led, scale: float) -> dict[str, float]:
        requests = max(200, int(4000 * scale))
        frame, error_at = _one_record(led.topic, 0, acks=-1)
        before = cpu_s(cluster)
        times = sorted(raw.latencies_us(led.ports[0], frame, error_at, requests))
        used = cpu_s(cluster) - before
        return {
            "p50": statistics.median(times),
            "p99": times[int(len(times) * 0.99)],
            "cpu": used / requests * 1e6,
        }

    figures = (
        Figure("p50", "acks=all latency, one at a time, p50", "us", 0, Goal("<= 1", ratio_max=1)),
        Figure("p99", "acks=all latency, one at a time, p99", "us", 0),
        Figure("cpu", "CPU of all, one of these requests", "us", 0),
    )
    return ClusterRow("latency", figures, prepare, measure, warm_up=6)


def _one_record(topic: str, partition: int, acks: int) -> tuple[bytes, int]:
    """Returns a Produce frame with one record, and where the answer has its error code."""
    records = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
    return prepared.produce_v9(topic, partition, records, acks), prepared.produce_v9_error_at(topic)


# --- many partitions -----------------------------------------------------------------------------

_WIDE = 1000
_BUSY_HZ = 50


def _wide_row() -> ClusterRow:
    """1,000 partitions on three brokers: at rest, and with one that gets a record now and then."""

    def prepare(cluster: Cluster) -> Led:
        led = make_topic(cluster, "wide", _WIDE)
        time.sleep(3)  # until the creation has no after-effects
        return led

    def measure(cluster: Cluster, led: Led, scale: float) -> dict[str, float]:
        seconds = max(2.0, 6 * scale)
        before = cpu_s(cluster)
        time.sleep(seconds)
        idle = (cpu_s(cluster) - before) / seconds
        frame, error_at = _one_record(led.topic, 0, acks=-1)
        times = []
        before, began = cpu_s(cluster), time.perf_counter()
        with raw.connect(led.ports[0]) as connection:
            while (took := time.perf_counter() - began) < seconds:
                asked = time.perf_counter()
                answer = raw.exchange(connection, frame)
                times.append((time.perf_counter() - asked) * 1e6)
                if answer[error_at : error_at + 2] != b"\0\0":
                    raise raw.RawError(f"error code in an answer: {answer.hex()}")
                time.sleep(max(0.0, len(times) / _BUSY_HZ - took))
        used = (cpu_s(cluster) - before) / took
        return {
            "idle": idle * 1e3,
            "busy": (used - idle) * took / len(times) * 1e6,
            "p50": statistics.median(times),
        }

    figures = (
        Figure("idle", "CPU of all at rest, 1,000 partitions", "ms/s", 1),
        Figure("busy", "CPU of all, one acks=all request among them", "us", 0),
        Figure("p50", "its latency, p50", "us", 0),
    )
    return ClusterRow("wide", figures, prepare, measure, warm_up=1)


# --- cores ---------------------------------------------------------------------------------------

_CONNECTIONS, _DEPTH = 8, 16


def requests_per_s(cluster: TidelogCluster, scale: float) -> float:
    """Returns one-record requests per second by the clock, without replicas, over all brokers."""
    led = make_topic(cluster, "cores", _CONNECTIONS, replicas=1)
    frames = [_one_record(led.topic, index, acks=1)[0] for index in range(_CONNECTIONS)]
    error_at = prepared.produce_v9_error_at(led.topic)
    done = raw.pipelined(led.ports, frames, _DEPTH, error_at, 6 * scale, lambda: cpu_s(cluster))
    return done.requests / done.seconds


ROWS: tuple[ClusterRow, ...] = (
    _produce_row("all-100", "acks=all, 3 replicas, 100 B", 1_500_000, 100, {}, warm_up=6),
    _produce_row(
        "idempotent",
        "idempotent, 3 replicas, 100 B",
        1_500_000,
        100,
        {"enable.idempotence": True},
        warm_up=2,
    ),
    _produce_row("all-1000", "acks=all, 3 replicas, 1,000 B", 200_000, 1000, {}),
    _latency_row(),
    _wide_row(),
)

LIFE = (
    Figure("ready", "3 brokers ready, on empty directories", "s", 2, Goal("<= 1.5 s", limit=1.5)),
    Figure("idle", "CPU of all at rest, no topic", "ms/s", 1),
    Figure("memory", "memory of all (PSS), idle", "MB", 0, Goal("<= 150 MB", limit=150)),
    Figure("asked", "memory of all (PSS), HTTP used", "MB", 0, Goal("<= 150 MB", limit=150)),
    Figure("loaded", "memory of all (PSS), after these loads", "MB", 0),
)
CORES = tuple(
    Figure(f"{count}", f"one-record requests, {count} broker{'s' if count > 1 else ''}", "req/s", 0)
    for count in (1, 2, 3)
)
