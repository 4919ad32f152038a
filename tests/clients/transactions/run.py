"""Transactions in the matrix: every client that has them writes, copies and is fenced; all clients read.

A writer takes the steps of expectations.py: it commits, aborts, leaves a transaction open, and lets newer
producers of its id fence the older ones. Then it copies a topic in transactions that hold the group's offsets
too; one is aborted, and what it read is read again. Every client reads what all have left, as read_committed
and as read_uncommitted, by offset and value.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.clients import topics
from tests.clients.coordination.grouping import committed
from tests.clients.reading import CONSUME_TIMEOUT_MS
from tests.clients.session import ANSWER_TIMEOUT_S, DriverError
from tests.clients.transactions import expectations as rules
from tests.clients.transactions.expectations import ABILITIES, ABORT, COMMIT, PARTITIONS, Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.clients.clients import Client
    from tests.clients.report import Report
    from tests.clients.session import Session

AT_ONCE = 4  # writers wait for groups and for coordinators, not for the processor
SOURCE = "transactions-to-copy"
KEPT = 4  # committed records of each partition there; between two of them one is aborted
# How many records each copy takes, and how it ends: what is aborted comes again.
COPIES = ((5, ABORT), (5, COMMIT), (2 * KEPT - 5, COMMIT))
TIMEOUT_S = 60


class Different(Exception):
    """A client was answered otherwise than it must; the message says how."""


class Writer:
    """One client's transactions: its topics, its ids and its group are used by nobody else."""

    def __init__(self, server: str, session: Session, client: Client) -> None:
        self.server = server
        self.session = session
        self.client = client

    def ask(self, what: str, name: str, **more: Any) -> dict[str, Any]:
        """One operation of a producer; its answer, be it an error."""
        command = {"op": "transaction", "what": what, "as": name, **more}
        (answer,) = self.session.ask(command, ANSWER_TIMEOUT_S)
        return answer

    def demand(self, what: str, name: str, **more: Any) -> dict[str, Any]:
        """One operation that must go well."""
        answer = self.ask(what, name, **more)
        if "error" in answer:
            raise Different(f"{what} of {name}, {more}: {answer}")
        return answer

    def take_steps(self) -> list[str]:
        """Commits, aborts and fencing; by which names it was told of the fencing. Raises Different."""
        names: list[str] = []
        topic = rules.topic_of(self.client)
        opened: list[str] = []
        for step in rules.STEPS:
            if step.name not in opened:
                self.demand("open", step.name, id=topic)
                opened.append(step.name)
            values = [rules.values_of(step, partition) for partition in range(PARTITIONS)]
            batches = [
                {"topic": topic, "partition": number, "records": [{"value": v} for v in some]}
                for number, some in enumerate(values)
                if some
            ]
            if not step.refused:
                self.demand("write", step.name, batches=batches, end=step.end)
                continue
            answer = self.ask("write", step.name, batches=batches, end=step.end)
            name = rules.fenced(answer, self.client)
            if name is None:
                raise Different(f"{step.name} is not fenced: {answer}")
            names.append(name)
        for name in opened:
            self.demand("close", name)
        return names

    def copy(self, source: dict[tuple[int, int], str]) -> list[Log]:
        """Copies with the offsets in the transaction; what they must have left. Raises Different."""
        group = rules.copies_of(self.client)
        self.demand("open", "copier", id=group)
        done: list[tuple[list[tuple[int, int]], str]] = []
        nexts: dict[int, int | None] = dict.fromkeys(range(PARTITIONS))
        for count, end in COPIES:
            more = {"group": group, "topic": SOURCE, "to": group, "count": count, "end": end}
            read = [(p, o) for p, o in self.demand("copy", "copier", **more)["read"]]
            done.append((read, end))
            if end == COMMIT:
                nexts |= {partition: offset + 1 for partition, offset in read}
            found = committed(self.server, group, SOURCE, PARTITIONS)
            if found != nexts:
                raise Different(f"after {done} the group's offsets are {found}, not {nexts}")
        self.demand("close", "copier")
        kept = [place for read, end in done if end == COMMIT for place in read]
        if sorted(kept) != sorted(source):
            raise Different(f"copied {sorted(kept)}, not {sorted(source)}")
        return rules.logs_of_copies(done, source)


def write_source(server: str) -> dict[tuple[int, int], str]:
    """What is copied: committed records, between aborted ones; their values by partition and offset."""
    options = {"bootstrap.servers": server, "transactional.id": SOURCE, "log_level": 0}
    producer = Producer(options)
    producer.init_transactions(TIMEOUT_S)
    logs = [Log() for _ in range(PARTITIONS)]
    for number in range(KEPT):
        for end in (COMMIT, ABORT):
            producer.begin_transaction()
            for partition, log in enumerate(logs):
                value = f"{number} to {end}"
                producer.produce(SOURCE, value.encode(), partition=partition)
                log.append([value])
            producer.flush(TIMEOUT_S)
            if end == COMMIT:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
            for log in logs:
                log.finish(committed=end == COMMIT)
    return {
        (partition, offset): value
        for partition, log in enumerate(logs)
        for offset, value in log.seen(rules.READ_COMMITTED)
    }


def shown(record: dict[str, Any], *, markers: bool) -> tuple[int, str]:
    """Offset and value of a record as it was read; a marker's value begins with its version, 0."""
    value = str(record["value"])
    return record["offset"], rules.MARKER if markers and value.startswith("\0\0") else value


def compare(
    answers: Sequence[dict[str, Any]],
    logs: Mapping[str, Sequence[Log]],
    isolation: str | None,
    *,
    markers: bool = False,
) -> tuple[int, list[str]]:
    """How many records came as they must, and each partition that did not, in words."""
    found = {
        (answer["topic"], answer["partition"]): [
            shown(record, markers=markers) for record in answer["records"]
        ]
        for answer in answers
    }
    good, wrong = 0, []
    for topic, of_topic in logs.items():
        for partition, log in enumerate(of_topic):
            expected = log.seen(isolation, markers=markers)
            got = found.get((topic, partition))
            if got == expected:
                good += len(expected)
            else:
                extra = [one for one in got or [] if one not in expected]
                missing = [one for one in expected if one not in (got or [])]
                words = f"{extra[:4]} too many, {missing[:4]} missing"
                wrong.append(f"{topic}/{partition} has {len(got or [])} records: {words}")
    return good, wrong


def read(
    session: Session, client: Client, logs: Mapping[str, Sequence[Log]], report: Report
) -> None:
    """Have a client read all that was written, in each isolation that it has."""
    isolations: Sequence[str | None] = rules.ISOLATIONS
    able = ABILITIES[client.name]
    if able.no_isolation:
        isolations = (None,)
    for isolation in isolations:
        wanted = [
            {
                "topic": topic,
                "partition": number,
                "from": 0,
                "count": len(log.seen(isolation, markers=able.shows_markers)),
            }
            for topic, of_topic in logs.items()
            for number, log in enumerate(of_topic)
        ]
        command = {"op": "consume", "timeout_ms": CONSUME_TIMEOUT_MS, "partitions": wanted}
        if isolation is not None:
            command["isolation"] = isolation
        try:
            answers = session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{client.name} reads as {isolation}: {error}")
            continue
        good, wrong = compare(answers, logs, isolation, markers=able.shows_markers)
        report.isolated[client.name, isolation or rules.READ_UNCOMMITTED] = good
        report.problems += [f"{client.name} reads as {isolation}: {words}" for words in wrong]


def run(
    server: str, present: Sequence[Client], sessions: Mapping[str, Session], report: Report
) -> None:
    """Everything, for the clients whose drivers run; nothing is raised for a difference."""
    writers = [client for client in present if not ABILITIES[client.name].no_writing]
    names = [SOURCE, *(name(c) for c in writers for name in (rules.topic_of, rules.copies_of))]
    settings = {"retention.ms": "-1"}
    wanted = [NewTopic(name, PARTITIONS, topics.REPLICAS, config=settings) for name in names]
    topics.create(server, wanted)
    source = write_source(server)
    logs: dict[str, list[Log]] = {}

    def write(client: Client) -> None:
        began = time.monotonic()
        one = Writer(server, sessions[client.name], client)
        told = report.transactions.setdefault(client.name, {})
        try:
            told["fenced"] = ", ".join(dict.fromkeys(one.take_steps()))
            logs[rules.topic_of(client)] = rules.logs_of_steps()
            if not ABILITIES[client.name].no_offsets:
                logs[rules.copies_of(client)] = one.copy(source)
                told["copies"] = "ok"
        except (Different, DriverError) as reason:
            report.problems.append(f"{client.name}, transactions: {reason}")
        report.seconds[f"{client.name} transacts"] = time.monotonic() - began

    def read_all(client: Client) -> None:
        began = time.monotonic()
        read(sessions[client.name], client, logs, report)
        report.seconds[f"{client.name} reads transactions"] = time.monotonic() - began

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(write, writers))
        if logs:
            list(pool.map(read_all, present))
    report.lacking += lacking(present)


def lacking(present: Sequence[Client]) -> list[str]:
    """What clients cannot do with transactions, with the reason, one line each."""
    found = []
    for client in present:
        able = ABILITIES[client.name]
        for what, reason in (
            ("writes in no transaction", able.no_writing),
            ("sends no offsets in a transaction", able.no_offsets),
            ("shows aborted records too", able.no_isolation),
        ):
            if reason:
                found.append(f"{client.name}: {what}, {reason}")
    return found
