"""Measures a cluster of three brokers with many partitions: creation, fail-over, start, stop.

    python benchmarks/cluster/many_partitions.py --partitions 10000 --store etcd

Topics of 1,000 partitions with three replicas are created. Then broker 1 is killed with SIGKILL: it
is measured how long it takes until a surviving broker names a living leader for every partition. Then
it is started again: how long until clients may connect, and until all replicas are in sync. At last all
are stopped at once (SIGTERM): how long each takes, and how much CPU. Each step says how many lines the
brokers have logged, and how many transactions of the metadata store there were, by its revisions (the end
of a session is one, too). Over etcd, its size and the requests it has served are printed. To look at ten
thousand partitions keeps a broker busy for a while, so that is done a few times in each second. Each line
ends with the load average. Only loopback is used, and only processes started here are ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.broker.metadata.etcd.server import Etcd
from tidelog.cluster import BrokerCluster

if TYPE_CHECKING:
    from collections.abc import Callable

BROKERS = 3
VICTIM = 1
TOPIC_PARTITIONS = 1_000
PATIENCE_S = 600.0
_POLL_S = 0.2
_LOOK_S = 0.02
_MIB = 1 << 20


class Bench:
    """A cluster, and what its brokers say."""

    def __init__(self, cluster: BrokerCluster, etcd: Etcd | None, partitions: int) -> None:
        self.cluster, self.etcd, self.partitions = cluster, etcd, partitions
        survivors = [each for number, each in enumerate(cluster, 1) if number != VICTIM]
        self._admin = AdminClient({"bootstrap.servers": survivors[0].bootstrap})
        self._http = survivors[0].http
        self._lines = 0

    def create(self) -> None:
        """Creates the topics, one request each."""
        for first in range(0, self.partitions, TOPIC_PARTITIONS):
            count = min(TOPIC_PARTITIONS, self.partitions - first)
            name = f"many-{first // TOPIC_PARTITIONS}"
            topic = NewTopic(name, count, replication_factor=BROKERS)
            self._admin.create_topics([topic], operation_timeout=60, request_timeout=120)[
                name
            ].result(PATIENCE_S)

    def led(self) -> bool:
        """Returns whether a surviving broker names a leader that lives for every partition."""
        leaders = [partition.leader for partition in self._partitions()]
        gone = set() if self.cluster[VICTIM].is_running else {VICTIM}
        return len(leaders) >= self.partitions and not gone & set(leaders) and -1 not in leaders

    def in_sync(self) -> bool:
        """Returns whether every partition has all its replicas in sync."""
        isrs = [len(partition.isrs) for partition in self._partitions()]
        return len(isrs) >= self.partitions and min(isrs) == BROKERS

    def _partitions(self) -> list[PartitionMetadata]:
        topics = self._admin.list_topics(timeout=30).topics.values()
        return [partition for topic in topics for partition in topic.partitions.values()]

    def revision(self) -> int:
        """Returns the newest revision of the metadata that etcd has, or a surviving broker."""
        if self.etcd is not None:
            return int(self.etcd.control("maintenance/status", {})["header"]["revision"])
        with urllib.request.urlopen(f"http://{self._http}/v1/cluster", timeout=60) as answer:
            return int(json.load(answer)["revision"])

    def say(self, what: str, began_s: float, revision: int) -> None:
        """Prints how long something took, how many transactions, and lines of the logs."""
        took_s = time.monotonic() - began_s
        written = self.revision() - revision
        rest = f"{self.lines()} lines logged, load {os.getloadavg()[0]:.0f}"
        print(f"{what}: {took_s:.2f} s, {written} transactions, {rest}", flush=True)

    def lines(self) -> int:
        """Returns how many lines the brokers have logged since the last call."""
        before, self._lines = self._lines, sum(each.log().count("\n") for each in self.cluster)
        return self._lines - before

    def stop(self) -> None:
        """Stops all brokers at once, and prints how long each took, and its CPU time."""
        pids = {broker: self.cluster[broker].pid for broker in range(1, BROKERS + 1)}
        before = {broker: cpu_s(pid) for broker, pid in pids.items()}
        used, began_s = dict(before), time.monotonic()
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        while pids:
            for broker, pid in list(pids.items()):
                if self.cluster[broker].is_running:
                    used[broker] = cpu_s(pid) or used[broker]
                    continue
                del pids[broker]
                took_s, cpu = time.monotonic() - began_s, used[broker] - before[broker]
                print(f"broker {broker} stopped: {took_s:.2f} s, {cpu:.2f} s of CPU", flush=True)
            time.sleep(_LOOK_S)
        print(f"{self.lines()} lines logged, load {os.getloadavg()[0]:.0f}")


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process so far; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until something is so. Raises TimeoutError."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(what)
        time.sleep(_POLL_S)


def sizes(etcd: Etcd) -> str:
    """Returns the size of etcd's data and its requests so far, as text."""
    status: dict[str, Any] = etcd.control("maintenance/status", {})
    with urllib.request.urlopen(f"http://{etcd.endpoints[0]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    requests = sum(
        float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("grpc_server_handled")
    )
    return (
        f"etcd: {int(status['dbSize']) / _MIB:.1f} MiB ({int(status['dbSizeInUse']) / _MIB:.1f} in use), "
        f"{requests:.0f} requests to its first member"
    )


def measure(cluster: BrokerCluster, etcd: Etcd | None, partitions: int) -> None:
    """Runs all steps, and prints each."""
    bench = Bench(cluster, etcd, partitions)
    revision, began_s = bench.revision(), time.monotonic()
    bench.create()
    until(bench.led, "all partitions to be led")
    bench.say(f"{partitions} partitions created", began_s, revision)
    until(bench.in_sync, "all replicas to be in sync")
    bench.say("and in sync", began_s, revision)

    revision, began_s = bench.revision(), time.monotonic()
    cluster.kill(VICTIM)
    until(bench.led, "all partitions to be led again")
    bench.say("led again after a kill", began_s, revision)

    revision, began_s = bench.revision(), time.monotonic()
    cluster.restart(VICTIM)
    bench.say("the killed broker ready", began_s, revision)
    until(bench.in_sync, "all replicas to be in sync again")
    bench.say("and in sync", began_s, revision)
    if etcd is not None:
        print(sizes(etcd))
    bench.stop()


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--store", choices=("etcd", "sqlite"), default="etcd")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings: dict[str, object] = {"broker.session.timeout.ms": 3_000}
        etcd = None
        if given.store == "etcd":
            etcd = Etcd()
            stack.callback(etcd.close)
            settings["metadata.store"] = etcd.start().url()
        cluster = stack.enter_context(
            BrokerCluster(directory / "data", BROKERS, settings, ready_within_s=PATIENCE_S)
        )
        measure(cluster, etcd, given.partitions)


if __name__ == "__main__":
    main()
