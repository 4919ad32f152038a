"""Measures how long producers get no acknowledgement when the leader of their partition is killed.

    python benchmarks/cluster/silence.py --rounds 30 --kafka-rounds 10

Three brokers of tidelog, then three KRaft brokers of Apache Kafka in their defaults. A Java producer
and one of librdkafka, each in its defaults with acks=all and idempotence, send to the partitions of
a topic of their own, which has three replicas. A round kills the broker that leads most of them
with SIGKILL. The silence is the longest time between two acknowledgements of a partition that it
led, the longest of these partitions. Then the broker is started again, and the next round begins
12 s after all replicas are in sync: a client connects to a broker that was dead only after a
back-off, in librdkafka of up to 10 s (`reconnect.backoff.max.ms`), also if that broker leads again
before. Only loopback is used, and only processes started here are ended.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from confluent_kafka.admin import AdminClient, NewTopic

from tests.oracle.apache_kafka import fetch, find_java
from tests.oracle.apache_kafka_cluster import ApacheKafkaCluster
from tidelog.cluster import BrokerCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Found = TypeVar("Found")
KAFKA_VERSION = "3.9.1"
CLIENTS = ("java", "librdkafka")
PARTITIONS = 3
PAUSE_MS = 4
PATIENCE_S = 120.0
_ENOUGH = 100  # acknowledgements after a kill: more than can have been under way
_QUIET_S = 12.0  # before a kill: the longest that librdkafka waits to connect again, and more
_NS = 1e9


class Cluster(Protocol):
    """What a round needs of either cluster."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self, broker: int, /) -> None: ...
    def restart(self, broker: int, /) -> None: ...


class Client:
    """A producer in a process of its own, and when each of its records was acknowledged."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.errors: list[str] = []
        self._acknowledged_ns: list[list[int]] = [[] for _ in range(PARTITIONS)]
        arguments = [bootstrap, name, str(PARTITIONS), str(PAUSE_MS)]
        self._process = subprocess.Popen(
            [*_program(name), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, _, ns = line.strip().partition(" ")
            if partition == "!":
                self.errors.append(ns)
            else:
                self._acknowledged_ns[int(partition)].append(int(ns))

    def since(self, partition: int, ns: int) -> int:
        """Returns how many records of a partition were acknowledged since a time."""
        times = self._acknowledged_ns[partition]
        return sum(1 for each in reversed(times[-4 * _ENOUGH :]) if each > ns)

    def silence_s(self, partition: int, killed_ns: int) -> float:
        """Returns the longest time between two acknowledgements of which the later is after a kill."""
        times = self._acknowledged_ns[partition]
        gaps = (b - a for a, b in itertools.pairwise(times) if b > killed_ns)
        return max(gaps) / _NS

    def forget(self) -> None:
        """Forgets the acknowledgements so far."""
        for times in self._acknowledged_ns:
            del times[:-1]

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def _program(name: str) -> list[str]:
    if name == "librdkafka":
        return [sys.executable, str(HERE / "librdkafka_producer.py")]
    java = find_java()
    assert java is not None
    jars = f"{fetch(KAFKA_VERSION)}/*"
    return [java, "-Xmx128m", "-cp", jars, str(HERE / "JavaProducer.java")]


class Bench:
    """Rounds against one cluster."""

    def __init__(self, cluster: Cluster, clients: Sequence[str]) -> None:
        self.cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for name in clients:
            topic = NewTopic(name, PARTITIONS, replication_factor=3)
            self._admin.create_topics([topic])[name].result(PATIENCE_S)
        self._names = clients
        self._clients = [Client(name, cluster.bootstrap) for name in clients]

    def stop(self) -> None:
        """Ends the clients."""
        for client in self._clients:
            client.stop()

    def round(self) -> dict[str, float]:
        """Kills a leader once; returns the silence in seconds, by client."""
        leaders = _until(self._leaders_in_sync, "all replicas to be in sync")
        every = [leader for led in leaders.values() for leader in led]
        victim = max(sorted(set(every)), key=every.count)
        led = {
            name: [i for i, at in enumerate(led) if at == victim] for name, led in leaders.items()
        }
        began_ns = time.monotonic_ns()
        _until(lambda: self._all_since(began_ns), "the producers to be acknowledged")
        time.sleep(_QUIET_S)
        for client in self._clients:
            client.forget()
        killed_ns = time.monotonic_ns()
        self.cluster.kill(victim)
        _until(lambda: self._all_since(killed_ns), "acknowledgements after the kill")
        silences = {
            client.name: max(client.silence_s(each, killed_ns) for each in led[client.name])
            for client in self._clients
            if led[client.name]
        }
        self.cluster.restart(victim)
        return silences

    def errors(self) -> dict[str, int]:
        """Returns how many records each client has given up."""
        return {client.name: len(client.errors) for client in self._clients}

    def _all_since(self, ns: int) -> bool:
        return all(
            client.since(partition, ns) >= _ENOUGH
            for client in self._clients
            for partition in range(PARTITIONS)
        )

    def _leaders_in_sync(self) -> dict[str, list[int]] | None:
        topics = self._admin.list_topics(timeout=PATIENCE_S).topics
        found = {
            name: list(topics[name].partitions.values()) for name in self._names if name in topics
        }
        every = [each for partitions in found.values() for each in partitions]
        if len(every) < PARTITIONS * len(self._names) or any(len(each.isrs) < 3 for each in every):
            return None
        return {
            name: [each.leader for each in sorted(partitions, key=lambda each: each.id)]
            for name, partitions in found.items()
        }


def _until(condition: Callable[[], Found | None], what: str) -> Found:
    """Waits until a condition holds, and returns what it gave. Raises TimeoutError."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(0.02)  # foreign processes can only be polled
    return found


@contextlib.contextmanager
def _cluster(name: str, directory: Path) -> Iterator[Cluster]:
    if name == "tidelog":
        with BrokerCluster(directory, faults=False) as ours:
            yield ours
    else:
        with ApacheKafkaCluster(KAFKA_VERSION, directory) as kafka:
            yield kafka


def _percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value that is not below `percent` of all."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _report(broker: str, silences: dict[str, list[float]]) -> Iterator[str]:
    for client, values in silences.items():
        p50, p99 = statistics.median(values), _percentile(values, 99)
        yield (
            f"| {broker} | {client} | {len(values)} | {p50 * 1000:,.0f} | {p99 * 1000:,.0f} |"
            f" {max(values) * 1000:,.0f} |"
        )


def main() -> None:
    """Runs the rounds, and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="against tidelog")
    parser.add_argument("--kafka-rounds", type=int, default=10, help="against Apache Kafka")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    options = parser.parse_args()
    lines: list[str] = []
    for broker, rounds in (("tidelog", options.rounds), ("kafka", options.kafka_rounds)):
        if not rounds:
            continue
        silences: dict[str, list[float]] = {}
        with (
            tempfile.TemporaryDirectory(prefix="silence-") as directory,
            _cluster(broker, Path(directory)) as cluster,
        ):
            bench = Bench(cluster, options.clients)
            try:
                for number in range(rounds):
                    found = bench.round()
                    for client, value in found.items():
                        silences.setdefault(client, []).append(value)
                    words = ", ".join(f"{k} {v * 1000:,.0f} ms" for k, v in found.items())
                    load = os.getloadavg()[0]
                    print(f"{broker} {number + 1}: {words} (load {load:.1f})", flush=True)
                print(f"{broker}: records given up: {bench.errors()}")
            finally:
                bench.stop()
        lines += _report(broker, silences)
    print("\n| brokers | client | rounds | p50, ms | p99, ms | longest, ms |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
