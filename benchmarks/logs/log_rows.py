"""Rows about the logs themselves: lookups by time, many partitions, recovery, flushing.

Each row starts a broker on an empty directory and removes it again, so the two brokers never run at
the same time. Logs for lookups or recovery are made once, by kernels, and both brokers serve the
same bytes (forge.py). Every result is checked, and lookups are compared between the brokers.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import forge
import loads
import prepared
import raw
from brokers import Broker, Kafka, Tidelog, cpu_s, descriptors, resident_mb
from rows import Figure

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

_DAY_MS = 86_400_000
_MAX_TIMESTAMP = -3
_DISORDER_MS = 5000
_NEVER = "-1"  # no retention
_KAFKA = {"broker.session.timeout.ms": "9000"}  # the default: a killed broker must register again


class Scale(NamedTuple):
    """The size of the loads."""

    lookup_records: int
    partitions: int
    kafka_partitions: int  # fewer if the machine's limits on descriptors and maps require it
    recovery_bytes: int
    flush_s: float
    idle_s: float


FULL = Scale(100_000_000, 10_000, 10_000, 2 << 30, 10, 60)
SMALL = Scale(10_000_000, 300, 300, 256 << 20, 2, 0)


class Site(NamedTuple):
    """The environment of a row: the broker, its CPU, its directory, and the forged log."""

    name: str
    cpu: int
    directory: Path
    forged: Path | None
    scale: Scale

    def broker(self, most_descriptors: int = 0) -> Broker:
        """Returns a broker on the directory, not started."""
        if self.name == "tidelog":
            return Tidelog(self.directory, self.cpu, most_descriptors=most_descriptors)
        return Kafka(self.directory, self.cpu, _KAFKA)


class LogRow(NamedTuple):
    """One row: what to forge once, and how to measure a broker."""

    key: str
    figures: tuple[Figure, ...]
    forge: Callable[[Path, Scale], Path] | None
    measure: Callable[[Site], dict[str, float]]


@contextlib.contextmanager
def _ended(broker: Broker) -> Iterator[Broker]:
    try:
        yield broker
    finally:
        broker.stop()


def _install(site: Site, broker: Broker, end_offset: int) -> str:
    """Gives a stopped broker the forged log; returns the name of its topic."""
    assert site.forged is not None
    broker.start()
    topic = loads.make_topic(broker, "forged", 1, {"retention.ms": _NEVER})
    broker.stop()
    ours = site.name == "tidelog"
    forge.install(site.forged, broker.data, topic, end_offset, ours=ours)
    return topic


def _wait_for(broker: Broker, topic: str, end_offset: int) -> None:
    deadline = time.monotonic() + 60
    while loads.end_offset(broker, topic) != end_offset:
        if time.monotonic() > deadline:
            raise loads.LoadError(f"{broker.name} serves {topic} only in part")
        time.sleep(0.05)  # another process can only be polled


# --- lookups by time -----------------------------------------------------------------------------

_FIRST_MS = 1_700_000_000_000
_LOOKUPS = {"first": 100, "disk": 200, "warm": 5000, "largest": 300, "beyond": 300}
_ANSWERS: dict[tuple[int, int], tuple[int, int]] = {}  # (records, time) -> the other's result


def _forge_lookups(directory: Path, scale: Scale) -> Path:
    shape = forge.Shape(scale.lookup_records, 1000, 8, 100 << 20, _DISORDER_MS, _FIRST_MS)
    return forge.forge(directory, shape)


class _Lookups:
    """Timed lookups over one connection; a difference from the other broker is an error."""

    def __init__(self, connection: socket.socket, topic: str, records: int) -> None:
        self._connection = connection
        self._topic = topic
        self._records = records

    def time(self, timestamp: int) -> float:
        """Looks up a time; returns microseconds. Raises RawError."""
        request = prepared.list_offsets_v7(self._topic, 0, timestamp)
        began = time.perf_counter_ns()
        answer = raw.look_up(self._connection, request)
        took = (time.perf_counter_ns() - began) / 1000
        before = _ANSWERS.setdefault((self._records, timestamp), answer)
        if answer != before:
            raise raw.RawError(f"{timestamp}: {answer}, and the other broker said {before}")
        return took


def _p(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _measure_lookups(site: Site) -> dict[str, float]:
    count = site.scale.lookup_records
    chance = random.Random(count)  # the same times for both

    def somewhen(number: int) -> list[int]:
        return [_FIRST_MS + chance.randrange(count) for _ in range(number)]

    with _ended(site.broker()) as broker:
        topic = _install(site, broker, count)
        forge.drop_page_cache(broker.data)
        broker.start()
        _wait_for(broker, topic, count)
        with raw.connect(broker.port) as connection:
            look = _Lookups(connection, topic, count)
            first = [look.time(one) for one in somewhen(_LOOKUPS["first"])]
            for one in somewhen(2000):
                look.time(one)  # warms up Java's compiler and every index
            disk = []
            for one in somewhen(_LOOKUPS["disk"]):
                forge.drop_page_cache(broker.data)
                disk.append(look.time(one))
            for one in somewhen(500):
                look.time(one)
            used = cpu_s(broker)
            warm = [look.time(one) for one in somewhen(_LOOKUPS["warm"])]
            used = cpu_s(broker) - used
            largest = [look.time(_MAX_TIMESTAMP) for _ in range(_LOOKUPS["largest"])]
            beyond = [look.time(_FIRST_MS + count + _DAY_MS) for _ in range(_LOOKUPS["beyond"])]
            if _ANSWERS[count, _FIRST_MS + count + _DAY_MS] != (-1, -1):
                raise raw.RawError("something was found after the last record")
        return {
            "first50": _p(first, 0.5),
            "first99": _p(first, 0.99),
            "disk50": _p(disk, 0.5),
            "disk99": _p(disk, 0.99),
            "warm50": _p(warm, 0.5),
            "warm99": _p(warm, 0.99),
            "cpu": used / len(warm) * 1e6,
            "largest50": _p(largest, 0.5),
            "beyond50": _p(beyond, 0.5),
            "rss": resident_mb(broker),
        }


# --- many partitions -----------------------------------------------------------------------------

_TOPICS = 10
_PLAIN_LIMIT = 1024
_NOT_LEADER = b"\0\6"


def _touch(broker: Broker, topics: Sequence[str], partitions: int) -> None:
    """Produces one record into every partition and fetches it again."""
    records = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
    with raw.connect(broker.port) as connection:
        for topic in topics:
            error_at = prepared.produce_v9_error_at(topic)
            for index in range(partitions):
                answer = raw.exchange(connection, prepared.produce_v9(topic, index, records))
                while answer[error_at : error_at + 2] == _NOT_LEADER:
                    time.sleep(0.02)  # Apache Kafka is still opening it; it can only be polled
                    answer = raw.exchange(connection, prepared.produce_v9(topic, index, records))
                if answer[error_at : error_at + 2] != b"\0\0":
                    raise raw.RawError(f"error code in an answer: {answer.hex()}")
    for topic in topics:
        raw.fetch_all(broker.port, prepared.fetch_v11(topic, partitions, 0), 1)


def _serves(broker: Broker, topic: str, index: int) -> None:
    """Waits until a partition is served: Apache Kafka answers Metadata before its logs are open."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with contextlib.suppress(raw.RawError), raw.connect(broker.port) as connection:
            raw.look_up(connection, prepared.list_offsets_v7(topic, index, -1))
            return
        time.sleep(0.02)  # another process can only be polled
    raise loads.LoadError(f"{broker.name}: {topic}-{index} does not answer")


def _measure_partitions(site: Site) -> dict[str, float]:
    scale = site.scale
    total = scale.partitions if site.name == "tidelog" else scale.kafka_partitions
    each = total // _TOPICS
    with _ended(site.broker(_PLAIN_LIMIT)) as broker:
        broker.start()
        began = time.perf_counter()
        topics = [loads.make_topic(broker, f"many-{number}", each) for number in range(_TOPICS)]
        for topic in topics:
            _serves(broker, topic, each - 1)
        found = {"create": (time.perf_counter() - began) / total * 1e3}
        broker.stop()
        found |= _started(broker, topics, each, "clean")
        found |= {"idle_rss": resident_mb(broker), "idle_fds": descriptors(broker)}
        if scale.idle_s:
            used = cpu_s(broker)
            time.sleep(scale.idle_s)  # the measured state is idle
            found["idle_cpu"] = (cpu_s(broker) - used) / scale.idle_s * 60
        began = time.perf_counter()
        _touch(broker, topics, each)
        found["touch"] = (time.perf_counter() - began) / total * 1e3
        found |= {"touched_rss": resident_mb(broker), "touched_fds": descriptors(broker)}
        broker.kill()
        found |= _started(broker, topics, each, "killed")
        found |= {"killed_rss": resident_mb(broker), "killed_fds": descriptors(broker)}
        began = time.perf_counter()
        broker.stop()
        found["stop"] = time.perf_counter() - began
    return found


def _started(broker: Broker, topics: Sequence[str], each: int, how: str) -> dict[str, float]:
    broker.start()
    began = time.perf_counter()
    for topic in topics:
        _serves(broker, topic, each - 1)
    return {how: broker.start_s, f"{how}_served": broker.start_s + time.perf_counter() - began}


# --- recovery ------------------------------------------------------------------------------------


def _forge_recovery(directory: Path, scale: Scale) -> Path:
    per_batch, value_size = 150, 100
    records = scale.recovery_bytes // (per_batch * (value_size + 9)) * per_batch
    shape = forge.Shape(records, per_batch, value_size, 1 << 30, 0, _FIRST_MS)
    return forge.forge(directory, shape)


def _measure_recovery(site: Site) -> dict[str, float]:
    assert site.forged is not None
    gigabytes = forge.size_of(site.forged) / 1e9
    end_offset = int(next(site.forged.glob("*.snapshot")).stem)
    with _ended(site.broker()) as broker:
        topic = _install(site, broker, end_offset)
        broker.start()
        _wait_for(broker, topic, end_offset)
        clean_s = broker.start_s
        broker.stop()
        forge.forget_checkpoint(broker.data)
        for path in broker.data.rglob("*.log"):
            path.read_bytes()  # both from the page cache
        broker.start()
        began = time.perf_counter()
        _wait_for(broker, topic, end_offset)
        took = broker.start_s + time.perf_counter() - began
    return {"recovery": (took - clean_s) / gigabytes}


# --- flushing ------------------------------------------------------------------------------------


def _device_flushes() -> int:
    """Returns the kernel's count of flush commands that the machine's disks have completed."""
    lines = Path("/proc/diskstats").read_text().splitlines()
    return sum(int(fields[18]) for fields in map(str.split, lines) if len(fields) > 18)


def _measure_flush(site: Site) -> dict[str, float]:
    found: dict[str, float] = {}
    with _ended(site.broker()) as broker:
        broker.start()
        for producers in (1, 32):
            topic = loads.make_topic(broker, "flush", 1, {"flush.messages": "1"})
            records = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
            frames = [prepared.produce_v9(topic, 0, records)] * producers
            error_at = prepared.produce_v9_error_at(topic)
            seconds = site.scale.flush_s
            raw.pipelined(broker.port, frames, 1, error_at, seconds / 2, lambda: 0.0)  # uncounted
            flushes = _device_flushes()
            done = raw.pipelined(broker.port, frames, 1, error_at, seconds, lambda: cpu_s(broker))
            flushes = _device_flushes() - flushes
            found[f"acks{producers}"] = done.requests / done.seconds
            found[f"flushes{producers}"] = flushes / (seconds * 1.1)
            found[f"cpu{producers}"] = done.broker_cpu_s / done.requests * 1e6
    return found


ROWS: tuple[LogRow, ...] = (
    LogRow(
        "lookup",
        (
            Figure("first50", "lookup, first after a start, nothing cached, p50", "us", 0),
            Figure("first99", "lookup, first after a start, nothing cached, p99", "us", 0),
            Figure("disk50", "lookup, log and indexes not cached, p50", "us", 0),
            Figure("disk99", "lookup, log and indexes not cached, p99", "us", 0),
            Figure("warm50", "lookup, cached, p50", "us", 0),
            Figure("warm99", "lookup, cached, p99", "us", 0),
            Figure("cpu", "broker CPU of a cached lookup", "us", 0),
            Figure("largest50", "the record with the largest time, p50", "us", 0),
            Figure("beyond50", "a time after the last record, p50", "us", 0),
            Figure("rss", "resident memory after these", "MB", 0),
        ),
        _forge_lookups,
        _measure_lookups,
    ),
    LogRow(
        "partitions",
        (
            Figure("create", "creating a partition", "ms", 2),
            Figure("clean", "start after a clean stop: Metadata", "s", 2),
            Figure(
                "clean_served", "start after a clean stop: a partition of each topic served", "s", 2
            ),
            Figure("idle_rss", "resident memory then", "MB", 0),
            Figure("idle_fds", "descriptors then", "", 0),
            Figure("idle_cpu", "CPU of a minute without work", "s/min", 2),
            Figure("touch", "one produce and one fetch in each, per partition", "ms", 2),
            Figure("touched_rss", "resident memory then", "MB", 0),
            Figure("touched_fds", "descriptors then", "", 0),
            Figure("killed", "start after kill -9: Metadata", "s", 2),
            Figure(
                "killed_served", "start after kill -9: a partition of each topic served", "s", 2
            ),
            Figure("killed_rss", "resident memory then", "MB", 0),
            Figure("killed_fds", "descriptors then", "", 0),
            Figure("stop", "clean stop", "s", 2),
        ),
        None,
        _measure_partitions,
    ),
    LogRow(
        "recovery",
        (Figure("recovery", "recovery without a checkpoint, per GB (10^9)", "s/GB", 2),),
        _forge_recovery,
        _measure_recovery,
    ),
    LogRow(
        "flush",
        tuple(
            figure
            for producers in (1, 32)
            for figure in (
                Figure(
                    f"acks{producers}", f"flush.messages=1, producers: {producers}", "acks/s", 0
                ),
                Figure(f"flushes{producers}", "the disk's flushes meanwhile", "1/s", 0),
                Figure(f"cpu{producers}", "broker CPU of one", "us", 0),
            )
        ),
        None,
        _measure_flush,
    ),
)
