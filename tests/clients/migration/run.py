"""The migration, run: three brokers go through its steps while clients of all releases send and read.

Groups read what their clients send all the time, also while brokers restart. After each step every
producer writes to a partition of each broker, and every reader reads it back: each record once, in
the format of the broker that took it, with the time that KIP-32 says. At the end everything is read
again from the start.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.subject import json_at, page_at
from tests.clients import expectations as rules
from tests.clients import topics
from tests.clients.environments import Unavailable
from tests.clients.migration.steps import BROKERS
from tests.clients.reading import CONSUME_TIMEOUT_MS, compare
from tests.clients.report import Report
from tests.clients.rolling.load import Load, Verdict, judge
from tests.clients.rolling.run import stored
from tests.clients.session import ANSWER_TIMEOUT_S, DriverError, Session
from tests.clients.writing import Writer, now_ms
from tidelog.cli.parser import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.clients.clients import Client
    from tests.clients.expectations import Written
    from tests.clients.migration.steps import Step

CODECS = ("none", "gzip")
BROKER = rules.BROKERS["tidelog-cluster"]
PREFERRED_WITHIN_S = 60.0
BEGIN_WITHIN_S = 120.0
CLIENTS_AT_ONCE = (
    3  # each has a driver and topics of its own, and waits for brokers for much of its time
)


class Counted(NamedTuple):
    """What one step has shown."""

    step: str
    formats: set[int]  # on the disks, so far
    fetched: dict[tuple[str, str], float]  # bytes by the reader's format and how they were served


class Cluster:
    """Three brokers of `tidelog serve`, with their properties file."""

    def __init__(self, directory: Path, config: Path, bootstrap: str, http: Sequence[str]) -> None:
        self.directory, self.config = directory, config
        self.bootstrap, self.http = bootstrap, http

    def roll(self, step: Step) -> None:
        """Writes the settings of a step, and restarts its brokers with `tidelog cluster roll`."""
        step.write(self.config)
        brokers = map(str, step.restarted)
        directory = str(self.directory)
        assert main(["cluster", "roll", "--log-dirs", directory, *brokers]) == 0

    def partitions(self) -> list[dict[str, Any]]:
        """What the first broker says of all partitions."""
        return list(json_at(self.http[0], "/v1/cluster")[1]["partitions"])

    def prefer(self) -> None:
        """Lets each broker lead what it leads by preference."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline_s = time.monotonic() + PREFERRED_WITHIN_S
        while True:
            found = self.partitions()
            if all(each["leader"] == each["replicas"][0] for each in found):
                return
            assert time.monotonic() < deadline_s, found
            admin.elect_leaders(ElectionType.PREFERRED, None).result(60)
            time.sleep(0.2)

    def fetched(self) -> dict[tuple[str, str], float]:
        """The bytes that consumers were served, of all brokers since they started."""
        found: dict[tuple[str, str], float] = {}
        for http in self.http:
            for line in page_at(http, "/metrics")[1].splitlines():
                if line.startswith("tidelog_fetch_bytes_total{") and "migrated-" in line:
                    labels, value = line.rsplit(" ", 1)
                    _, magic, _, served, *_ = labels.split('"')
                    place = (magic, served)
                    found[place] = found.get(place, 0.0) + float(value)
        return found


class Migration:
    """Clients and what they wrote so far."""

    def __init__(
        self,
        cluster: Cluster,
        chosen: Sequence[tuple[Client, Session]],
        loads: Sequence[Load],
        report: Report,
    ) -> None:
        self._cluster, self._chosen, self._loads = cluster, chosen, loads
        self._report = report
        self._writers = {
            client.name: Writer(cluster.bootstrap, session, client, BROKER, report)
            for client, session in chosen
        }
        self._written: dict[tuple[str, int], list[Written]] = {}  # by topic and partition

    def create(self) -> None:
        """Makes the topics: two for each producer, with a partition that each broker leads."""
        wanted = [
            NewTopic(_name(client, kind), len(BROKERS), 3, config={"message.timestamp.type": kind})
            for client, _ in self._chosen
            for kind in rules.TIMESTAMP_TYPES
        ]
        wanted += [NewTopic(load.topic, len(BROKERS), 3) for load in self._loads]
        topics.create(self._cluster.bootstrap, wanted)

    def take(self, step: Step, number: int) -> Counted:
        """Writes and reads in one step."""
        cluster = self._cluster
        cluster.prefer()
        leaders = {
            (each["topic"], each["partition"]): each["leader"] for each in cluster.partitions()
        }

        def write(client: Client) -> list[Written]:
            return [
                entry
                for kind in rules.TIMESTAMP_TYPES
                for partition in range(len(BROKERS))
                for entry in self._write(
                    client,
                    kind,
                    partition,
                    step.magic(leaders[_name(client, kind), partition]),
                    number,
                )
            ]

        with ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
            written = pool.map(write, [client for client, _ in self._chosen])
            new = [entry for entries in written for entry in entries]
        self._let_all_read([[entry] for entry in new], new)
        formats = topics.stored_formats(cluster.directory, {entry.topic.name for entry in new})
        return Counted(step.name, set().union(*formats.values()), cluster.fetched())

    def read_everything(self) -> None:
        """Every reader reads all that was written, from the start."""
        partitions = list(self._written.values())
        self._let_all_read(partitions, [entries[0] for entries in partitions])

    def _let_all_read(self, partitions: Sequence[list[Written]], firsts: Sequence[Written]) -> None:
        """Lets every client read partitions, each from its first entry on."""
        read = partial(self._read, partitions=partitions, firsts=firsts)
        with ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
            list(pool.map(lambda each: read(*each), self._chosen))

    def _write(
        self, client: Client, kind: str, partition: int, magic: int, number: int
    ) -> list[Written]:
        """Writes one batch; returns it if it was acknowledged as it should be."""
        topic = rules.Topic(_name(client, kind), client, magic, kind, stage=number)
        before = self._written.setdefault((topic.name, partition), [])
        base = before[-1].base_offset + len(before[-1].records) if before else 0
        codec = CODECS[(number + partition) % len(CODECS)]
        records = rules.records_for(topic, codec, BROKER)
        batch = {"topic": topic.name, "partition": partition, "records": records}
        writer, began_ms = self._writers[client.name], now_ms()
        answers = writer.ask(codec, writer.plain_idempotence(), [batch])
        offsets = list(range(base, base + len(records)))
        problem = writer.not_acknowledged(answers[0] if answers else None, offsets)
        if problem:
            self._report.problems.append(f"{topic.name}-{partition}, step {number}: {problem}")
            return []
        entry = rules.Written(topic, partition, codec, records, began_ms, now_ms(), base)
        before.append(entry)
        return [entry]

    def _read(
        self,
        client: Client,
        session: Session,
        *,
        partitions: Sequence[list[Written]],
        firsts: Sequence[Written],
    ) -> None:
        """Lets a client read partitions, each from its first entry on, and compares."""
        wanted = [
            {
                "topic": first.topic.name,
                "partition": first.partition,
                "from": first.base_offset,
                "count": sum(len(entry.records) for entry in partition),
            }
            for partition, first in zip(partitions, firsts, strict=True)
        ]
        command = {"op": "consume", "timeout_ms": CONSUME_TIMEOUT_MS, "partitions": wanted}
        try:
            answers = session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            self._report.problems.append(f"{client.name} reads: {error}")
            return
        by_place = {(answer["topic"], answer["partition"]): answer for answer in answers}
        for partition, first in zip(partitions, firsts, strict=True):
            answer = by_place.get((first.topic.name, first.partition), {"records": []})
            compare(partition, client, first.base_offset, answer, self._report)


def run(
    cluster: Cluster, steps: Sequence[Step], chosen: Sequence[Client], working: Sequence[Client]
) -> tuple[list[Counted], dict[str, Verdict], Report]:
    """Migrates; `working` are the clients that send and read all the time, as groups.

    Returns what each step has shown, how the groups fared, and every difference.
    """
    report = Report()
    with ExitStack() as stack:
        sessions = []
        for client in chosen:
            try:
                command = client.command(cluster.bootstrap)
                sessions.append((client, stack.enter_context(Session(client.name, command))))
            except Unavailable as reason:
                report.skipped[client.name] = str(reason)
        loads = []
        for client in working:
            try:
                plain = client._replace(idempotence="never")  # formats 0 and 1 have no producer ids
                loads.append(stack.enter_context(Load(plain, cluster.bootstrap)))
            except Unavailable as reason:
                report.skipped[client.name] = str(reason)
        migration = Migration(cluster, sessions, loads, report)
        migration.create()
        for load in loads:
            load.start()
        deadline_s = time.monotonic() + BEGIN_WITHIN_S
        while any(not load.handed and not load.has_failed() for load in loads):
            idle = [load.client.name for load in loads if not load.handed]
            assert time.monotonic() < deadline_s, f"nothing is handed to {idle}"
            time.sleep(0.1)
        counted = [migration.take(steps[0], 0)]
        for number, step in enumerate(steps[1:], 1):
            cluster.roll(step)
            counted.append(migration.take(step, number))
        works = [(load.client.name, load.finish()) for load in loads]
        migration.read_everything()
    verdicts = {name: judge(work, stored(cluster.bootstrap, work.topic)) for name, work in works}
    return counted, verdicts, report


def table(counted: Sequence[Counted]) -> str:
    """What each step has shown, as a Markdown table."""
    lines = [
        "| step | formats on disk | zero-copy, by the reader's format | converted |",
        "|---|---|---|---|",
    ]
    for each in counted:
        shares = [
            ", ".join(
                f"{m}: {size:,.0f} B"
                for (m, how), size in sorted(each.fetched.items())
                if how == served
            )
            for served in ("as_stored", "converted")
        ]
        formats = ", ".join(map(str, sorted(each.formats)))
        lines.append(f"| {each.step} | {formats} | {shares[0] or '-'} | {shares[1] or '-'} |")
    return "\n".join(lines)


def _name(client: Client, kind: str) -> str:
    return f"migrated-{kind.lower()}-" + client.slug
