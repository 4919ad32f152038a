"""The page of a what-if: what each policy would delete, now and later, and how policies differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.pipeline.report import page, plots
from tidelog.pipeline.report.page import Cell, Figure, Finding
from tidelog.pipeline.report.plots import Axis, Line, Plot
from tidelog.pipeline.report.retention import pinned_table
from tidelog.pipeline.report.units import NONE, count, moment, share, span
from tidelog.text import size_of, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.report.page import Numbers, Table


def sentences(topic: Numbers) -> list[str]:
    """Returns a sentence for each policy."""
    found = []
    for row in topic["retention"]:
        later = row["horizon_deleted_bytes"] - row["deleted_bytes"]
        said = (
            f"{row['policy']}: deletes {size_of(row['deleted_bytes'])}"
            f" ({share(row['deleted_bytes'], topic['bytes'])}, {some(row['deleted_records'], 'record')},"
            f" {some(row['deleted_segments'], 'segment')}) with the first round"
        )
        if later:
            said += f", {size_of(later)} later"
        if row["killed_early"]:
            said += f"; {some(row['killed_early'], 'record')} soon after they were written"
        said += " (estimated)." if row["is_estimated"] else "."
        found.append(said)
    return found


def html(report: Numbers) -> str:
    """Returns the page."""
    rounds = "one round" if not report["horizon_ms"] else f"rounds every {span(report['step_ms'])}"
    horizon = f" for {span(report['horizon_ms'])}" if report["horizon_ms"] else ""
    return page.render(
        "whatif.html",
        title="What a retention would delete",
        subtitle=(
            f"Of {report['source']}: {rounds}{horizon} from {moment(report['at_ms'])} UTC, if"
            " nothing is appended. Decided by the broker's own rules; nothing was changed. Run"
            f" {report['run']}."
        ),
        findings=page.in_order(_findings(report)),
        topics=[_topic(topic, report) for topic in report["topics"]],
    )


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
                f"A time from the future would hold {size_of(held)} on Apache Kafka.",
                "tidelog counts such a record as written when it was, and holds nothing back for it.",
            )
        if report["is_sampled"]:
            yield Finding(
                "info",
                name,
                "All numbers are estimated.",
                "The log was sampled over the network. Sizes, and where segments begin and end, are"
                " estimates, and a time from the future between the samples is not seen. With --logs"
                " the answer is exact.",
            )
        elif topic["is_estimated"]:
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
        f"{size_of(row['kept_bytes'])}, {some(row['kept_records'], 'record')}, from"
        f" {moment(row['first_time_kept_ms'])} on."
    )


def _topic(topic: Numbers, report: Numbers) -> dict[str, Any]:
    return {
        "name": topic["topic"],
        "policies": page.table(
            f"What the policies do to {size_of(topic['bytes'])}, {some(topic['records'], 'record')}.",
            (
                *("policy", "first round deletes", "share", "records", "segments"),
                *("all rounds delete", "killed early", "kept", "first event kept"),
            ),
            [_row(row, topic) for row in topic["retention"]],
        ),
        "differences": _differences(topic) if len(topic["retention"]) > 1 else None,
        "curves": curves(topic) if report["horizon_ms"] else None,
        "partitions": _partitions(topic),
        "pinned": pinned_table(topic["pinned"]) if topic["pinned"] else None,
    }


def _row(row: Numbers, topic: Numbers) -> tuple[str | Cell, ...]:
    return (
        row["policy"],
        size_of(row["deleted_bytes"]),
        share(row["deleted_bytes"], topic["bytes"]),
        count(row["deleted_records"]),
        count(row["deleted_segments"]),
        size_of(row["horizon_deleted_bytes"]),
        Cell(count(row["killed_early"]), row["killed_early"] > 0),
        size_of(row["kept_bytes"]),
        moment(row["first_time_kept_ms"])[:16],
    )


def _differences(topic: Numbers) -> Table:
    first, *others = topic["retention"]
    base = first["policy"]
    names = (
        ("deleted_bytes", size_of),
        ("horizon_deleted_bytes", size_of),
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


def curves(topic: Numbers) -> Figure:
    """Returns the bytes that each policy keeps over time; policies with equal curves share a line."""
    together: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, points in topic["curves"].items():
        key = tuple((float(at), float(kept)) for at, kept in points)
        together.setdefault(key, []).append(name)
    named = [(", ".join(names), points) for points, names in together.items()]
    lines = [
        Line(name, style, points, is_step=True)
        for (name, points), style in zip(named, plots.styles(len(named)), strict=True)
    ]
    low = min(int(points[0][0]) for points in together)
    high = max(int(points[-1][0]) for points in together)
    highest = max(topic["bytes"], 1)
    sentence = "Bytes kept after each round, if nothing is appended."
    plot = Plot(
        "Bytes kept",
        sentence,
        Axis(low, high, plots.date_ticks(low, high), "time (UTC)"),
        Axis(0, highest * 1.05, plots.linear_ticks(highest, size_of, base=1024), "bytes kept"),
        lines=lines,
    )
    return Figure(plot, sentence, [(line.style, line.name) for line in lines])


def _partitions(topic: Numbers) -> Table:
    rows = [
        (
            f"{partition['partition']}",
            each["policy"],
            f"{partition['log_start_offset']} to {partition['log_end_offset']}",
            size_of(each["first"]["deleted_size"]),
            size_of(each["last"]["deleted_size"]),
            str(each["last"]["first_offset"]),
            _why(each["deleted"]),
        )
        for partition in topic["partitions"]
        for each in partition["policies"]
    ]
    return page.table(
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
