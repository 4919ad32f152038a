"""The page of an audit: the important findings in sentences; then figures, plots and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.report import audit_plots, judgement, page
from tidelog.pipeline.report.page import Cell, Finding
from tidelog.pipeline.report.retention import pinned_table, policies_table
from tidelog.pipeline.report.units import NONE, count, moment, share, span
from tidelog.pipeline.times import date_of
from tidelog.text import size_of, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.pipeline.report.page import Numbers, Table

_MOST_ROWS: Final = 40


def html(report: Numbers) -> str:
    """Returns the page."""
    topics = report["topics"]
    records = some(sum(topic["summary"]["records"] for topic in topics), "record")
    return page.render(
        "audit.html",
        title="What the timestamps are worth",
        subtitle=(
            f"{records} of {some(len(topics), 'topic')}, read from {report['source']}; judged as"
            f" of {moment(report['now_ms'])} UTC. Run {report['run']}."
        ),
        findings=page.in_order(
            [*judgement.findings(report), *(Finding(**each) for each in report["findings"])]
        ),
        topics=[_topic(topic) for topic in topics],
        groups=_groups(report["groups"]) if report["groups"] else None,
        comparison=judgement.table(report["comparison"]) if report.get("comparison") else None,
        margin_ms=report["settings"]["margin_ms"],
        error=f"{100 * report['quantile_error']:.1f} %",
    )


def _topic(topic: Numbers) -> dict[str, Any]:
    summary = topic["summary"]
    if not summary["records"]:
        return {"name": topic["topic"], "records": 0}
    return {
        "name": topic["topic"],
        "records": summary["records"],
        "numbers": _numbers(summary),
        "kinds": _kinds(summary),
        "plots": audit_plots.of_topic(topic),
        "disorder": audit_plots.disorder(topic["partitions"][:_MOST_ROWS]),
        "partitions": _partitions(topic["partitions"]),
        "advice": [(heading, tables) for heading, tables in _advice(topic) if tables],
    }


def _numbers(summary: Numbers) -> list[tuple[str, str]]:
    lateness, delay = summary["lateness_ms"], summary["delay_ms"]
    return [
        ("records", count(summary["records"])),
        ("bytes in the log", size_of(summary["bytes"])),
        ("out of order", share(summary["out_of_order"], summary["plausible"])),
        ("over a second late", share(summary["later_than_a_second"], summary["plausible"])),
        ("99.9 % no later than", span(lateness["p99_9"])),
        ("latest by", span(lateness["max"])),
        ("99.9 % arrive within", span(delay["p99_9"])),
        ("first event", _day(summary["least_plausible_ms"])),
        ("last event", _day(summary["largest_plausible_ms"])),
    ]


def _day(ms: int | None) -> str:
    return NONE if ms is None else date_of(ms)


def _kinds(summary: Numbers) -> Table:
    records = summary["records"]
    suspects = sum(summary["suspects"].values())
    rows = [
        ("plausible", summary["plausible"], False),
        ("from the future", summary["future"], True),
        ("in another unit, probably", suspects, True),
        ("without a time", summary["missing"], True),
        ("before 1970", summary["negative"], False),
        ("stamped by the broker (LogAppendTime)", summary["log_append_time"], False),
        ("append time known", summary["append_time_known"], False),
    ]
    return page.table(
        "What kinds of times there are; a record may be of several kinds.",
        ("times", "records", "share"),
        [
            (name, Cell(count(number), is_bad and number > 0), share(number, records))
            for name, number, is_bad in rows
        ],
    )


def _partitions(partitions: list[Numbers]) -> Table:
    return page.table(
        _cut("Times of each partition (UTC).", len(partitions)),
        (
            *("partition", "records", "bytes", "first event", "last event", "out of order"),
            *("99.9 % no later than", "latest by", "99.9 % arrive within"),
        ),
        [
            (
                str(p["partition"]),
                count(p["records"]),
                size_of(p["bytes"]),
                moment(p["least_plausible_ms"])[:16],
                moment(p["largest_plausible_ms"])[:16],
                share(p["out_of_order"], p["plausible"]),
                span(p["lateness_ms"]["p99_9"]),
                span(p["lateness_ms"]["max"]),
                span(p["delay_ms"]["p99_9"]),
            )
            for p in partitions[:_MOST_ROWS]
        ],
    )


def _cut(caption: str, rows: int) -> str:
    return (
        caption
        if rows <= _MOST_ROWS
        else f"{caption} The first {_MOST_ROWS} of {rows}; all in report.json."
    )


# --- what to set ---------------------------------------------------------------------------------


def _advice(topic: Numbers) -> Iterator[tuple[str, list[Table]]]:
    yield "Which window would have refused what", list(_windows(topic))
    if topic["retention"]:
        tables = [policies_table(topic["retention"], topic["log_bytes"])]
        tables += [pinned_table(topic["pinned"])] if topic["pinned"] else []
        yield "Which retention would delete what", tables
    if topic["producers"]:
        yield "Producers and their clocks", [_producers(topic)]


def _windows(topic: Numbers) -> Iterator[Table]:
    summary, basis = topic["summary"], topic["safe_windows"]["basis"]
    heads = ("message.timestamp.before.max.ms", "refused", "share")
    if basis == "lateness":
        yield page.table(
            "The append times of these records are unknown. At least so many would have been refused,"
            " judged by how far they are behind the largest event time before them.",
            heads,
            [_limit(each, summary["plausible"]) for each in summary["lateness_beyond"]],
        )
    elif basis == "delay":
        known = summary["delay_ms"]["count"]
        yield page.table(
            f"Records of {count(known)} with a known append time that each limit would have refused,"
            " and with each of them its whole batch.",
            heads,
            [_limit(each, known) for each in summary["beyond_before"]],
        )
        yield page.table(
            "The same of the future.",
            ("message.timestamp.after.max.ms", *heads[1:]),
            [_limit(each, known) for each in summary["beyond_after"]],
        )


def _limit(each: Numbers, whole: int) -> tuple[str, Cell, str]:
    words = f"{span(each['limit_ms'])} ({each['limit_ms']})"
    return words, Cell(count(each["records"]), each["records"] > 0), share(each["records"], whole)


def _producers(topic: Numbers) -> Table:
    wrong = {each["producer_id"] for each in topic["skewed_producers"]}
    order = sorted(
        topic["producers"],
        key=lambda each: (each["producer_id"] not in wrong, -abs(each["median_delay_ms"])),
    )
    return page.table(
        _cut("Append time minus event time of each producer id; -1: it says none.", len(order)),
        ("producer", "records", "half within", "99 % within", "newest event"),
        [
            (
                str(each["producer_id"]),
                count(each["records"]),
                Cell(span(each["median_delay_ms"]), each["producer_id"] in wrong),
                span(each["p99_delay_ms"]),
                _ahead(each["least_delay_ms"]),
            )
            for each in order[:_MOST_ROWS]
        ],
    )


def _ahead(delay_ms: int) -> str:
    if delay_ms < 0:
        return f"{span(-delay_ms)} ahead"
    return f"{span(delay_ms)} old" if delay_ms else "at once"


def _groups(groups: Iterable[Numbers]) -> Table:
    return page.table(
        "Of the first record that a group has not read: how long ago it happened and was appended, and how"
        " much event time is between it and the newest record.",
        ("group", "partition", "records", "happened", "appended", "event time behind"),
        [
            (
                each["group"],
                f"{each['topic']}-{each['partition']}",
                count(each["records"]),
                _ago(each["event_lag_ms"]) if each["records"] else "nothing to read",
                _ago(each["append_lag_ms"]),
                span(each["event_behind_ms"]),
            )
            for each in groups
        ],
    )


def _ago(ms: int | None) -> str:
    return NONE if ms is None else f"{span(ms)} ago" if ms >= 0 else f"{span(-ms)} ahead"
