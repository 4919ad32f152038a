"""The page of a what-if: what each policy would delete, now and later, and how policies differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.report import page, svg
from pipeline.report.page import Cell, Finding
from pipeline.report.retention import pinned_table
from pipeline.report.svg import Axis, Line
from pipeline.report.units import NONE, count, moment, share, size, some, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.report.page import Numbers


def sentences(topic: Numbers) -> list[str]:
    """Returns a sentence for each policy."""
    found = []
    for row in topic["retention"]:
        later = row["horizon_deleted_bytes"] - row["deleted_bytes"]
        said = (
            f"{row['policy']}: deletes {size(row['deleted_bytes'])}"
            f" ({share(row['deleted_bytes'], topic['bytes'])}, {some(row['deleted_records'], 'record')},"
            f" {some(row['deleted_segments'], 'segment')}) with the first round"
        )
        if later:
            said += f", {size(later)} later"
        if row["killed_early"]:
            said += f"; {some(row['killed_early'], 'record')} soon after they were written"
        said += " (estimated)." if row["is_estimated"] else "."
        found.append(said)
    return found


def html(report: Numbers) -> str:
    """Returns the page."""
    rounds = "one round" if not report["horizon_ms"] else f"rounds every {span(report['step_ms'])}"
    horizon = f" for {span(report['horizon_ms'])}" if report["horizon_ms"] else ""
    subtitle = (
        f"Of {', '.join(report['logs'])}: {rounds}{horizon} from {moment(report['at_ms'])} UTC, if nothing"
        f" is appended. Decided by the broker's own rules; nothing was changed. Run {report['run']}."
    )
    body = [page.findings(_findings(report))]
    for topic in report["topics"]:
        body += _topic(topic, report)
    return page.page("What a retention would delete", subtitle, body)


def _findings(report: Numbers) -> Iterator[Finding]:
    for each in report["broken_guards"]:
        yield Finding(
            "bad",
            "",
            f"Policy {each['policy']} breaks {each['guard']}={each['limit']}.",
            f"The value is {count(each['value'])}.",
        )
    if report["guards"] and not report["broken_guards"]:
        yield Finding("ok", "", "Every guard holds.", f"{len(report['guards'])} were asked for.")
    early = span(report["early_ms"])
    for topic in report["topics"]:
        name = topic["topic"]
        for row, said in zip(topic["retention"], sentences(topic), strict=True):
            policy, _, text = said.partition(": ")
            level = "warn" if row["killed_early"] else "info"
            more = f" Soon: within {early} of their append." if row["killed_early"] else ""
            yield Finding(level, name, f"{policy} {text}", f"Kept: {_kept(row)}{more}")
        if topic["pinned"]:
            held = max(row["held_bytes"] for row in topic["pinned"])
            yield Finding(
                "warn",
                name,
                f"A time from the future would hold {size(held)} on Apache Kafka.",
                "tidelog counts such a record as written when it was, and holds nothing back for it.",
            )
        if topic["is_estimated"]:
            yield Finding(
                "info",
                name,
                "Some numbers are estimated.",
                "The append times of some batches are unknown: the dates of their files are used instead.",
            )


def _kept(row: Numbers) -> str:
    if not row["kept_bytes"]:
        return "nothing."
    return (
        f"{size(row['kept_bytes'])}, {some(row['kept_records'], 'record')}, from"
        f" {moment(row['first_time_kept_ms'])} on."
    )


def _topic(topic: Numbers, report: Numbers) -> Iterator[str]:
    yield page.heading(2, f"Topic {topic['topic']}", f"topic-{topic['topic']}")
    yield page.table(
        f"What the policies do to {size(topic['bytes'])}, {count(topic['records'])} records.",
        (
            *("policy", "first round deletes", "share", "records", "segments", "all rounds delete"),
            *("killed early", "kept", "first event kept"),
        ),
        [_row(row, topic) for row in topic["retention"]],
    )
    if len(topic["retention"]) > 1:
        yield _differences(topic)
    if report["horizon_ms"]:
        yield _curves(topic)
    yield from _partitions(topic)
    if topic["pinned"]:
        yield pinned_table(topic["pinned"])


def _row(row: Numbers, topic: Numbers) -> tuple[str | Cell, ...]:
    return (
        row["policy"],
        size(row["deleted_bytes"]),
        share(row["deleted_bytes"], topic["bytes"]),
        count(row["deleted_records"]),
        count(row["deleted_segments"]),
        size(row["horizon_deleted_bytes"]),
        Cell(count(row["killed_early"]), row["killed_early"] > 0),
        size(row["kept_bytes"]),
        moment(row["first_time_kept_ms"])[:16],
    )


def _differences(topic: Numbers) -> str:
    first, *others = topic["retention"]
    base = first["policy"]
    names = (
        ("deleted_bytes", size),
        ("horizon_deleted_bytes", size),
        ("horizon_deleted_records", count),
    )
    return page.table(
        f"How the others differ from {base}: more (+) or less is deleted.",
        ("policy", "first round, bytes", "all rounds, bytes", "all rounds, records"),
        [
            (
                row["policy"],
                *(_signed(row[name] - first[name], words) for name, words in names),
            )
            for row in others
        ],
    )


def _signed(difference: int, words: Any) -> str:
    if not difference:
        return "the same"
    return f"{'+' if difference > 0 else '-'}{words(abs(difference))}"


def _curves(topic: Numbers) -> str:
    curves = topic["curves"]
    low = min(points[0][0] for points in curves.values())
    high = max(points[-1][0] for points in curves.values())
    highest = max(topic["bytes"], 1)
    lines = [
        Line(name, number % 4 + 1, [(float(at), float(kept)) for at, kept in points], True)
        for number, (name, points) in enumerate(curves.items())
    ]
    sentence = "Bytes kept after each round, if nothing is appended."
    drawn = svg.plot(
        "Bytes kept",
        sentence,
        Axis(low, high, svg.date_ticks(low, high), "time (UTC)"),
        Axis(0, highest * 1.05, svg.linear_ticks(highest, size, base=1024), "bytes kept"),
        lines=lines,
    )
    legend = [(number % 4 + 1, name) for number, name in enumerate(curves)]
    return page.heading(3, "Bytes kept") + page.figure(drawn, sentence, legend)


def _partitions(topic: Numbers) -> Iterator[str]:
    yield page.heading(3, "Partitions")
    rows = [
        (
            f"{partition['partition']}",
            each["policy"],
            f"{partition['log_start_offset']} to {partition['log_end_offset']}",
            size(each["first"]["deleted_size"]),
            size(each["last"]["deleted_size"]),
            str(each["last"]["first_offset"]),
            _why(each["deleted"]),
        )
        for partition in topic["partitions"]
        for each in partition["policies"]
    ]
    yield page.table(
        "By partition."
        if len(rows) <= 80
        else f"By partition: the first 80 of {len(rows)} rows, all in report.json.",
        (
            *("partition", "policy", "offsets", "first round deletes", "all rounds delete"),
            *("first offset kept", "by"),
        ),
        rows[:80],
    )


def _why(deleted: list[Numbers]) -> str:
    policies = dict.fromkeys(each["policy"] for each in deleted)
    return ", ".join(policies) or NONE
