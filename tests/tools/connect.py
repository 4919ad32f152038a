"""Kafka Connect, MirrorMaker 2 and Streams: programs that go on until they are stopped.

    worker = Program("4.1.1", "worker", STANDALONE, directory, properties(directory, "worker", {...}))

Each is a Java process of its own, as its script in Kafka's bin/ starts it; what it logs is in `<name>.out`.
A worker that is stopped commits its offsets for as long as `PATIENT` grants, and then ends in order.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

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
