"""Kafka Connect, MirrorMaker 2 and Streams: programs that go on until they are stopped.

    worker = Program("4.1.1", "worker", STANDALONE, directory, properties(directory, "worker", {...}))

Each is a Java process of its own, as its script in Kafka's bin/ starts it; what it logs is in `<name>.out`.
A worker that is stopped commits its offsets for as long as `PATIENT` grants, and then ends in order. `Lines`
are what Connect brings from a file to a topic and to another file.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.broker.asking import new_name
from tests.oracle import apache_kafka
from tests.tools.java_tools import java_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CONNECT = "org.apache.kafka.connect."
STANDALONE = _CONNECT + "cli.ConnectStandalone"
DISTRIBUTED = _CONNECT + "cli.ConnectDistributed"
MIRROR_MAKER = _CONNECT + "mirror.MirrorMaker"
STRINGS = _CONNECT + "storage.StringConverter"
GROUP = "connect-cluster"  # of distributed workers
ENDED_BY_SIGTERM = 143  # as the JVM says it, after its shutdown hooks
REST_TIMEOUT_S = 30
CONFLICT = 409
# Of the 5 s Connect grants by itself a busy machine needs more; who did not commit in time begins again.
PATIENT = {"task.shutdown.graceful.timeout.ms": 60_000, "offset.flush.timeout.ms": 60_000}
_LISTENING = re.compile(rb"advertising URL http://127\.0\.0\.1:(\d+)/")

# 3.9 logs with reload4j, 4.x with log4j 2.
_LOGGING = {
    "log4j": (
        "-Dlog4j.configuration",
        """\
log4j.rootLogger=WARN, out
log4j.logger.org.apache.kafka.connect=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
""",
    ),
    "log4j2": (
        "-Dlog4j2.configurationFile",
        """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.connect.name=org.apache.kafka.connect
logger.connect.level=INFO
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
""",
    ),
}


class Program(apache_kafka.Process):
    """One Java program with Connect's jars."""

    def __init__(
        self, version: str, name: str, main: str, directory: Path, *arguments: object
    ) -> None:
        options = []
        for kind, (option, text) in _LOGGING.items():
            path = directory / f"{kind}.properties"
            path.write_text(text)
            options.append(f"{option}={path.as_uri()}")
        jars = apache_kafka.fetch(f"connect-{version}")
        words = [str(argument) for argument in arguments]
        before = directory / f"{name}.out"  # of one that ran under this name
        self._said = before.stat().st_size if before.exists() else 0
        super().__init__(name, java_command(jars, main, *words, options=options), directory)

    def rest_port(self) -> int | None:
        """Where this worker listens, if it does: listeners of port 0 get one that nobody else has."""
        found = _LISTENING.search(self.out.read_bytes(), self._said)
        return int(found[1]) if found else None

    def stop(self, timeout_s: float = 150) -> None:
        """Stop it as Ctrl-C does; raises AssertionError if it did not end in order."""
        assert self.alive(), f"it ended by itself:\n{self.tail(60)}"
        super().stop(timeout_s)
        assert self.process.returncode == ENDED_BY_SIGTERM, self.tail(60)


def properties(directory: Path, name: str, values: Mapping[str, object]) -> Path:
    """A properties file with these values."""
    path = directory / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def rest(port: int, method: str, path: str, body: object = None) -> Any:
    """Ask a worker; what it answers, or None if it cannot.

    It is not up yet, or busy, or it does not know what is asked for, or a rebalance is expected (status 409).
    Raises AssertionError where it refuses a change for any other reason.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data,
        {"Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            if method != "GET" and error.code != CONFLICT:
                raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error
        return None
    except (OSError, http.client.HTTPException):
        return None


class Lines:
    """A file that is read, a topic, and a file that is written."""

    def __init__(self, directory: Path) -> None:
        self.given = directory / "given.txt"
        self.got = directory / "got.txt"
        self.topic = new_name("lines")
        self.count = 0
        self.give(0)

    def give(self, count: int) -> None:
        """Append as many lines, each with its number."""
        with self.given.open("a") as file:
            for number in range(self.count, self.count + count):
                file.write(f"line {number}\n")
        self.count += count

    @property
    def numbers(self) -> list[int]:
        """The numbers of the lines that were written, in their order."""
        text = self.got.read_text() if self.got.exists() else ""
        return [int(line.split()[1]) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def arrived(self) -> bool:
        """Whether every line was written at least once."""
        return set(self.numbers) == set(range(self.count))

    def source(self) -> dict[str, str]:
        """The connector that reads the file."""
        return {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(self.given),
            "topic": self.topic,
            "topic.creation.default.replication.factor": "-1",  # the broker's default
            "topic.creation.default.partitions": "1",
            "topic.creation.default.message.timestamp.type": "LogAppendTime",
        }

    def sink(self) -> dict[str, str]:
        """The connector that writes the other one."""
        return {
            "connector.class": "FileStreamSink",
            "tasks.max": "1",
            "file": str(self.got),
            "topics": self.topic,
        }


def worker(bootstrap: str, **more: object) -> dict[str, object]:
    """A worker's properties; names of more have underscores for dots."""
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 500,
        **PATIENT,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def mirroring(
    clusters: Mapping[str, str], topics: Mapping[str, str], **own: object
) -> dict[str, object]:
    """MirrorMaker's settings: clusters by name, and which topics it copies, as in {"here->there": "t"}."""
    settings = {"clusters": ", ".join(clusters), "replication.factor": 1}
    settings |= {f"{name}.bootstrap.servers": where for name, where in clusters.items()}
    for way, which in topics.items():
        settings |= {f"{way}.enabled": "true", f"{way}.topics": which}
    for kind in ("checkpoints", "heartbeats", "offset-syncs"):
        settings[f"{kind}.topic.replication.factor"] = 1
    for kind in ("offset", "status", "config"):
        settings[f"{kind}.storage.replication.factor"] = 1
    return {**settings, **own}


def start_distributed(
    version: str,
    bootstrap: str,
    directory: Path,
    session_ms: int,
    *,
    replicas: int = 1,
    **more: object,
) -> Program:
    """Starts a worker of the group, whose three topics have so many replicas; more is as in `worker`."""
    topics = {
        f"{kind}_storage_{name}": value
        for kind in ("config", "offset", "status")
        for name, value in (("topic", f"connect-{kind}"), ("replication_factor", replicas))
    }
    own = worker(
        bootstrap,
        group_id=GROUP,
        listeners="http://127.0.0.1:0",
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=500,
        scheduled_rebalance_max_delay_ms=0,
        **topics,
        **more,
    )
    name = f"worker-{version}"
    return Program(version, name, DISTRIBUTED, directory, properties(directory, name, own))


def states(port: int, lines: Lines) -> dict[tuple[str, int], str] | None:
    """What runs, and where: (connector, task) -> worker; None unless all four do."""
    found = {}
    for name in (lines.topic, f"{lines.topic}-sink"):
        told = rest(port, "GET", f"/connectors/{name}/status") or {"tasks": []}
        for i, each in enumerate([told.get("connector"), *told["tasks"]]):
            if each and each["state"] == "RUNNING":
                found[name, i] = each["worker_id"]
    return found if len(found) == 4 else None
