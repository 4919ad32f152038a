"""What a consumer does in the matrix: read every partition, ask for offsets; and the comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients import expectations as rules
from tests.clients.session import ANSWER_TIMEOUT_S, DriverError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.clients import Client
    from tests.clients.expectations import Rules, Written
    from tests.clients.report import Report
    from tests.clients.session import Session

    # The entries of one partition, in the order they were written.
    Partition = list[Written]
    # The times a reader was told, by topic, partition and offset.
    Times = dict[tuple[str, int, int], int]

CONSUME_TIMEOUT_MS = 100_000  # below ANSWER_TIMEOUT_S: a driver says nothing while it reads
DIFFERENCES_SHOWN = 10
MIDDLE = 3  # an offset within a batch


def partitions_of(written: Sequence[Written]) -> list[Partition]:
    """Bring together what lies in one partition."""
    found: dict[tuple[str, int], Partition] = {}
    for entry in written:
        found.setdefault((entry.topic.name, entry.partition), []).append(entry)
    return list(found.values())


def place_of(partition: Partition) -> tuple[str, int]:
    """Topic and partition number."""
    return partition[0].topic.name, partition[0].partition


def starts_of(partition: Partition) -> tuple[int, int]:
    """Where reading begins: at the start, and within a batch in the middle of the log."""
    return 0, partition[len(partition) // 2].base_offset + MIDDLE


def read(
    session: Session,
    consumer: Client,
    partitions: Sequence[Partition],
    broker: Rules,
    report: Report,
) -> Times:
    """Read everything back and compare it; the times the reader was told."""
    times: Times = {}
    readable = [
        partition
        for partition in partitions
        if all(rules.readable(e.topic, e.codec, consumer, broker) for e in partition)
    ]
    for turn in (0, 1):
        starts = [starts_of(partition)[turn] for partition in readable]
        wanted = [
            {
                "topic": topic,
                "partition": number,
                "from": start,
                "count": sum(len(entry.records) for entry in partition) - start,
            }
            for partition, start in zip(readable, starts, strict=True)
            for topic, number in [place_of(partition)]
        ]
        command = {"op": "consume", "timeout_ms": CONSUME_TIMEOUT_MS, "partitions": wanted}
        try:
            answers = session.ask(command, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{consumer.name} reads, turn {turn}: {error}")
            continue
        by_place = {(answer["topic"], answer["partition"]): answer for answer in answers}
        for partition, start in zip(readable, starts, strict=True):
            answer = by_place.get(place_of(partition), {"records": []})
            compare(partition, consumer, start, answer, report)
            note_times(partition, consumer, answer, times)
    return times


def compare(
    partition: Partition, consumer: Client, start: int, answer: dict[str, Any], report: Report
) -> None:
    """Compare one partition as read with what must be there; counts go to the report."""
    topic = partition[0].topic
    cell = (topic.producer.name, consumer.name, topic.group)
    expected = [
        (one, entry)
        for entry in partition
        for one in rules.expect(entry, consumer)
        if one.offset >= start
    ]
    records = answer["records"]
    problem = f" ({answer['problem']})" if answer.get("problem") else ""
    where = f"{topic.name} {partition[0].codec} from {start}"
    if len(records) != len(expected):
        offsets = [record["offset"] for record in records]
        report.bad[cell].append(f"{where}: offsets {offsets}{problem}")
        return
    for (one, entry), record in zip(expected, records, strict=True):
        wrong = rules.difference(one, record, consumer, entry.topic, entry.codec)
        if wrong:
            report.bad[cell].append(f"{where}, offset {one.offset}: {wrong}{problem}")
        else:
            report.good[cell] += 1


def note_times(
    partition: Partition, consumer: Client, answer: dict[str, Any], times: Times
) -> None:
    """Remember the times a reader was told, but for those that nobody promises."""
    entry_at = {
        entry.base_offset + number: entry
        for entry in partition
        for number in range(len(entry.records))
    }
    for record in answer["records"]:
        entry, timestamp = entry_at.get(record["offset"]), record["timestamp"]
        if entry is None or timestamp is None:
            continue
        if rules.shows_true_time(consumer, entry.topic, entry.codec, timestamp):
            times[*place_of(partition), record["offset"]] = timestamp


def compare_times(seen: dict[str, Times], report: Report) -> None:
    """Every reader that was given a time for a record must have been given the same."""
    told: dict[tuple[str, int, int], dict[int, str]] = {}
    for consumer, times in seen.items():
        for place, timestamp in times.items():
            if timestamp != rules.NO_TIMESTAMP:
                told.setdefault(place, {}).setdefault(timestamp, consumer)
    differing = [(place, answers) for place, answers in sorted(told.items()) if len(answers) > 1]
    for (topic, partition, offset), answers in differing[:DIFFERENCES_SHOWN]:
        report.problems.append(f"{topic}/{partition} offset {offset}: times differ {answers}")
    if len(differing) > DIFFERENCES_SHOWN:
        report.problems.append(f"{len(differing)} records in all whose times differ")


def find(
    session: Session,
    client: Client,
    partitions: Sequence[Partition],
    broker: Rules,
    report: Report,
) -> None:
    """Ask ListOffsets what the client can ask: starts and ends, and offsets of times."""
    if not broker.finds_in_format_0:
        partitions = [p for p in partitions if p[0].topic.group != "format 0"]
    if client.finds == "nothing" or not partitions:
        return
    questions = [rules.lookups(partition) for partition in partitions]
    wrong = []
    for number in range(2 if client.finds == "ends" else len(questions[0])):
        wanted = [
            {"topic": topic, "partition": partition, "timestamp": asked[number][0]}
            for (topic, partition), asked in zip(map(place_of, partitions), questions, strict=True)
        ]
        try:
            answers = session.ask({"op": "find", "partitions": wanted}, ANSWER_TIMEOUT_S)
        except DriverError as error:
            report.problems.append(f"{client.name} finds offsets: {error}")
            return
        by_place = {(one["topic"], one["partition"]): one["offset"] for one in answers}
        for partition, asked in zip(partitions, questions, strict=True):
            target, expected = asked[number]
            found = by_place.get(place_of(partition), "nothing")
            if found == expected:
                report.found[client.name, partition[0].topic.group] += 1
            else:
                place = f"{partition[0].topic.name} {partition[0].codec}"
                wrong.append(f"{place} at {target}: offset {found} instead of {expected}")
    if wrong:
        first = "; ".join(wrong[:3])
        report.problems.append(f"{client.name} finds {len(wrong)} wrong offsets: {first}")
