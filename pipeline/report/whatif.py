"""The page of a what-if: what each policy would delete, now and later, and how policies differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.report import page, plots
from tidelog.pipeline.report.page import Heading, ReportFinding
from tidelog.pipeline.report.plots import Axis, Line, Plot
from tidelog.pipeline.report.retention import pinned_table, policies_table
from tidelog.pipeline.report.units import NONE, count, moment, share, span
from tidelog.text import size_of, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.pipeline.report.page import Block, Numbers, ReportTable


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
    return page.html(
        "What a retention would delete",
        f"Of {report['source']}: {rounds}{horizon} from {moment(report['at_ms'])} UTC, if nothing is"
        " appended. Decided by the broker's own rules; nothing was changed."
        f" Run {report['run']}.",
        _findings(report),
        (block for topic in report["topics"] for block in _topic(topic, report)),
    )


def _findings(report: Numbers) -> Iterator[ReportFinding]:
    for each in report["broken_guards"]:
        yield ReportFinding(
            "bad",
            "",
            f"Policy {each['policy']} breaks {each['guard']}={each['limit']}.",
            f"The value is {count(each['value'])}.",
        )
    if report["guards"] and not report["broken_guards"]:
        yield ReportFinding(
            "ok", "", "Every guard holds.", f"{len(report['guards'])} were asked for."
        )
    early = span(report["early_ms"])
    for topic in report["topics"]:
        name = topic["topic"]
        for row, said in zip(topic["retention"], sentences(topic), strict=True):
            policy, _, text = said.partition(": ")
            level = "warn" if row["killed_early"] else "info"
            more = f" Soon: within {early} of their append." if row["killed_early"] else ""
            yield ReportFinding(level, name, f"{policy} {text}", f"Kept: {_kept(row)}{more}")
        if topic["pinned"]:
            held = max(row["held_bytes"] for row in topic["pinned"])
            yield ReportFinding(
                "warn",
                name,
                f"A time from the future would hold {size_of(held)} on Apache Kafka.",
                "tidelog counts such a record as written when it was, and holds nothing back for it.",
            )
        if report["is_sampled"]:
            yield ReportFinding(
                "info",
                name,
                "All numbers are estimated.",
                "The log was sampled over the network. Sizes, and where segments begin and end, are"
                " estimates, and a time from the future between the samples is not seen. With --logs"
                " the answer is exact.",
            )
        elif topic["is_estimated"]:
            yield ReportFinding(
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


def _topic(topic: Numbers, report: Numbers) -> Iterator[Block]:
    rows = topic["retention"]
    yield Heading(f"Topic {topic['topic']}")
    what = f"{size_of(topic['bytes'])}, {some(topic['records'], 'record')}"
    caption = f"What the policies do to {what}."
    yield policies_table(caption, rows, topic["bytes"], with_horizon=True)
    if len(rows) > 1:
        yield _differences(rows[0], rows[1:])
    if report["horizon_ms"]:
        yield Heading("Bytes kept", 3)
        yield curves(topic)
    yield Heading("Partitions", 3)
    yield _partitions(topic)
    if topic["pinned"]:
        yield pinned_table(topic["pinned"])


def _differences(first: Numbers, others: Sequence[Numbers]) -> ReportTable:
    def differing(name: str, words: Callable[[int], str]) -> Callable[[Numbers], str]:
        return lambda row: _signed(row[name] - first[name], words)

    return page.table(
        f"How the others differ from {first['policy']}: more (+) or less is deleted.",
        others,
        {
            "policy": lambda row: row["policy"],
            "first round, bytes": differing("deleted_bytes", size_of),
            "all rounds, bytes": differing("horizon_deleted_bytes", size_of),
            "all rounds, records": differing("horizon_deleted_records", count),
        },
    )


def _signed(difference: int, words: Callable[[int], str]) -> str:
    if not difference:
        return "the same"
    return f"{'+' if difference > 0 else '-'}{words(abs(difference))}"


def curves(topic: Numbers) -> Plot:
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
    return Plot(
        "Bytes kept",
        "Bytes kept after each round, if nothing is appended.",
        Axis(low, high, plots.date_ticks(low, high), "time (UTC)"),
        Axis(0, highest * 1.05, plots.linear_ticks(highest, size_of, base=1024), "bytes kept"),
        lines=lines,
    )


def _partitions(topic: Numbers) -> ReportTable:
    return page.table(
        "By partition.",
        [(one, each) for one in topic["partitions"] for each in one["policies"]],
        {
            "partition": lambda pair: str(pair[0]["partition"]),
            "policy": lambda pair: pair[1]["policy"],
            "offsets": lambda pair: f"{pair[0]['log_start_offset']} to {pair[0]['log_end_offset']}",
            "first round deletes": lambda pair: size_of(pair[1]["first"]["deleted_size"]),
            "all rounds delete": lambda pair: size_of(pair[1]["last"]["deleted_size"]),
            "first offset kept": lambda pair: str(pair[1]["last"]["first_offset"]),
            "by": lambda pair: (
                ", ".join(dict.fromkeys(each["policy"] for each in pair[1]["deleted"])) or NONE
            ),
        },
        most=80,
    )
