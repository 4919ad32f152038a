"""The page of an audit: the important findings in sentences; then figures, plots and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.report import audit_plots, judgement, page
from tidelog.pipeline.report.page import Cell, Heading, KeyFigures, ReportFinding
from tidelog.pipeline.report.retention import pinned_table, policies_table
from tidelog.pipeline.report.units import NONE, count, moment, share, span
from tidelog.pipeline.times import date_of
from tidelog.text import size_of, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.report.page import Block, Numbers, ReportTable

_MOST_ROWS: Final = 40


def html(report: Numbers) -> str:
    """Returns the page."""
    topics = report["topics"]
    records = some(sum(topic["summary"]["records"] for topic in topics), "record")
    return page.html(
        "What the timestamps are worth",
        f"{records} of {some(len(topics), 'topic')}, read from {report['source']}; judged as of"
        f" {moment(report['now_ms'])} UTC. Run {report['run']}.",
        [*judgement.findings(report), *(ReportFinding(**each) for each in report["findings"])],
        _body(report),
    )


def _body(report: Numbers) -> Iterator[Block]:
    for topic in report["topics"]:
        yield Heading(f"Topic {topic['topic']}")
        yield from _topic(topic) if topic["summary"]["records"] else ["It has no records."]
    if report["groups"]:
        yield Heading("How far groups are behind")
        yield _groups(report["groups"])
    if report.get("comparison"):
        yield Heading("What has changed")
        yield judgement.table(report["comparison"])
    yield Heading("What the words mean")
    yield (
        f"From the future: more than {span(report['settings']['margin_ms'])} beyond the append time, or"
        " beyond now where that is unknown. In another unit: more than ten years from now, and within"
        " ten years of it when read in seconds, micro- or nanoseconds. Plausible: a time that is"
        " neither. Lateness: how far a plausible record is behind the largest plausible event time"
        " before it in its partition; 0 for one in order. Counts, largest and smallest values are"
        f" exact; quantiles are never too small, and at most {100 * report['quantile_error']:.1f} %"
        " too large."
    )


def _topic(topic: Numbers) -> Iterator[Block]:
    yield _figures(topic["summary"])
    yield _kinds(topic["summary"])
    for heading, shown in audit_plots.of_topic(topic):
        yield Heading(heading, 3)
        yield shown
    yield Heading("Partitions", 3)
    disorder = audit_plots.disorder(topic["partitions"][:_MOST_ROWS])
    if disorder is not None:
        yield disorder
    yield _partitions(topic["partitions"])
    windows = list(_windows(topic))
    if windows:
        yield Heading("Which window would have refused what", 3)
        yield from windows
    if topic["retention"]:
        yield Heading("Which retention would delete what", 3)
        yield _policies(topic)
        if topic["pinned"]:
            yield pinned_table(topic["pinned"])
    if topic["producers"]:
        yield Heading("Producers and their clocks", 3)
        yield _producers(topic)


def _figures(summary: Numbers) -> KeyFigures:
    lateness, delay = summary["lateness_ms"], summary["delay_ms"]
    return KeyFigures(
        [
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
    )


def _day(ms: int | None) -> str:
    return NONE if ms is None else date_of(ms)


def _kinds(summary: Numbers) -> ReportTable:
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
        rows,
        {
            "times": lambda row: row[0],
            "records": lambda row: Cell(count(row[1]), row[2] and row[1] > 0),
            "share": lambda row: share(row[1], summary["records"]),
        },
    )


def _partitions(partitions: list[Numbers]) -> ReportTable:
    return page.table(
        "Times of each partition (UTC).",
        partitions,
        {
            "partition": lambda p: str(p["partition"]),
            "records": lambda p: count(p["records"]),
            "bytes": lambda p: size_of(p["bytes"]),
            "first event": lambda p: moment(p["least_plausible_ms"])[:16],
            "last event": lambda p: moment(p["largest_plausible_ms"])[:16],
            "out of order": lambda p: share(p["out_of_order"], p["plausible"]),
            "99.9 % no later than": lambda p: span(p["lateness_ms"]["p99_9"]),
            "latest by": lambda p: span(p["lateness_ms"]["max"]),
            "99.9 % arrive within": lambda p: span(p["delay_ms"]["p99_9"]),
        },
        most=_MOST_ROWS,
    )


# --- what to set ---------------------------------------------------------------------------------


def _policies(topic: Numbers) -> ReportTable:
    held = size_of(topic["log_bytes"])
    caption = (
        f"What one round of retention would delete of {held}, by the broker's own rules. Killed early:"
        " written less than a day ago."
    )
    if any(row["is_estimated"] for row in topic["retention"]):
        caption += " Estimated: some append times are unknown, and the dates of the files are used instead."
    return policies_table(caption, topic["retention"], topic["log_bytes"], with_horizon=False)


def _windows(topic: Numbers) -> Iterator[ReportTable]:
    summary, basis = topic["summary"], topic["safe_windows"]["basis"]
    before, known = "message.timestamp.before.max.ms", summary["delay_ms"]["count"]
    if basis == "lateness":
        caption = (
            "The append times of these records are unknown. At least so many would have been refused,"
            " judged by how far they are behind the largest event time before them."
        )
        yield _limits(caption, before, summary["lateness_beyond"], summary["plausible"])
    elif basis == "delay":
        caption = (
            f"Records of {count(known)} with a known append time that each limit would have refused,"
            " and with each of them its whole batch."
        )
        yield _limits(caption, before, summary["beyond_before"], known)
        after = "message.timestamp.after.max.ms"
        yield _limits("The same of the future.", after, summary["beyond_after"], known)


def _limits(caption: str, setting: str, limits: Sequence[Numbers], whole: int) -> ReportTable:
    return page.table(
        caption,
        limits,
        {
            setting: lambda each: f"{span(each['limit_ms'])} ({each['limit_ms']})",
            "refused": lambda each: Cell(count(each["records"]), each["records"] > 0),
            "share": lambda each: share(each["records"], whole),
        },
    )


def _producers(topic: Numbers) -> ReportTable:
    wrong = {each["producer_id"] for each in topic["skewed_producers"]}
    return page.table(
        "Append time minus event time of each producer id; -1: it says none.",
        sorted(
            topic["producers"],
            key=lambda each: (each["producer_id"] not in wrong, -abs(each["median_delay_ms"])),
        ),
        {
            "producer": lambda each: str(each["producer_id"]),
            "records": lambda each: count(each["records"]),
            "half within": lambda each: Cell(
                span(each["median_delay_ms"]), each["producer_id"] in wrong
            ),
            "99 % within": lambda each: span(each["p99_delay_ms"]),
            "newest event": lambda each: _ahead(each["least_delay_ms"]),
        },
        most=_MOST_ROWS,
    )


def _ahead(delay_ms: int) -> str:
    if delay_ms < 0:
        return f"{span(-delay_ms)} ahead"
    return f"{span(delay_ms)} old" if delay_ms else "at once"


def _groups(groups: Sequence[Numbers]) -> ReportTable:
    return page.table(
        "Of the first record that a group has not read: how long ago it happened and was appended, and how"
        " much event time is between it and the newest record.",
        groups,
        {
            "group": lambda each: each["group"],
            "partition": lambda each: f"{each['topic']}-{each['partition']}",
            "records": lambda each: count(each["records"]),
            "happened": lambda each: (
                _ago(each["event_lag_ms"]) if each["records"] else "nothing to read"
            ),
            "appended": lambda each: _ago(each["append_lag_ms"]),
            "event time behind": lambda each: span(each["event_behind_ms"]),
        },
    )


def _ago(ms: int | None) -> str:
    return NONE if ms is None else f"{span(ms)} ago" if ms >= 0 else f"{span(-ms)} ahead"
