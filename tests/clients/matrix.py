"""The matrix: every client's records read by every client, on topics of every message format.

    python tests/clients/matrix.py HOST:PORT                    print the tables
    python tests/clients/matrix.py HOST:PORT --write FILE.md    also put them between FILE's markers
    python tests/clients/matrix.py HOST:PORT --clients a,b --broker kafka-3.9

Each producer writes every codec it has to one topic per format and timestamp type (one partition
per codec); every consumer then reads all partitions, once from the start and once from the middle
of the batches. Contents, offsets, times and time types are compared with expectations.py, and
the times also between readers; offsets are asked for by start, end and time. One more topic of
every producer changes its format and timestamp type between writes. Requests that must be
refused are made and must be refused with exactly the named error, leaving nothing behind.
`--broker` says whose abilities to judge by: the drivers and expectations are themselves tested
against Apache Kafka 3.9 (format 2 only) and 2.8 (all formats).
"""

# ruff: noqa: E402 - run as a script, it must set the path before it imports from here

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.clients import clients as all_clients
from tests.clients import expectations as rules
from tests.clients import reading, topics
from tests.clients.coordination import run as coordination
from tests.clients.environments import Unavailable
from tests.clients.report import Report, render, write_between_markers
from tests.clients.session import DriverError, Session
from tests.clients.transactions import run as transactions
from tests.clients.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.clients import Client
    from tests.clients.expectations import Rules, Topic, Written

PARALLEL = 2
PARTS = ("records", "coordination", "transactions")


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


def topics_of(client: Client, broker: Rules) -> list[Topic]:
    """The topics that the client writes, one per format and timestamp type."""
    return [
        rules.topic_of(client, magic, kind)
        for magic in broker.format_versions
        for kind in rules.TIMESTAMP_TYPES
    ]


def exchange(
    server: str,
    present: Sequence[Client],
    sessions: dict[str, Session],
    broker: Rules,
    report: Report,
) -> None:
    """Everybody writes, then everybody reads what all have written, and asks for offsets."""
    ordinary = {client.name: topics_of(client, broker) for client in present}
    mixed = {client.name: rules.mixed_topic_of(client, broker) for client in present}
    every = [topic for client in present for topic in ordinary[client.name]]
    every += [stages[0] for stages in mixed.values()]
    topics.create_topics(server, every, broker)
    topics.probe_ends(server, every)  # once they answer, their leaders take requests

    def write(client: Client) -> list[Written]:
        began = time.monotonic()
        writer = Writer(server, sessions[client.name], client, broker, report)
        entries = writer.write(ordinary[client.name], mixed[client.name])
        report.seconds[f"{client.name} writes"] = time.monotonic() - began
        return entries

    def read(client: Client) -> reading.Times:
        began = time.monotonic()
        session = sessions[client.name]
        times = reading.read(session, client, partitions, broker, report)
        reading.find(session, client, partitions, broker, report)
        report.seconds[f"{client.name} reads"] = time.monotonic() - began
        return times

    with ThreadPoolExecutor(PARALLEL) as pool:
        entries = [entry for group in pool.map(write, present) for entry in group]
        partitions = reading.partitions_of(entries)
        seen = dict(zip([c.name for c in present], pool.map(read, present), strict=True))
    reading.compare_times(seen, report)


def run_matrix(
    server: str,
    chosen: Sequence[Client] = all_clients.CLIENTS,
    *,
    broker: Rules = rules.BROKERS["tidelog"],
    make: bool = True,
    parts: Sequence[str] = PARTS,
) -> Report:
    """Run the whole matrix against the broker at `server`; nothing is raised for a difference.

    `parts` are the records (and offsets of times), the coordination (groups, commits, administration) and the
    transactions.
    """
    report = Report()
    with ExitStack() as stack:
        sessions = start(chosen, server, stack, report, make=make)
        present = [client for client in chosen if client.name in sessions]
        if not present:
            return report
        if "records" in parts:
            exchange(server, present, sessions, broker, report)
        if "coordination" in parts:
            report.lacking = lacking(present)
            coordination.run(server, present, sessions, report)
        if "transactions" in parts:
            transactions.run(server, present, sessions, report)
    return report


def lacking(present: Sequence[Client]) -> list[str]:
    """What clients cannot take part in, with the reason, one line each."""
    groups = [f"{c.name}: no groups, {c.no_groups}" for c in present if c.no_groups]
    return groups + [f"{c.name}: no commits, {c.no_commits}" for c in present if c.no_commits]


def allowed_skips() -> dict[str, str]:
    """Clients that may be missing and how the reason begins, by expected_skips.txt."""
    text = (HERE / "expected_skips.txt").read_text()
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.partition(": ") for line in lines if line)
    return {name: reason for name, _, reason in pairs}


def unexpected_skips(skipped: dict[str, str]) -> dict[str, str]:
    """What was skipped and is not allowed to be, or not for that reason: each fails the run."""
    allowed = allowed_skips()
    return {
        name: reason
        for name, reason in skipped.items()
        if not allowed.get(name) or not reason.startswith(allowed[name])
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the matrix; the exit code is 1 if anything differs or an unexpected client is skipped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("server", help="the broker, host:port")
    parser.add_argument("--clients", help="only these, comma-separated name prefixes")
    parser.add_argument("--broker", choices=rules.BROKERS, default="tidelog", help="what it is")
    parser.add_argument("--parts", choices=PARTS, nargs="+", default=PARTS, help="not everything")
    parser.add_argument("--write", type=Path, help="a Markdown file with the matrix's markers")
    options = parser.parse_args(arguments)
    prefixes = tuple(options.clients.split(",")) if options.clients else ("",)
    chosen = [client for client in all_clients.CLIENTS if client.name.startswith(prefixes)]
    broker = rules.BROKERS[options.broker]
    began = time.monotonic()
    report = run_matrix(options.server, chosen, broker=broker, parts=options.parts)
    text = render(report, broker)
    print(text)
    if options.write:
        write_between_markers(options.write, text)
    for name, seconds in report.seconds.items():
        print(f"{name:<30} {seconds:6.1f} s")
    differences = report.differences()
    for line in differences:
        print(f"DIFFERENCE {line}")
    unexpected = unexpected_skips(report.skipped)
    for name, reason in unexpected.items():
        print(f"UNEXPECTED SKIP {name}: {reason}")
    records = sum(report.good.values()) + sum(report.isolated.values())
    seconds = time.monotonic() - began
    print(f"{records} records compared equal, {len(differences)} differences, {seconds:.0f} s")
    return 1 if differences or unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
