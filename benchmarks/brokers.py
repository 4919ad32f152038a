"""The two brokers that are compared, with one interface.

`Tidelog` and `Kafka` start a broker process on a free loopback port, pinned to one CPU, and return
what that process has used: CPU seconds (all its threads, exact to the nanosecond) and resident
memory. `pause` and `resume` stop and continue the process, so that the broker that is not being
measured leaves the machine to the other. Only processes started here are ended, by their own id.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.oracle import apache_kafka
from tests.oracle.apache_kafka import ApacheKafka, answers_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

START_TIMEOUT_S = 300  # Apache Kafka takes minutes to recover ten thousand partitions
STOP_TIMEOUT_S = 120
apache_kafka.START_TIMEOUT_S = START_TIMEOUT_S
KAFKA_VERSION = "3.9.1"
_SCHED_CLOCK = 2  # linux: clock id of a process = (~pid << 3) | CPUCLOCK_SCHED


class BrokerError(RuntimeError):
    """A broker did not start, or died."""


class Broker(Protocol):
    """The interface of a broker that the rows of the table use."""

    name: str
    port: int
    pid: int
    start_s: float  # from starting the process to its first answer to Metadata

    @property
    def data(self) -> Path: ...  # where the partitions' directories are

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


def bootstrap(broker: Broker) -> str:
    """Returns `host:port` for clients."""
    return f"127.0.0.1:{broker.port}"


def cpu_s(broker: Broker) -> float:
    """Returns the CPU seconds of the process so far, in user and kernel mode, over all threads."""
    return time.clock_gettime_ns((~broker.pid << 3) | _SCHED_CLOCK) / 1e9


def resident_mb(broker: Broker) -> float:
    """Returns the resident memory now, in MB (10^6 bytes)."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise BrokerError(f"{broker.name} has no memory: did it die?")


def descriptors(broker: Broker) -> int:
    """Returns the number of open descriptors of the process."""
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def maps(broker: Broker) -> int:
    """Returns the number of memory maps of the process."""
    return len(Path(f"/proc/{broker.pid}/maps").read_text().splitlines())


def pause(broker: Broker) -> None:
    """Stops the process with SIGSTOP."""
    os.kill(broker.pid, signal.SIGSTOP)


def resume(broker: Broker) -> None:
    """Continues a paused process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(broker.pid, signal.SIGCONT)


class Tidelog:
    """`tidelog serve` from this working tree."""

    def __init__(
        self,
        directory: Path,
        cpu: int,
        settings: Mapping[str, str] | None = None,
        most_descriptors: int = 0,
    ) -> None:
        """`most_descriptors` limits open descriptors; 0 keeps the limit of this process."""
        self.name = "tidelog"
        self.directory = directory
        self.most_descriptors = most_descriptors
        self.cpu = cpu
        self.settings = dict(settings or {})
        self.port = 0
        self.http = ""  # host:port of its metrics
        self.start_s = 0.0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The id of the process. Raises BrokerError if there is none."""
        if self._process is None or self._process.poll() is not None:
            raise BrokerError(f"{self.name} is not running (its log: {self.directory / 'log'})")
        return self._process.pid

    def start(self) -> None:
        """Starts it, and waits for `ready` and an answer to Metadata. Raises BrokerError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "tidelog",
            "serve",
            "--listeners=PLAINTEXT://127.0.0.1:0",
            f"--log-dirs={self.directory / 'data'}",
            "--http=127.0.0.1:0",
            *(f"--set={name}={value}" for name, value in self.settings.items()),
        ]
        if self.most_descriptors:
            command = ["prlimit", f"--nofile={self.most_descriptors}", *command]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.cpu})  # the child inherits it
        began = time.perf_counter()
        try:
            with (self.directory / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, text=True
                )
        finally:
            os.sched_setaffinity(0, before)
        self.port = self._port_when_ready(began + START_TIMEOUT_S)
        if not answers_metadata(self.port):
            self.stop()
            raise BrokerError(f"{self.name} said ready and does not answer Metadata")
        self.start_s = time.perf_counter() - began

    def _port_when_ready(self, deadline: float) -> int:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], deadline - time.perf_counter())
        line = process.stdout.readline() if readable else ""
        for word in line.split():
            if word.startswith("http="):
                self.http = word.removeprefix("http=")
        for word in line.split():
            if word.startswith("listeners="):
                return int(word.rpartition(":")[2])
        self.stop()
        words = (self.directory / "log").read_text()[-2000:]
        raise BrokerError(f"{self.name} did not become ready: {words}")

    @property
    def data(self) -> Path:
        """The directory that holds the partitions' directories."""
        return self.directory / "data"

    def kill(self) -> None:
        """Kills it, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
            if process.stdout is not None:
                process.stdout.close()

    def stop(self) -> None:
        """Stops it cleanly; kills it if it does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Stops a process with SIGTERM; kills it if it does not end."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()


class Kafka:
    """Apache Kafka, one KRaft node, with its defaults except those that a paused process needs."""

    def __init__(
        self, directory: Path, cpu: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.name = "kafka"
        self._kafka = ApacheKafka(
            KAFKA_VERSION,
            directory,
            {
                "broker.session.timeout.ms": 3_600_000,
                "log.segment.delete.delay.ms": 100,
                **(settings or {}),
            },
            cpu=cpu,
            heap="1g",  # the default of kafka-server-start.sh
        )
        self.start_s = 0.0

    @property
    def port(self) -> int:
        """The port of its only listener."""
        return self._kafka.port

    @property
    def pid(self) -> int:
        """Id of the Java process."""
        return self._kafka.pid

    @property
    def data(self) -> Path:
        """The directory that holds the partitions' directories."""
        return self._kafka.log_dir

    def kill(self) -> None:
        """Kills it, as a crash would."""
        self._kafka.kill()

    def start(self) -> None:
        """Starts it on its directory, which is formatted the first time (that is not timed)."""
        self._kafka.start()
        self.start_s = self._kafka.start_seconds

    def stop(self) -> None:
        """Stops it cleanly; kills it if it does not end."""
        with contextlib.suppress(Exception):
            resume(self)
            pid = self.pid
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while time.monotonic() < deadline and not _has_ended(pid):
                time.sleep(0.05)  # not our child, so it can only be polled
        self._kafka.stop()


def _has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def remove(directory: Path) -> None:
    """Removes the files that a broker wrote."""
    shutil.rmtree(directory, ignore_errors=True)
