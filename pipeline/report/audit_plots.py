"""The plots of an audit: lateness, events over time, arrival, and disorder by partition.

Where there is nothing to compare (one span of event time, one value) a plot would show one mark, or
lines upon each other: a sentence stands there instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.report import plots
from tidelog.pipeline.report.plots import Axis, Bar, Line, Mark, Plot, Rows, Style
from tidelog.pipeline.report.units import TIME_TICKS, count, moment, share, span, tick
from tidelog.text import some

if TYPE_CHECKING:
    from tidelog.pipeline.report.page import Numbers

_MARKS: Final = (("p99", "99 %"), ("p99_9", "99.9 %"), ("max", "latest"))
_QUANTILES: Final = (("p50", "half"), ("p99", "99 %"), ("p99_9", "99.9 %"))


def of_topic(topic: Numbers) -> list[tuple[str, Plot | str]]:
    """Returns the plots of a topic that has records, each with its heading; some are a sentence."""
    found = [
        ("How late records are", _lateness(topic["summary"], topic["late_curve"])),
        ("When events happened", hours(topic)),
        ("How long records take to arrive", arrival(topic)),
    ]
    return [(heading, shown) for heading, shown in found if shown is not None]


def disorder(partitions: list[Numbers]) -> Rows | None:
    """Returns the share of each partition that is out of order; None where there is nothing to compare."""
    shares = [p["out_of_order"] / p["plausible"] if p["plausible"] else 0.0 for p in partitions]
    if not any(shares) or len(shares) < 2:
        return None
    rows = [
        (f"partition {p['partition']}", value, share(p["out_of_order"], p["plausible"]))
        for p, value in zip(partitions, shares, strict=True)
    ]
    return Rows("Out of order", "Share of the records that are out of order, by partition.", rows)


def _lateness(summary: Numbers, curve: list[list[int]]) -> Plot | None:
    plausible, late = summary["plausible"], summary["out_of_order"]
    if not late:
        return None
    lateness = summary["lateness_ms"]
    low = 10.0 ** -len(str(plausible))
    points = [(1.0, late / plausible)]
    points += [(float(max(ms, 1)), max(left / plausible, low)) for ms, left in curve]
    sentence = (
        f"{share(late, plausible)} of the records are behind one before them in their partition;"
        f" 99.9 % of all are no later than {span(lateness['p99_9'])}, the latest is"
        f" {span(lateness['max'])} late."
    )
    return Plot(
        "How late records are",
        sentence,
        Axis(1, _above(lateness["max"]), _spans(lateness["max"]), "lateness", is_log=True),
        Axis(low, 1, plots.log_ticks(low, 1, _percent), "records later than that", is_log=True),
        lines=[Line("share of records that are later", Style(1), points, is_step=True)],
        marks=[Mark(lateness[name], words) for name, words in _MARKS if (lateness[name] or 0) > 0],
    )


def _above(value: int | None) -> float:
    return max(float(value or 0) * 1.5, 100.0)


def _spans(longest: int | None) -> list[tuple[float, str]]:
    """Returns the marks of an axis of spans."""
    return [(float(each), tick(each)) for each in TIME_TICKS if each <= _above(longest)]


def _percent(value: float) -> str:
    return f"{100 * value:.12f}".rstrip("0").rstrip(".") + " %"


def _shown(topic: Numbers) -> tuple[list[Numbers], str]:
    """Returns the rows in the range that is drawn, and a sentence about the rest."""
    columns, (low, high) = topic["plot"], topic["plot_range_ms"]
    rows: list[Numbers] = [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    outside = sum(row["records"] - row["odd"] for row in rows if not low <= row["event_ms"] < high)
    shown = [row for row in rows if low <= row["event_ms"] < high]
    return shown, f" {count(outside)} are outside of the plot." if outside else ""


def hours(topic: Numbers) -> Plot | str | None:
    """Returns how many records have which event time; a sentence if all are of one span."""
    shown, outside = _shown(topic)
    rows = [row for row in shown if row["records"] > row["odd"]]
    if not rows:
        return None
    if len(rows) == 1:
        number, late = rows[0]["records"] - rows[0]["odd"], rows[0]["later_than_a_second"]
        all_are = f"All {count(number)} plausible records are"
        return (
            f"{all_are if number > 1 else 'The only plausible record is'} of"
            f" {_one_span(topic, rows[0])}; {count(late)} of them more than a second late.{outside}"
        )
    bars = [_bar(row, topic["plot_span_ms"]) for row in rows]
    highest = max(sum(bar.parts) for bar in bars)
    return Plot(
        "When events happened",
        f"Plausible records by event time, {span(topic['plot_span_ms'])} each;"
        f" the busiest has {count(int(highest))}.{outside}",
        _event_times(topic),
        Axis(0, highest * 1.05, plots.linear_ticks(highest, _thousands), "records"),
        bars=bars,
        parts=("in order, or hardly late", "more than a second late"),
    )


def _bar(row: Numbers, span_ms: int) -> Bar:
    at, plausible, late = row["event_ms"], row["records"] - row["odd"], row["later_than_a_second"]
    words = f"{some(plausible, 'record')}, {count(late)} more than a second late"
    return Bar(at, at + span_ms, (plausible - late, late), f"{moment(at)}: {words}")


def _one_span(topic: Numbers, row: Numbers) -> str:
    """Names the span of event time of a row."""
    return f"the {span(topic['plot_span_ms'])} from {moment(row['event_ms'])} on"


def _event_times(topic: Numbers) -> Axis:
    low, high = topic["plot_range_ms"]
    return Axis(low, high, plots.date_ticks(low, high), "event time (UTC)")


def _thousands(value: float) -> str:
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def arrival(topic: Numbers) -> Plot | str | None:
    """Returns delays over event time; a sentence if all are of one span, or all are equal."""
    delay = topic["summary"]["delay_ms"]
    rows = [row for row in _shown(topic)[0] if row["delays"]]
    if not delay["count"] or not rows:
        return None
    values = {row[f"delay_{name}_ms"] for name, _ in _QUANTILES for row in rows}
    if len(rows) == 1 or len(values) == 1:
        when = f" They are of {_one_span(topic, rows[0])}." if len(rows) == 1 else ""
        return (
            f"Half of the records arrive within {span(delay['p50'])}, 99 % within {span(delay['p99'])},"
            f" 99.9 % within {span(delay['p99_9'])}.{when}"
        )
    lines = [
        Line(f"{words} within", style, points)
        for (name, words), style in zip(_QUANTILES, plots.styles(len(_QUANTILES)), strict=True)
        for points in _pieces(
            [(row["event_ms"], max(row[f"delay_{name}_ms"], 1)) for row in rows],
            topic["plot_span_ms"],
        )
    ]
    largest = max(*values, 1)
    return Plot(
        "How long records take to arrive",
        f"Append time minus event time, by event time: half of all records within"
        f" {span(delay['p50'])}, 99.9 % within {span(delay['p99_9'])}."
        " What came from the future is drawn at the bottom.",
        _event_times(topic),
        Axis(1, _above(largest), _spans(largest), "append minus event", is_log=True),
        lines=lines,
    )


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
