"""The matrix: every client's records read by every client, on topics of every message format.

    python tests/clients/matrix.py HOST:PORT                    print the tables
    python tests/clients/matrix.py HOST:PORT --write FILE.md    also put them between FILE's markers
    python tests/clients/matrix.py HOST:PORT --clients a,b --broker kafka-3.9

Each producer writes every codec it has to one topic per format and timestamp type (one partition
per codec); every consumer then reads all partitions, once from the start and once from the middle
of the batches. Contents, offsets, times and time types are compared with expectations.py, and
the times also between readers; offsets are asked for by start, end and time. Requests that must be
refused are made and must be refused with exactly the named error, leaving nothing behind.
`--broker` says whose abilities to judge by: the drivers and expectations are themselves tested
against Apache Kafka 3.9 (format 2 only) and 2.8 (all formats).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.clients import clients as all_clients  # noqa: E402 - as a script it needs the path above
from tests.clients import expectations as rules  # noqa: E402 - as a script it needs the path above
from tests.clients.environments import Unavailable  # noqa: E402 - as a script it needs the path above
from tests.clients.session import DriverError, Session  # noqa: E402 - as a script it needs the path above

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.clients.clients import Client
    from tests.clients.expectations import Rules, Topic

MARK_BEGIN = "<!-- clients: written by tests/clients/matrix.py -->\n"
MARK_END = "<!-- /clients -->\n"
PARALLEL = 2
CONSUME_TIMEOUT_MS = 25_000
ANSWER_TIMEOUT_S = 45.0
END_OFFSETS_TIMEOUT_S = 20.0
READ_FROM = (0, 3)
PROBE_PARTITION = len(all_clients.ALL_CODECS)  # beside one partition per codec


class Written(NamedTuple):
    """Records that a producer got acknowledged in one partition, and when."""

    topic: Topic
    partition: int
    codec: str
    records: list[dict[str, Any]]
    began_ms: int
    ended_ms: int


class Probe(NamedTuple):
    """A request and what must become of it: an error code, or None for success."""

    label: str
    topic: Topic
    idempotent: bool | None
    record: dict[str, Any]
    error: int | None


class Report:
    """What happened: counts per (producer, consumer, format), and every difference in words."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.good: Counter[tuple[str, str, int]] = Counter()
        self.bad: defaultdict[tuple[str, str, int], list[str]] = defaultdict(list)
        self.refusals: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.found: Counter[tuple[str, int]] = Counter()
        self.problems: list[str] = []
        self.seconds: dict[str, float] = {}

    def differences(self) -> list[str]:
        """Every reason to fail, one line each."""
        lines = list(self.problems)
        for (producer, consumer, magic), reasons in sorted(self.bad.items()):
            first = "; ".join(reasons[:3])
            lines.append(f"{producer} -> {consumer}, format {magic}: {len(reasons)} x {first}")
        return lines


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def create_topics(server: str, topics: Iterable[Topic], broker: Rules) -> None:
    """Create the topics through CreateTopics with their configuration."""
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    wanted = []
    for topic in topics:
        config = {"message.timestamp.type": topic.timestamp_type, "retention.ms": "-1"}
        if (version := broker.format_versions[topic.magic]) is not None:
            config["message.format.version"] = version
        wanted.append(NewTopic(topic.name, PROBE_PARTITION + 1, 1, config=config))
    for future in admin.create_topics(wanted, operation_timeout=30, request_timeout=30).values():
        future.result(40)


def probe_ends(server: str, topics: Sequence[Topic]) -> dict[str, int]:
    """The end offset of every topic's probe partition, asked by a client that is not under test."""
    client = Consumer({"bootstrap.servers": server, "group.id": "matrix-ends", "log_level": 0})
    ends = {}
    deadline = time.monotonic() + END_OFFSETS_TIMEOUT_S
    try:
        for topic in topics:
            while topic.name not in ends:
                place = TopicPartition(topic.name, PROBE_PARTITION)
                try:
                    ends[topic.name] = client.get_watermark_offsets(place, timeout=10)[1]
                except KafkaException:
                    # A new partition's leader may not have taken it over yet.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
    finally:
        client.close()
    return ends


def produce_ordinary(
    session: Session, producer: Client, topics: Sequence[Topic], broker: Rules, report: Report
) -> list[Written]:
    """Every codec of the producer to every topic; what was acknowledged."""
    written = []
    for partition, codec in enumerate(all_clients.ALL_CODECS):
        if codec not in producer.codecs:
            continue
        fitting = [topic for topic in topics if rules.writable(topic, codec, broker)]
        batches = [
            {"topic": t.name, "partition": partition, "records": rules.records_for(t, codec)}
            for t in fitting
        ]
        began_ms = now_ms()
        command = {"op": "produce", "codec": codec, "batches": batches}
        command["idempotent"] = False if producer.idempotence != "never" else None
        try:
            answers = session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{producer.name} produces {codec}: {error}")
            continue
        ended_ms = now_ms()
        by_topic = {answer["topic"]: answer for answer in answers}
        for topic, batch in zip(fitting, batches, strict=True):
            records = batch["records"]
            problem = not_acknowledged(by_topic.get(topic.name), producer, len(records))
            if problem:
                report.problems.append(f"{producer.name} to {topic.name}, {codec}: {problem}")
            else:
                entry = Written(topic, partition, codec, records, began_ms, ended_ms)
                written.append(entry)
    return written


def not_acknowledged(answer: dict[str, Any] | None, producer: Client, count: int) -> str | None:
    """Why a produce answer is not the plain success of a fresh partition."""
    if answer is None:
        return "no answer"
    if "error" in answer:
        return f"error {answer['error']}"
    if producer.tells_offsets and answer["offsets"] != list(range(count)):
        return f"offsets {answer['offsets']}"
    return None


def probes_for(producer: Client, topics: Sequence[Topic], broker: Rules) -> list[Probe]:
    """Requests whose refusal, or success, is a rule of its own."""
    probes = []
    refusal = rules.UNSUPPORTED_FOR_MESSAGE_FORMAT
    plain: dict[str, Any] = {"key": "probe", "value": "probe"}
    for topic in topics:
        error = None if topic.magic == 2 else refusal
        if producer.idempotence == "default":
            probes.append(Probe("idempotent by default", topic, None, plain, error))
        if producer.idempotence == "optional":
            probes.append(Probe("idempotent when asked", topic, True, plain, error))
        idempotent = False if producer.idempotence != "never" else None
        if producer.headers and topic.magic < 2 and broker.names_refusals:
            record = {**plain, "headers": [["a", "b"]]}
            probes.append(Probe("with headers", topic, idempotent, record, refusal))
    return probes


def produce_probes(
    session: Session, producer: Client, topics: Sequence[Topic], broker: Rules, report: Report
) -> list[Probe]:
    """Make the probes, each with a producer of its own; the successful ones."""
    good = []
    for probe in probes_for(producer, topics, broker):
        batch = {
            "topic": probe.topic.name,
            "partition": PROBE_PARTITION,
            "records": [probe.record],
        }
        command = {"op": "produce", "codec": "none", "batches": [batch]}
        command["idempotent"] = probe.idempotent
        where = f"{producer.name} {probe.label} to {probe.topic.name}"
        try:
            (answer,) = session.ask(command, ANSWER_TIMEOUT_S)
        except (DriverError, ValueError) as error:
            report.problems.append(f"{where}: {error}")
            continue
        code = answer["error"]["code"] if "error" in answer else None
        if code != probe.error or ("error" in answer and probe.error is None):
            report.problems.append(f"{where}: {answer}, expected error {probe.error}")
            continue
        if code is None:
            good.append(probe)
        report.refusals[producer.name, probe.label].append(
            f"format {probe.topic.magic}: {'ok' if code is None else code}"
        )
    return good


def run_producer(
    server: str,
    session: Session,
    producer: Client,
    topics: Sequence[Topic],
    broker: Rules,
    report: Report,
) -> list[Written]:
    """All of one producer's writing, and that refused requests left nothing behind."""
    written = produce_ordinary(session, producer, topics, broker, report)
    probes = produce_probes(session, producer, topics, broker, report)
    good = Counter(probe.topic for probe in probes)
    ends = probe_ends(server, topics)
    for topic in topics:
        stored, right = ends[topic.name], good[topic]
        if stored != right:
            report.problems.append(f"{topic.name}: {stored} probe records stored, not {right}")
    return written


def run_consumer(
    session: Session, consumer: Client, written: Sequence[Written], broker: Rules, report: Report
) -> dict[tuple[str, int, int], int]:
    """Read everything back; the append times seen, by topic, partition and offset."""
    times: dict[tuple[str, int, int], int] = {}
    entries = [e for e in written if rules.readable(e.topic, e.codec, consumer, broker)]
    for start in READ_FROM:
        wanted = [
            {
                "topic": entry.topic.name,
                "partition": entry.partition,
                "from": start,
                "count": len(entry.records) - start,
            }
            for entry in entries
        ]
        command = {"op": "consume", "timeout_ms": CONSUME_TIMEOUT_MS, "partitions": wanted}
        try:
            answers = session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{consumer.name} reads from {start}: {error}")
            continue
        by_place = {(answer["topic"], answer["partition"]): answer for answer in answers}
        for entry in entries:
            answer = by_place.get((entry.topic.name, entry.partition), {"records": []})
            compare(entry, consumer, start, answer, report)
            for record in answer["records"]:
                if record["timestamp"] is not None and not rules.ignores_append_time(
                    consumer, entry.topic, entry.codec
                ):
                    place = (entry.topic.name, entry.partition, record["offset"])
                    times[place] = record["timestamp"]
    return times


def run_finder(
    session: Session, client: Client, written: Sequence[Written], report: Report
) -> None:
    """Ask ListOffsets what the client can ask: starts and ends, and offsets of times."""
    if client.finds == "nothing":
        return
    questions = [
        rules.lookups(entry.topic, entry.records, entry.began_ms, entry.ended_ms)
        for entry in written
    ]
    wrong = []
    for number in range(2 if client.finds == "ends" else len(questions[0])):
        wanted = [
            {"topic": entry.topic.name, "partition": entry.partition, "timestamp": asked[number][0]}
            for entry, asked in zip(written, questions, strict=True)
        ]
        try:
            answers = session.ask({"op": "find", "partitions": wanted}, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{client.name} finds offsets: {error}")
            return
        by_place = {(one["topic"], one["partition"]): one["offset"] for one in answers}
        for entry, asked in zip(written, questions, strict=True):
            target, expected = asked[number]
            found = by_place.get((entry.topic.name, entry.partition), "nothing")
            if found == expected:
                report.found[client.name, entry.topic.magic] += 1
            else:
                place = f"{entry.topic.name} {entry.codec}"
                wrong.append(f"{place} at {target}: offset {found} instead of {expected}")
    if wrong:
        first = "; ".join(wrong[:3])
        report.problems.append(f"{client.name} finds {len(wrong)} wrong offsets: {first}")


def compare(
    entry: Written, consumer: Client, start: int, answer: dict[str, Any], report: Report
) -> None:
    """Compare one partition as read with what must be there; counts go to the report."""
    cell = (entry.topic.producer.name, consumer.name, entry.topic.magic)
    where = f"{entry.topic.timestamp_type} {entry.codec} from {start}"
    expected = rules.expect(entry.topic, entry.records, consumer, entry.began_ms, entry.ended_ms)
    expected = expected[start:]
    records = answer["records"]
    problem = f" ({answer['problem']})" if answer.get("problem") else ""
    if len(records) != len(expected):
        offsets = [record["offset"] for record in records]
        report.bad[cell].append(f"{where}: offsets {offsets}{problem}")
        return
    for one, record in zip(expected, records, strict=True):
        wrong = rules.difference(one, record, consumer, entry.topic, entry.codec)
        if wrong:
            report.bad[cell].append(f"{where}, offset {one.offset}: {wrong}{problem}")
        else:
            report.good[cell] += 1


def compare_times(seen: dict[str, dict[tuple[str, int, int], int]], report: Report) -> None:
    """Every reader that was given a time for a record must have been given the same."""
    told: dict[tuple[str, int, int], dict[int, str]] = {}
    for consumer, times in seen.items():
        for place, timestamp in times.items():
            if timestamp != rules.NO_TIMESTAMP:
                told.setdefault(place, {}).setdefault(timestamp, consumer)
    for (topic, partition, offset), answers in sorted(told.items()):
        if len(answers) > 1:
            report.problems.append(f"{topic}/{partition} offset {offset}: times differ {answers}")


def start(
    chosen: Sequence[Client], server: str, stack: ExitStack, report: Report, *, make: bool
) -> dict[str, Session]:
    """Start the drivers of all clients whose environment is there; the others are skipped."""
    sessions = {}
    for client in chosen:
        try:
            command = client.command(server, make=make)
        except Unavailable as reason:
            report.skipped[client.name] = str(reason)
            continue
        try:
            sessions[client.name] = stack.enter_context(Session(client.name, command))
            report.versions[client.name] = sessions[client.name].version
        except DriverError as error:
            report.problems.append(f"{client.name}: its driver does not start: {error}")
    return sessions


def run_matrix(
    server: str,
    chosen: Sequence[Client] = all_clients.CLIENTS,
    *,
    broker: Rules = rules.BROKERS["tidelog"],
    make: bool = True,
) -> Report:
    """Run the whole matrix against the broker at `server`; nothing is raised for a difference."""
    report = Report()
    with ExitStack() as stack, ThreadPoolExecutor(PARALLEL) as pool:
        sessions = start(chosen, server, stack, report, make=make)
        present = [client for client in chosen if client.name in sessions]
        topics = {
            client.name: [
                rules.topic_of(client, magic, kind)
                for magic in broker.format_versions
                for kind in rules.TIMESTAMP_TYPES
            ]
            for client in present
        }
        every = [topic for group in topics.values() for topic in group]
        create_topics(server, every, broker)
        probe_ends(server, every)  # once they answer, their leaders take requests

        def produce(client: Client) -> list[Written]:
            began = time.monotonic()
            session = sessions[client.name]
            entries = run_producer(server, session, client, topics[client.name], broker, report)
            report.seconds[f"{client.name} writes"] = time.monotonic() - began
            return entries

        def consume(client: Client) -> dict[tuple[str, int, int], int]:
            began = time.monotonic()
            session = sessions[client.name]
            times = run_consumer(session, client, written, broker, report)
            run_finder(session, client, written, report)
            report.seconds[f"{client.name} reads"] = time.monotonic() - began
            return times

        written = [entry for entries in pool.map(produce, present) for entry in entries]
        seen = dict(zip([c.name for c in present], pool.map(consume, present), strict=True))
        compare_times(seen, report)
    return report


def stored_formats(log_dir: Path, topics: Iterable[str]) -> dict[str, set[int]]:
    """The message formats found on disk per topic, read from the segment files themselves.

    Every batch or message begins with an offset of 8 bytes and a size of 4; the byte of the format
    is the 17th in all of them.
    """
    found: dict[str, set[int]] = {topic: set() for topic in topics}
    for segment in log_dir.rglob("*.log"):
        topic = segment.parent.name.rpartition("-")[0]
        if topic not in found:
            continue
        data = segment.read_bytes()
        position = 0
        while position + 17 <= len(data):
            found[topic].add(data[position + 16])
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def table(report: Report, magic: int) -> list[str]:
    """One format's producers by consumers, as Markdown."""
    names = list(report.versions)
    lines = [
        "| written by \\ read by | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for producer in names:
        cells = []
        for consumer in names:
            cell = (producer, consumer, magic)
            wrong = len(report.bad[cell]) if cell in report.bad else 0
            good = report.good[cell]
            cells.append(
                f"**{wrong} wrong**, {good} ok" if wrong else f"ok {good}" if good else "-"
            )
        lines.append(f"| {producer} | " + " | ".join(cells) + " |")
    return lines


def render(report: Report, broker: Rules = rules.BROKERS["tidelog"]) -> str:
    """The report as Markdown: clients, one table per format, refusals, skips."""
    lines = ["Clients: " + "; ".join(report.versions.values()) + ".", ""]
    for magic, version in broker.format_versions.items():
        name = f"format {magic} (`message.format.version={version}`)" if version else "format 2"
        lines += [f"Topics of {name}, CreateTime and LogAppendTime; records compared:", ""]
        lines += [*table(report, magic), ""]
    if report.refusals:
        lines += ["| producer | request | outcome |", "|---|---|---|"]
        order = list(report.versions)
        by_client = sorted(report.refusals.items(), key=lambda item: order.index(item[0][0]))
        for (producer, label), outcomes in by_client:
            text = ", ".join(dict.fromkeys(outcomes))
            lines.append(f"| {producer} | {label} | {text} |")
        lines.append("")
    if report.found:
        lines += ["Offsets asked for by place (start, end) and by time, all answered right:", ""]
        lines += ["| client | " + " | ".join(f"format {m}" for m in broker.format_versions) + " |"]
        lines += ["|---" * (len(broker.format_versions) + 1) + "|"]
        for name in (name for name in report.versions if report.found[name, 2]):
            cells = [str(report.found[name, magic]) for magic in broker.format_versions]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    for name, reason in report.skipped.items():
        lines.append(f"- {name}: skipped, {reason}")
    lines.append(f"{len(report.skipped)} client(s) skipped.")
    return "\n".join(lines) + "\n"


def write_between_markers(path: Path, text: str) -> None:
    """Replace what stands between the markers in a Markdown file; ValueError if they are not there."""
    page = path.read_text()
    head, begin, rest = page.partition(MARK_BEGIN)
    _, end, tail = rest.partition(MARK_END)
    if not begin or not end:
        raise ValueError(f"{path} lacks the lines {MARK_BEGIN}{MARK_END}")
    path.write_text(f"{head}{MARK_BEGIN}{text}{MARK_END}{tail}")


def allowed_skips() -> set[str]:
    """Clients that may be missing, by expected_skips.txt: a new skip is a failure."""
    text = (HERE / "expected_skips.txt").read_text()
    names = (line.partition("#")[0].strip() for line in text.splitlines())
    return {name for name in names if name}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the matrix; the exit code is 1 if anything differs or an unexpected client is skipped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("server", help="the broker, host:port")
    parser.add_argument("--clients", help="only these, comma-separated name prefixes")
    parser.add_argument("--broker", choices=rules.BROKERS, default="tidelog", help="what it is")
    parser.add_argument("--write", type=Path, help="a Markdown file with the matrix's markers")
    options = parser.parse_args(arguments)
    prefixes = tuple(options.clients.split(",")) if options.clients else ("",)
    chosen = [client for client in all_clients.CLIENTS if client.name.startswith(prefixes)]
    broker = rules.BROKERS[options.broker]
    began = time.monotonic()
    report = run_matrix(options.server, chosen, broker=broker)
    text = render(report, broker)
    print(text)
    if options.write:
        write_between_markers(options.write, text)
    for name, seconds in report.seconds.items():
        print(f"{name:<30} {seconds:6.1f} s")
    differences = report.differences()
    for line in differences:
        print(f"DIFFERENCE {line}")
    unexpected = sorted(set(report.skipped) - allowed_skips())
    for name in unexpected:
        print(f"UNEXPECTED SKIP {name}: {report.skipped[name]}")
    records = sum(report.good.values())
    seconds = time.monotonic() - began
    print(f"{records} records compared equal, {len(differences)} differences, {seconds:.0f} s")
    return 1 if differences or unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
