"""Plots: the data that is drawn, what can be told apart, and that drawings are whole."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import example as tried
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jinja2")

from tidelog.pipeline.report import audit_plots, page, plots, whatif
from tidelog.pipeline.report.plots import Axis, Bar, Line, Mark, Plot, Rows, Style

NOON, HOUR = 1_700_000_000_000, 3_600_000


# --- what can be told apart ----------------------------------------------------------------------


def curves(**points):
    """The figure of a topic whose policies keep these bytes, hour after hour."""
    found = {
        name: [[NOON + n * HOUR, kept] for n, kept in enumerate(kept)]
        for name, kept in points.items()
    }
    return whatif.curves({"bytes": 100, "curves": found})


@pytest.mark.parametrize("count", [1, 2, 5, 9, 32])
def test_no_two_lines_of_a_plot_look_alike(count):
    found = plots.styles(count)
    assert len({(style.colour, style.dashes) for style in found}) == count
    assert all(1 <= style.colour <= plots.COLOURS for style in found)
    # Colours come back only when all are used.
    assert len({style.colour for style in found}) == min(count, plots.COLOURS)


def test_five_policies_have_five_colours():
    found = curves(a=[9, 5], b=[9, 4], c=[9, 3], d=[9, 2], e=[9, 1])
    assert len({line.style.colour for line in found.lines}) == 5
    assert [name for _, name in found.legend] == ["a", "b", "c", "d", "e"]


def test_policies_that_keep_the_same_are_one_line_with_all_names():
    found = curves(record=[9, 5, 0], append=[9, 9, 9], kafka=[9, 5, 0])
    assert [line.name for line in found.lines] == ["record, kafka", "append"]
    assert [name for _, name in found.legend] == ["record, kafka", "append"]


def test_lines_that_coincide_in_part_are_all_seen():
    """Each line is narrower than those below it, or has gaps through which they are seen."""
    found = curves(a=[9, 9, 1], b=[9, 9, 2], c=[9, 9, 3], d=[9, 9, 4], e=[9, 9, 5])
    for below, above in combinations(found.lines, 2):
        assert above.style.width < below.style.width
    assert all(line.style.dashes for line in found.lines[1:4])


# --- where there is nothing to compare -----------------------------------------------------------


def audited(spans, delays, *, count=10):
    """A topic of an audit with some spans of event time, and the delay of each."""
    number = len(delays)
    plot = {
        "event_ms": [NOON + n * HOUR for n in range(number)],
        "records": [count] * number,
        "odd": [0] * number,
        "later_than_a_second": [3] * number,
        "delays": [count] * number,
    }
    for name in ("p50", "p99", "p99_9"):
        plot[f"delay_{name}_ms"] = delays
    delay = {"count": count * number, "p50": delays[0], "p99": delays[-1], "p99_9": delays[-1]}
    return {
        "plot": plot,
        "plot_range_ms": [NOON, NOON + spans * HOUR],
        "plot_span_ms": HOUR,
        "summary": {"delay_ms": delay},
    }


def test_one_value_is_a_sentence_and_no_plot():
    one = audited(1, [40])
    assert audit_plots.arrival(one) == (
        "Half of the records arrive within 40 ms, 99 % within 40 ms, 99.9 % within 40 ms. They are of"
        " the 1 h from 2023-11-14 22:13:20Z on."
    )
    assert audit_plots.hours(one) == (
        "All 10 plausible records are of the 1 h from 2023-11-14 22:13:20Z on; 3 of them more than a"
        " second late."
    )
    # Three quantiles that are the same everywhere are one line upon the other.
    assert isinstance(audit_plots.arrival(audited(3, [40, 40, 40])), str)
    assert isinstance(audit_plots.hours(audited(3, [40, 40, 40])), Plot)
    several = audit_plots.arrival(audited(3, [40, 50, 60]))
    assert len({line.style for line in several.lines}) == 3


# --- drawings ------------------------------------------------------------------------------------


def svg(plot):
    """The drawing of a plot."""
    text = page.html("t", "s", [], [plot])
    return re.search(r"<svg class=\"plot.*</svg>", text, re.DOTALL)[0]


def drawn(x, **shapes):
    """The drawing of a plot over an axis."""
    return svg(Plot("n", "s", x, Axis(0, 1, [(0, "0")], "y"), **shapes))


@pytest.mark.parametrize("marks", [[], [1.0, 7e3, 1e12]])
@pytest.mark.parametrize("points", [[], [(5.0, 1e9)], [(1.0, 1.0), (1e12, 3e12), (1e11, 7.0)]])
def test_a_drawing_is_well_formed_and_has_its_names(points, marks):
    text = svg(
        Plot(
            "A <name>",
            'a "sentence" & more',
            Axis(1, 1e12, plots.log_ticks(1, 1e12, str), "x", is_log=True),
            Axis(0, 1e9, plots.linear_ticks(1e9, str), "y & z"),
            lines=[Line("a<b", Style(1), sorted(points), is_step=True)],
            bars=[Bar(low, low * 2, (high, high / 2), "<t>") for low, high in points],
            marks=[Mark(value, "m>") for value in marks],
        )
    )
    picture = ET.fromstring(text)
    assert picture.get("aria-label") == 'A <name>. a "sentence" & more'
    titles = [title.text for title in picture.iter("title")]
    assert titles.count("a<b") == (1 if points else 0)
    assert titles.count("<t>") == 2 * len(points)
    assert "y & z" in [each.text for each in picture.iter("text")]
    assert len([each for each in picture.iter("text") if each.text == "m>"]) == len(marks)


def test_a_drawing_has_the_colours_of_the_page_alone():
    lines = [Line(str(n), style, [(0, 0), (1, 1)]) for n, style in enumerate(plots.styles(9))]
    text = drawn(Axis(0, 1, [(0, "a"), (1, "b")], "x"), lines=lines)
    assert not re.findall(r"#[0-9a-f]{6}", text)
    assert set(re.findall(r"var\(--(c\d)\)", text)) == {f"c{n}" for n in range(1, 9)}
    sheet = Path(plots.__file__).with_name("templates") / "style.css"
    for name in {*re.findall(r"var\((--\w+)\)", text)}:
        assert sheet.read_text(encoding="utf-8").count(f"{name}:") == 2  # light and dark


def test_times_beyond_the_calendar_of_libraries_are_drawn():
    low, high = -62_135_596_800_000 - 10**12, 2 * 10**15
    axis = Axis(low, high, plots.date_ticks(low, high), "x")
    text = drawn(axis, bars=[Bar(0, 1e14, (0.5,), "bar")])
    names = [name for _, name in plots.date_ticks(low, high)]
    assert len(names) > 3
    assert all(f">{name}<" in text for name in names)


def test_what_is_beyond_an_axis_is_cut_off():
    """Shapes stand in an SVG of their own, which shows nothing beyond its edges."""
    text = drawn(
        Axis(10, 20, [(10, "0")], "x"),
        bars=[Bar(-1e6, 12, (0.5, 7e6), "bar"), Bar(19, 1e9, (1,), "bar")],
        lines=[Line("line", Style(1), [(-1e9, -1e9), (15, 0.5), (1e9, 1e9)])],
    )
    inner = ET.fromstring(text).find("svg")
    assert inner.get("viewBox") == "0 0 100 100"
    assert inner.get("overflow") is None is inner.get("style")
    assert [each.find("title").text for each in inner] == ["bar", "bar", "bar", "line"]
    assert text.count("<title>") == 4


def test_shapes_are_where_their_values_are():
    text = drawn(
        Axis(1, 10_000, [], "x", is_log=True),
        bars=[Bar(1, 10_000, (0.25, 0.5), "bar")],
        lines=[
            Line("steps", Style(1), [(1, 1), (100, 0.5), (10_000, 0)], is_step=True),
            Line("line", Style(1), [(1, 1), (100, 0.5)]),
            Line("point", Style(1), [(100, 0.5)]),
        ],
    )
    inner = ET.fromstring(text).find("svg")
    assert [(each.get("y"), each.get("height")) for each in inner.iter("rect")] == [
        ("75.0", "25.0"),
        ("25.0", "50.0"),
    ]
    assert [each.get("d") for each in inner.iter("path")] == [
        "M0 0H50V50H100V100",
        "M0 0L50 50",
        "M50 50h0",
    ]


def test_rows_have_their_words():
    text = svg(Rows("n", "s", [("partition 0", 0.2, "20 %"), ("partition 1", 0, "0 %")]))
    assert text.count("20 %") == 2  # text and title
    assert text.count("partition 1<") == 1
    assert re.findall(r'<rect.*?width="(.*?)%', text) == ["100.0", "0.0"]


# --- axes ----------------------------------------------------------------------------------------


@given(st.integers(-(10**14), 10**14), st.integers(HOUR, 10**13))
@tried(-99_999_986_400_000, 86_400_001)  # hours of a day before our era
@tried(2**53, 86_400_000)
def test_dates_on_an_axis_lie_in_it_and_are_few(low, length):
    ticks = plots.date_ticks(low, low + length)
    assert 1 <= len(ticks) <= 8
    assert all(low <= at <= low + length for at, _ in ticks)
    assert len({name for _, name in ticks}) == len(ticks)


@given(st.floats(1e-3, 1e15), st.sampled_from([1000, 1024]))
def test_marks_begin_at_zero_and_end_at_the_top(high, base):
    ticks = [at for at, _ in plots.linear_ticks(high, str, base=base)]
    assert ticks[0] == 0
    assert 3 <= len(ticks) <= 7
    assert ticks[-1] <= high * (1 + 1e-9)
