"""Apache Kafka's own command line tools, many commands in one Java process.

    with JavaTools("4.1.1", directory) as tools:
        done = tools.run("kafka-topics", "--bootstrap-server", bootstrap, "--list")

`Done` has the exit status and what the tool wrote. The jars come from the cache of tests/oracle; a process
that does not answer in time is ended and its last words are in the error. `start` runs one program of Kafka's
in a process of its own, for what goes on until it is stopped, or is to be killed.
"""

from __future__ import annotations

import itertools
import json
import select
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.broker.asking import list_offset
from tests.broker.subject import eventually
from tests.oracle import apache_kafka

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.broker.subject import Subject

SOURCE = Path(__file__).with_name("Tools.java")
ANSWER_TIMEOUT_S = 180
_TOOLS = "org.apache.kafka.tools."
# What the scripts in Kafka's bin/ start.
CLASSES: Mapping[str, str] = {
    "kafka-topics": _TOOLS + "TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "kafka-groups": _TOOLS + "GroupsCommand",  # not in 3.9
    "kafka-cluster": _TOOLS + "ClusterTool",
    "kafka-get-offsets": _TOOLS + "GetOffsetShell",
    "kafka-delete-records": _TOOLS + "DeleteRecordsCommand",
    "kafka-log-dirs": _TOOLS + "LogDirsCommand",
    "kafka-console-producer": _TOOLS + "ConsoleProducer",
    "kafka-console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "kafka-producer-perf-test": _TOOLS + "ProducerPerformance",
    "kafka-consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "kafka-e2e-latency": _TOOLS + "EndToEndLatency",
    "kafka-verifiable-producer": _TOOLS + "VerifiableProducer",
    "kafka-verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "kafka-broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "kafka-leader-election": _TOOLS + "LeaderElectionCommand",
    "kafka-reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "kafka-streams-application-reset": _TOOLS + "StreamsResetter",
    "kafka-transactions": _TOOLS + "TransactionsCommand",
    "kafka-acls": _TOOLS + "AclCommand",
    "kafka-metadata-quorum": _TOOLS + "MetadataQuorumCommand",
    "kafka-features": _TOOLS + "FeatureCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-replica-verification": _TOOLS + "ReplicaVerificationTool",
    "kafka-client-metrics": _TOOLS + "ClientMetricsCommand",
    "kafka-delegation-tokens": _TOOLS + "DelegationTokenCommand",
    "kafka-share-groups": _TOOLS + "consumer.group.ShareGroupCommand",  # not in 3.9
    "kafka-streams-groups": _TOOLS + "streams.StreamsGroupCommand",  # not in 3.9
}
OLDER: Mapping[str, Mapping[str, str]] = {
    "3.9.1": {
        "kafka-console-producer": "kafka.tools.ConsoleProducer",
        "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
        "kafka-acls": "kafka.admin.AclCommand",
    }
}


class Done(NamedTuple):
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it wrote to standard output, line by line, without empty ones."""
        return [line for line in self.out.splitlines() if line.strip()]


def java_command(jars: Path, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """How to run a main class (or a source file) with a directory's jars: soon up rather than fast."""
    java = apache_kafka.find_java()
    assert java is not None
    how = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options)
    return [java, *how, "-cp", f"{jars}/*", *arguments]


def start(version: str, tool: str, *arguments: str, directory: Path) -> apache_kafka.Process:
    """Run a tool in a process of its own; what it writes goes to `<tool>.out` in the directory."""
    name = OLDER.get(version, {}).get(tool, CLASSES[tool])
    command = java_command(apache_kafka.fetch(f"tools-{version}"), name, *arguments)
    return apache_kafka.Process(tool, command, directory)


def eventually_says(program: apache_kafka.Process, words: str) -> None:
    """Waits until a program has written some words. Raises AssertionError if it does not in time."""

    def says() -> bool:
        assert program.alive(), program.tail(30)
        return words in program.out.read_text(errors="replace")

    eventually(says, ANSWER_TIMEOUT_S, f"{words}:\n{program.tail(30)}")


def json_lines(text: str) -> list[dict[str, Any]]:
    """What a verifiable producer or consumer says, without what its logging has to say."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def reading(broker: Subject, topic: str, partition: int) -> tuple[str, ...]:
    """Options for the console consumer to read all that a partition holds, however long that takes.

    Only where nothing is to come it ends as it has waited for a while.
    """
    with broker.connect() as connection:
        first, end = (
            list_offset(connection, topic, at, partition=partition)["offset"] for at in (-2, -1)
        )
    if end == first:
        until: tuple[str, ...] = ("--timeout-ms", "1500")
    else:
        until = ("--max-messages", str(end - first), "--timeout-ms", "60000")
    return ("--topic", topic, "--partition", str(partition), "--offset", "earliest", *until)


class JavaTools:
    """One Java process that runs the tools of one version of Kafka."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self.directory = directory
        self._numbers = itertools.count(1)
        command = java_command(apache_kafka.fetch(f"tools-{version}"), str(SOURCE))
        self._log = (directory / "java.log").open("wb")
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()

    def run(self, tool: str, *arguments: str, stdin: str | None = None) -> Done:
        """Run one command to its end. Raises AssertionError if it does not come."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        place = self.directory / str(next(self._numbers))
        if stdin is not None:
            place.with_suffix(".in").write_text(stdin)
        name = OLDER.get(self.version, {}).get(tool, CLASSES[tool])
        line = "\t".join((str(place), name, *arguments))
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answers = self._process.stdout
        if not select.select([answers], [], [], ANSWER_TIMEOUT_S)[0]:
            self._process.kill()
        answer = answers.readline()
        out, err = (
            path.read_text(errors="replace") if path.exists() else ""
            for path in (place.with_suffix(".out"), place.with_suffix(".err"))
        )
        if not answer:
            log = (self.directory / "java.log").read_text(errors="replace")
            raise AssertionError(f"no end of {tool} {arguments}:\n{out}\n{err}\n{log[-4000:]}")
        return Done(int(answer), out, err)
