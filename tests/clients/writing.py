"""What a producer does in the matrix: every codec to every topic, and what must be refused."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.clients import expectations as rules
from tests.clients.clients import ALL_CODECS
from tests.clients.expectations import Written
from tests.clients.session import ANSWER_TIMEOUT_S, DriverError
from tests.clients.topics import PROBE_PARTITION, change_topic, probe_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.clients import Client
    from tests.clients.expectations import Rules, Topic
    from tests.clients.report import Report
    from tests.clients.session import Session


class Probe(NamedTuple):
    """A request and what must become of it: an error code, or None for success."""

    label: str
    topic: Topic
    idempotent: bool | None
    record: dict[str, Any]
    error: int | None


class Writer:
    """One producer's part: its topics are written by nobody else."""

    def __init__(
        self, server: str, session: Session, producer: Client, broker: Rules, report: Report
    ) -> None:
        self.server = server
        self.session = session
        self.producer = producer
        self.broker = broker
        self.report = report

    def write(self, topics: Sequence[Topic], stages: Sequence[Topic]) -> list[Written]:
        """Everything acknowledged in the ordinary topics and in the stages of the mixed one."""
        written = self.write_codecs(topics, 0)
        self.make_probes(topics)
        base_offset = 0
        for stage in stages:
            change_topic(self.server, stage, self.broker)
            entries = self.write_codecs([stage], base_offset)
            written += entries
            base_offset += max((len(entry.records) for entry in entries), default=0)
        return written

    def write_codecs(self, topics: Sequence[Topic], base_offset: int) -> list[Written]:
        """Every codec of the producer to every topic; what was acknowledged."""
        written = []
        for partition, codec in enumerate(ALL_CODECS):
            if codec not in self.producer.codecs:
                continue
            fitting = [topic for topic in topics if rules.writable(topic, codec, self.broker)]
            batches = [
                {
                    "topic": t.name,
                    "partition": partition,
                    "records": rules.records_for(t, codec, self.broker),
                }
                for t in fitting
            ]
            began_ms = now_ms()
            answers = self.ask(codec, self.plain_idempotence(), batches)
            ended_ms = now_ms()
            by_topic = {answer["topic"]: answer for answer in answers}
            for topic, batch in zip(fitting, batches, strict=True):
                records = batch["records"]
                offsets = list(range(base_offset, base_offset + len(records)))
                problem = self.not_acknowledged(by_topic.get(topic.name), offsets)
                if problem:
                    where = f"{self.producer.name} to {topic.name}, {codec}"
                    self.report.problems.append(f"{where}: {problem}")
                else:
                    span = (began_ms, ended_ms)
                    written.append(Written(topic, partition, codec, records, *span, base_offset))
        return written

    def plain_idempotence(self) -> bool | None:
        """The setting for ordinary records, which all formats can carry: not idempotent."""
        return None if self.producer.idempotence == "never" else False

    def ask(
        self, codec: str, idempotent: bool | None, batches: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """One produce command; a failing driver is a problem of the report, and no answers."""
        command = {"op": "produce", "codec": codec, "idempotent": idempotent, "batches": batches}
        if not batches:
            return []
        try:
            return self.session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            self.report.problems.append(f"{self.producer.name} produces {codec}: {error}")
            return []

    def not_acknowledged(self, answer: dict[str, Any] | None, offsets: list[int]) -> str | None:
        """Why a produce answer is not the plain success it should be."""
        if answer is None:
            return "no answer"
        if "error" in answer:
            return f"error {answer['error']}"
        if self.producer.tells_offsets and answer["offsets"] != offsets:
            return f"offsets {answer['offsets']}"
        return None

    def probes(self, topics: Sequence[Topic]) -> list[Probe]:
        """Requests whose refusal, or success, is a rule of its own."""
        probes = []
        producer = self.producer
        refusal = rules.UNSUPPORTED_FOR_MESSAGE_FORMAT
        plain: dict[str, Any] = {"key": "probe", "value": "probe"}
        for topic in topics:
            error = None if topic.magic == 2 else refusal
            if producer.idempotence == "default":
                probes.append(Probe("idempotent by default", topic, None, plain, error))
            if producer.idempotence == "optional":
                probes.append(Probe("idempotent when asked", topic, True, plain, error))
            if producer.headers and topic.magic < 2 and self.broker.names_refusals:
                record = {**plain, "headers": [["a", "b"]]}
                idempotent = self.plain_idempotence()
                probes.append(Probe("with headers", topic, idempotent, record, refusal))
        return probes

    def make_probes(self, topics: Sequence[Topic]) -> None:
        """Make each probe with a producer of its own; the refused ones must leave nothing behind."""
        good = Counter(probe.topic for probe in self.probes(topics) if self.passes(probe))
        ends = probe_ends(self.server, topics)
        for topic in topics:
            stored, right = ends[topic.name], good[topic]
            if stored != right:
                self.report.problems.append(f"{topic.name}: {stored} probes stored, not {right}")

    def passes(self, probe: Probe) -> bool:
        """Make one probe; whether its record was taken. What is not as expected goes to the report."""
        name = probe.topic.name
        batch = {"topic": name, "partition": PROBE_PARTITION, "records": [probe.record]}
        for answer in self.ask("none", probe.idempotent, [batch]):
            code = answer["error"]["code"] if "error" in answer else None
            if code != probe.error or ("error" in answer) != (probe.error is not None):
                where = f"{self.producer.name} {probe.label} to {name}"
                self.report.problems.append(f"{where}: {answer}, expected error {probe.error}")
                return False
            outcome = f"{probe.topic.group}: {'ok' if code is None else code}"
            self.report.refusals[self.producer.name, probe.label].append(outcome)
            return code is None
        return False


def now_ms() -> int:
    """The wall clock that producers and broker stamp with."""
    return time.time_ns() // 1_000_000
