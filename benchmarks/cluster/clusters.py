"""The two clusters that are compared, with one interface: several brokers on this machine.

Both run in their defaults, on all CPUs, without another process beside them. `cpu_s` and
`memory_mb` add up all processes of a cluster: for tidelog the supervisor, too. Memory is counted as
PSS, proportional set size: a page that several processes map counts once. Only processes started
here are ended, by their own id.
"""

from __future__ import annotations

import re
import select
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from brokers import KAFKA_VERSION, REPOSITORY, START_TIMEOUT_S, BrokerError, end

from tests.oracle.apache_kafka_cluster import ApacheKafkaCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHED_CLOCK = 2  # linux: clock id of a process = (~pid << 3) | CPUCLOCK_SCHED
_SEEN_PATHS = ("/metrics", "/v1/cluster", "/healthz")


class Cluster(Protocol):
    """Several brokers that run."""

    name: str
    start_s: float  # from starting the processes until all brokers are ready

    @property
    def bootstrap(self) -> str: ...
    @property
    def brokers(self) -> list[int]: ...  # their process ids
    @property
    def pids(self) -> list[int]: ...  # of all processes
    def start(self) -> None: ...
    def stop(self) -> None: ...


def cpu_s(cluster: Cluster) -> float:
    """Returns the CPU seconds of all processes so far, in user and kernel mode."""
    return sum(
        time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK) / 1e9  # exact, and over all threads
        for pid in cluster.pids
    )


def memory_mb(cluster: Cluster) -> float:
    """Returns the PSS of all processes now, in MB (10^6 bytes)."""
    total = 0
    for pid in cluster.pids:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None, text
        total += int(found[1])
    return total * 1024 / 1e6


class TidelogCluster:
    """`tidelog serve --brokers N` from a tree of this repository; one broker alone if N is 1."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        tree: Path = REPOSITORY,
    ) -> None:
        self.name = "tidelog"
        self.count = brokers
        self.start_s = 0.0
        self._directory, self._tree = directory, tree
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None
        self._ready: dict[str, str] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port` of each broker, with commas between."""
        return self._ready.get("bootstrap") or self._ready["listeners"].partition("://")[2]

    @property
    def http(self) -> list[str]:
        """`host:port` of the HTTP of each broker."""
        return self._ready["http"].split(",")

    @property
    def brokers(self) -> list[int]:
        """The process ids of the brokers."""
        return [int(pid) for pid in (self._ready.get("pids") or self._ready["pid"]).split(",")]

    @property
    def pids(self) -> list[int]:
        """The process ids of the brokers, and of the supervisor."""
        assert self._process is not None
        return list({*self.brokers, self._process.pid})

    def start(self) -> None:
        """Starts it, and waits for `ready`. Raises BrokerError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tidelog",
                    "serve",
                    *(["--brokers", str(self.count)] if self.count > 1 else []),
                    "--listeners=PLAINTEXT://127.0.0.1:0",
                    "--http=127.0.0.1:0",
                    f"--log-dirs={self._directory / 'data'}",
                    *(f"--set={name}={value}" for name, value in self._settings.items()),
                ],
                cwd=self._tree,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = self._process.stdout.readline() if readable else ""
        self.start_s = time.perf_counter() - began
        if not line.startswith("ready "):
            self.stop()
            words = (self._directory / "log").read_text()[-2000:]
            raise BrokerError(f"{self.name} did not become ready: {words}")
        self._ready = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)

    def ask_http(self) -> None:
        """Asks each broker for what a monitor and a person would ask."""
        for address in self.http:
            for path in _SEEN_PATHS:
                with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
                    answer.read()

    def stop(self) -> None:
        """Stops it cleanly; kills it if it does not end."""
        process, self._process = self._process, None
        if process is not None:
            end(process)


class KafkaCluster:
    """Three nodes of Apache Kafka, each a broker and a controller, with the heap of its scripts."""

    def __init__(self, directory: Path, brokers: int = 3) -> None:
        self.name = "kafka"
        self._kafka = ApacheKafkaCluster(KAFKA_VERSION, directory, brokers, heap="1g")

    @property
    def start_s(self) -> float:
        """From starting the processes until each broker names all of them."""
        return self._kafka.start_seconds

    @property
    def bootstrap(self) -> str:
        """`host:port` of each broker, with commas between."""
        return self._kafka.bootstrap

    @property
    def brokers(self) -> list[int]:
        """The process ids of the brokers."""
        return list(self._kafka.pids.values())

    @property
    def pids(self) -> list[int]:
        """The process ids of the brokers."""
        return self.brokers

    def start(self) -> None:
        """Starts it."""
        self._kafka.start()

    def stop(self) -> None:
        """Stops it."""
        self._kafka.stop()
