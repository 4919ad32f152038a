"""The page of an audit: the important findings in sentences; then figures, plots and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.report import page, svg
from pipeline.report.page import Cell, Finding
from pipeline.report.retention import pinned_table, policies_table
from pipeline.report.svg import Axis, Bar, Line, Mark
from pipeline.report.units import NONE, TIME_TICKS, count, moment, share, size, span, tick
from pipeline.times import date_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.report.page import Numbers

_DAY: Final = 86_400_000
_MOST_ROWS: Final = 40


def html(report: Numbers) -> str:
    """Returns the page."""
    topics = report["topics"]
    found = [Finding(**each) for each in report["findings"]]
    subtitle = (
        f"{count(sum(t['summary']['records'] for t in topics))} records of"
        f" {len(topics)} topic{'s' if len(topics) != 1 else ''}, read from {report['source']};"
        f" judged as of {moment(report['now_ms'])} UTC. Run {report['run']}."
    )
    body = [page.findings(found, with_topic=len(topics) > 1)]
    if len(topics) > 1:
        body.append(page.links((f"topic-{t['topic']}", t["topic"]) for t in topics))
    for topic in topics:
        body += _topic(topic)
    if report["groups"]:
        body += _groups(report["groups"])
    body += _terms(report)
    return page.page("What the timestamps are worth", subtitle, body)


def _topic(topic: Numbers) -> Iterator[str]:
    summary = topic["summary"]
    yield page.heading(2, f"Topic {topic['topic']}", f"topic-{topic['topic']}")
    if not summary["records"]:
        yield page.paragraph("It has no records.")
        return
    lateness, delay = summary["lateness_ms"], summary["delay_ms"]
    yield page.numbers(
        [
            ("records", count(summary["records"])),
            ("bytes in the log", size(summary["bytes"])),
            ("out of order", share(summary["out_of_order"], summary["plausible"])),
            (
                "over a second late",
                share(summary["later_than_a_second"], summary["plausible"]),
            ),
            ("99.9 % no later than", span(lateness["p99_9"])),
            ("latest by", span(lateness["max"])),
            ("99.9 % arrive within", span(delay["p99_9"])),
            ("first event", _day(summary["least_plausible_ms"])),
            ("last event", _day(summary["largest_plausible_ms"])),
        ]
    )
    yield _odd(summary)
    yield _lateness_plot(summary, topic["late_curve"])
    if topic["plot"]["event_ms"]:
        yield _hours_plot(topic)
    if delay["count"]:
        yield _delay_plot(topic)
    yield _partitions(topic["partitions"])
    yield from _windows(topic)
    yield from _retention(topic)
    if topic["producers"]:
        yield _producers(topic)


def _day(ms: int | None) -> str:
    return NONE if ms is None else date_of(ms)


def _odd(summary: Numbers) -> str:
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


# --- plots ---------------------------------------------------------------------------------------


def _lateness_plot(summary: Numbers, curve: list[list[int]]) -> str:
    plausible, late = summary["plausible"], summary["out_of_order"]
    if not late:
        return ""
    lateness = summary["lateness_ms"]
    low = 10.0 ** -len(str(plausible))
    points = [(1.0, late / plausible)]
    points += [(float(max(ms, 1)), max(left / plausible, low)) for ms, left in curve]
    x = Axis(1, _above(lateness["max"]), _spans(lateness["max"]), "lateness", is_log=True)
    y = Axis(low, 1, svg.log_ticks(low, 1, _percent), "records later than that", is_log=True)
    marks = [Mark(lateness[name], words) for name, words in _MARKS if (lateness[name] or 0) > 0]
    sentence = (
        f"{share(late, plausible)} of the records are behind one before them in their partition;"
        f" 99.9 % of all are no later than {span(lateness['p99_9'])}, the latest is"
        f" {span(lateness['max'])} late."
    )
    drawn = svg.plot(
        "How late records are", sentence, x, y, lines=[Line("later", 1, points, True)], marks=marks
    )
    return page.heading(3, "How late records are") + page.figure(drawn, sentence)


_MARKS: Final = (("p99", "99 %"), ("p99_9", "99.9 %"), ("max", "latest"))


def _above(value: int | None) -> float:
    return max(float(value or 0) * 1.5, 100.0)


def _spans(longest: int | None) -> list[tuple[float, str]]:
    """Returns the marks of an axis of spans, with enough space for their names."""
    ticks = [each for each in TIME_TICKS if each <= _above(longest)]
    return [(float(each), tick(each)) for each in ticks]


def _percent(value: float) -> str:
    return f"{100 * value:.12f}".rstrip("0").rstrip(".") + " %"


def _shown(topic: Numbers) -> tuple[list[int], int, int, str]:
    """Returns the rows to draw, the range of the time axis, and a sentence about the rest."""
    plot, (low, high) = topic["plot"], topic["plot_range_ms"]
    rows = [n for n, at in enumerate(plot["event_ms"]) if low <= at < high]
    plausible = sum(plot["records"]) - sum(plot["odd"])
    outside = plausible - sum(plot["records"][n] - plot["odd"][n] for n in rows)
    return rows, low, high, f" {count(outside)} are outside of the plot." if outside else ""


def _hours_plot(topic: Numbers) -> str:
    plot, span_ms = topic["plot"], topic["plot_span_ms"]
    rows, low, high, outside = _shown(topic)
    if not rows:
        return ""
    plausible = [r - o for r, o in zip(plot["records"], plot["odd"], strict=True)]
    bars = [
        Bar(
            plot["event_ms"][n],
            plot["event_ms"][n] + span_ms,
            (plausible[n] - plot["later_than_a_second"][n], plot["later_than_a_second"][n]),
            f"{moment(plot['event_ms'][n])}: {count(plausible[n])} records,"
            f" {count(plot['later_than_a_second'][n])} more than a second late",
        )
        for n in rows
    ]
    highest = max(plausible[n] for n in rows) or 1
    sentence = (
        f"Plausible records by event time, {span(span_ms)} each;"
        f" the busiest has {count(highest)}.{outside}"
    )
    drawn = svg.plot(
        "When events happened",
        sentence,
        Axis(low, high, svg.date_ticks(low, high), "event time (UTC)"),
        Axis(0, highest * 1.05, svg.linear_ticks(highest, _thousands), "records"),
        bars=bars,
    )
    legend = [(1, "in order, or hardly late"), (2, "more than a second late")]
    return page.heading(3, "When events happened") + page.figure(drawn, sentence, legend)


def _thousands(value: float) -> str:
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _delay_plot(topic: Numbers) -> str:
    plot, span_ms, summary = topic["plot"], topic["plot_span_ms"], topic["summary"]
    rows, low, high, _ = _shown(topic)
    rows = [n for n in rows if plot["delays"][n]]
    if not rows:
        return ""
    names = (("p99_9", "99.9 %", 4), ("p99", "99 %", 2), ("p50", "half", 1))
    values = [plot[f"delay_{name}_ms"][n] for name, _, _ in names for n in rows]
    largest = max(*values, 1)
    lines = [
        Line(f"{words} arrive within this", colour, points)
        for name, words, colour in names
        for points in _pieces(
            [(plot["event_ms"][n], max(plot[f"delay_{name}_ms"][n], 1)) for n in rows], span_ms
        )
    ]
    ticks = _spans(largest)[:: max(1, len(_spans(largest)) // 9 + 1)]
    sentence = (
        f"Append time minus event time, by event time: half of all records within"
        f" {span(summary['delay_ms']['p50'])}, 99.9 % within {span(summary['delay_ms']['p99_9'])}."
        " What came from the future is drawn at the bottom."
    )
    drawn = svg.plot(
        "How long records take to arrive",
        sentence,
        Axis(low, high, svg.date_ticks(low, high), "event time (UTC)"),
        Axis(1, _above(largest), ticks, "append minus event", is_log=True),
        lines=lines,
    )
    legend = [(colour, f"{words} within") for _, words, colour in reversed(names)]
    return page.heading(3, "How long records take to arrive") + page.figure(drawn, sentence, legend)


def _pieces(points: list[tuple[int, int]], span_ms: int) -> list[list[tuple[float, float]]]:
    """Returns points as lines with a gap where a span has no data; each point is mid-span."""
    found: list[list[tuple[float, float]]] = []
    previous = None
    for at, value in points:
        if previous is None or at - previous > span_ms:
            found.append([])
        found[-1].append((at + span_ms / 2, float(value)))
        previous = at
    return found


def _partitions(partitions: list[Numbers]) -> str:
    shares = [(p["out_of_order"] / p["plausible"] if p["plausible"] else 0.0) for p in partitions]
    parts = [page.heading(3, "Partitions")]
    if any(shares) and len(partitions) > 1:
        rows = [
            (f"partition {p['partition']}", value, share(p["out_of_order"], p["plausible"]))
            for p, value in zip(partitions, shares, strict=True)
        ][:_MOST_ROWS]
        sentence = "Share of the records that are out of order, by partition."
        drawn = svg.bars_across("Out of order", sentence, rows, max(shares))
        parts.append(page.figure(drawn, sentence))
    parts.append(
        page.table(
            _cut("Times of each partition (UTC).", len(partitions)),
            (
                *("partition", "records", "bytes", "first event", "last event", "out of order"),
                *("99.9 % no later than", "latest by", "99.9 % arrive within"),
            ),
            [
                (
                    str(p["partition"]),
                    count(p["records"]),
                    size(p["bytes"]),
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
    )
    return "".join(parts)


def _cut(caption: str, rows: int) -> str:
    return (
        caption
        if rows <= _MOST_ROWS
        else f"{caption} The first {_MOST_ROWS} of {rows}; all in report.json."
    )


# --- what to set ---------------------------------------------------------------------------------


def _windows(topic: Numbers) -> Iterator[str]:
    summary, windows = topic["summary"], topic["safe_windows"]
    if windows["basis"] == "stamp":
        return
    yield page.heading(3, "Which window would have refused what")
    is_measured = windows["basis"] == "delay"
    known = summary["delay_ms"]["count"]
    if is_measured:
        caption = (
            f"Records of {count(known)} with a known append time that each limit would have refused,"
            " and with each of them its whole batch."
        )
        rows = [_limit(e, known, "before") for e in summary["beyond_before"]]
        after = [_limit(e, known, "after") for e in summary["beyond_after"]]
    else:
        caption = (
            "The append times of these records are unknown. At least so many would have been refused,"
            " judged by how far they are behind the largest event time before them."
        )
        rows = [_limit(e, summary["plausible"], "before") for e in summary["lateness_beyond"]]
        after = []
    heads = ("message.timestamp.before.max.ms", "refused", "share")
    yield page.table(caption, heads, rows)
    if after:
        yield page.table(
            "The same of the future.", ("message.timestamp.after.max.ms", *heads[1:]), after
        )


def _limit(each: Numbers, whole: int, _side: str) -> tuple[str, Cell, str]:
    words = f"{span(each['limit_ms'])} ({each['limit_ms']})"
    return words, Cell(count(each["records"]), each["records"] > 0), share(each["records"], whole)


def _retention(topic: Numbers) -> Iterator[str]:
    if not topic["retention"]:
        return
    yield page.heading(3, "Which retention would delete what")
    yield policies_table(topic["retention"], topic["log_bytes"])
    if topic["pinned"]:
        yield pinned_table(topic["pinned"])


def _producers(topic: Numbers) -> str:
    wrong = {each["producer_id"] for each in topic["skewed_producers"]}
    order = sorted(
        topic["producers"],
        key=lambda each: (each["producer_id"] not in wrong, -abs(each["median_delay_ms"])),
    )
    table = page.table(
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
    return page.heading(3, "Producers and their clocks") + table


def _ahead(delay_ms: int) -> str:
    if delay_ms < 0:
        return f"{span(-delay_ms)} ahead"
    return f"{span(delay_ms)} old" if delay_ms else "at once"


def _groups(groups: Iterable[Numbers]) -> Iterator[str]:
    yield page.heading(2, "How far groups are behind", "groups")
    yield page.table(
        "Of the first record that a group has not read: how long ago it happened and was appended, and how"
        "much event time is between it and the newest record.",
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


def _terms(report: Numbers) -> Iterator[str]:
    yield page.heading(2, "What the words mean")
    margin = span(report["settings"]["margin_ms"])
    error = f"{100 * report['quantile_error']:.1f} %"
    texts = [
        f"From the future: more than {margin} beyond the append time, or beyond now where that is",
        "unknown. In another unit: more than ten years from now, and within ten years of it when read in",
        "seconds, micro- or nanoseconds. Plausible: a time that is neither. Lateness: how far a plausible",
        "record is behind the largest plausible event time before it in its partition; 0 for one in",
        "order. Counts, largest and smallest values are exact; quantiles are never too small, and at",
        f"most {error} too large.",
    ]
    yield page.paragraph(" ".join(texts), soft=True)
