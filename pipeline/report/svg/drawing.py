"""Draws plots as SVG that stands in a page of HTML: where axes, marks, lines, bars and words are.

Colours become the variables of the page's style sheet, so that a plot is light or dark with its
page. Text stays text, in the page's font. Every line and bar has a `<title>` for pointers and
screen readers. Each plot is drawn for wide and for narrow windows; the style sheet shows one.

The pen (`pen`) is matplotlib's SVG renderer: it writes the paths and texts, measures texts, and cuts
and simplifies lines. matplotlib's figures and axes are not used, because they lay out every text
several times: a page took most of the time of a small audit (docs/performance.md).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tidelog.pipeline.report.plots import Rows
from tidelog.pipeline.report.svg.pen import (
    INK,
    MARK,
    RULE,
    SERIES,
    SOFT,
    Box,
    Stroke,
    ascent,
    drawn,
    steps,
    widest,
    width_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.pipeline.report.plots import Axis, Bar, Line, Mark, Plot
    from tidelog.pipeline.report.svg.pen import Floats, Pen

WIDE: Final = 760
NARROW: Final = 380
_HEIGHT: Final = 290
_ROW: Final = 24
_PAD: Final = 3.0  # around a plot
_TICK: Final = 3.5  # the length of a mark of an axis, and its distance from its name
_GAP: Final = 4.0  # between names of marks and that of the axis; between a mark and its name
_UP: Final = 90


def svg(plot: Plot | Rows) -> str:
    """Returns the plot for wide and for narrow windows."""
    return _svg(plot, WIDE, "wide") + _svg(plot, NARROW, "narrow")


def _svg(plot: Plot | Rows, width: int, name: str) -> str:
    if isinstance(plot, Rows):
        height = _ROW * len(plot.rows) + 20
        draw = functools.partial(_draw_rows, plot=plot, width=width, height=height)
    else:
        height, most = _HEIGHT, 4 if name == "narrow" else 9
        draw = functools.partial(_draw, plot=plot, width=width, height=height, most=most)
    return drawn(
        draw,
        width,
        height,
        kind=f"plot {name}",
        name=f"{plot.name} {name}",
        label=f"{plot.name}. {plot.sentence}",
    )


# --- plots with two axes -------------------------------------------------------------------------


def _draw(pen: Pen, plot: Plot, width: int, height: int, most: int) -> None:
    """Draws a plot with at most so many marks of its first axis."""
    x_marks, y_marks = _marks(plot.x, most), _marks(plot.y, 9)
    box = _between(plot, width, height, x_marks, y_marks)
    right = box.left + box.width
    grid = [np.array([(box.left, y), (right, y)]) for y in _on(plot.y, box, y_marks)]
    if grid:
        pen.lines(grid, Stroke(RULE))
    for bar in plot.bars:
        _bar(pen, bar, plot, box)
    for line in plot.lines:
        _line(pen, line, plot, box)
    for number, mark in enumerate(plot.marks):
        _mark(pen, mark, number, plot.x, box)
    _axes(pen, plot, box, x_marks, y_marks)


def _marks(axis: Axis, most: int) -> list[tuple[float, str]]:
    """Returns the marks of an axis that are shown; of too many every second or third."""
    inside = [(float(at), name) for at, name in axis.ticks if axis.low <= at <= axis.high]
    return inside[:: max(1, -(-len(inside) // most))]


def _shares(axis: Axis, values: Iterable[float]) -> Floats:
    """Returns how far along an axis values are: 0 at its begin, 1 at its end."""
    low, high = float(axis.low), float(axis.high)  # whole numbers may be beyond int64 here
    high = high if high > low else max(low + 1, math.nextafter(low, math.inf))
    at = np.array([float(value) for value in values], np.float64)
    if axis.is_log:
        at = np.log10(np.maximum(at, low / 1e6))
        low, high = math.log10(low), math.log10(high)
    shares: Floats = (at - low) / (high - low)
    return shares


def _on(axis: Axis, box: Box, marks: Iterable[tuple[float, str]]) -> Floats:
    """Returns where the marks of the second axis are."""
    return box.bottom + box.height * _shares(axis, (at for at, _ in marks))


def _points(plot: Plot, box: Box, points: Sequence[tuple[float, float]]) -> Floats:
    """Returns where points are."""
    x = box.left + box.width * _shares(plot.x, (x for x, _ in points))
    y = box.bottom + box.height * _shares(plot.y, (y for _, y in points))
    return np.column_stack((x, y))


def _between(
    plot: Plot,
    width: int,
    height: int,
    x_marks: Sequence[tuple[float, str]],
    y_marks: Sequence[tuple[float, str]],
) -> Box:
    """Returns the part between the axes: as large as leaves room for their names and marks."""
    line = ascent() + _GAP
    bottom = _PAD + _GAP + 2 * line + 2 * _TICK
    top = height - _PAD - ascent()
    left = _PAD + line + _GAP + widest(name for _, name in y_marks) + 2 * _TICK
    texts = [
        (0.5, width_of(plot.x.label) / 2),
        *(
            (float(share), width_of(name) / 2)
            for share, (_, name) in zip(
                _shares(plot.x, (at for at, _ in x_marks)), x_marks, strict=True
            )
        ),
    ]
    left = max(left, *(_PAD + half - share * (width - left) / 2 for share, half in texts))
    room = width - _PAD - left
    return Box(left, bottom, _fitting(room, texts), top - bottom)


def _fitting(room: float, texts: Iterable[tuple[float, float]]) -> float:
    """Returns the largest width that leaves all texts in a room.

    A text begins at a share of the width, and is so long.
    """
    most = [(room - length) / share for share, length in texts if share > 0]
    return max(min([room, *most]), 1.0)


def _axes(
    pen: Pen,
    plot: Plot,
    box: Box,
    x_marks: Sequence[tuple[float, str]],
    y_marks: Sequence[tuple[float, str]],
) -> None:
    """Draws the axes, their marks and names."""
    left, bottom = box.left, box.bottom
    lines = [np.array([(left, box.top), (left, bottom), (left + box.width, bottom)])]
    at = left + box.width * _shares(plot.x, (at for at, _ in x_marks))
    lines += [np.array([(x, bottom), (x, bottom - _TICK)]) for x in at]
    lines += [np.array([(left - _TICK, y), (left, y)]) for y in _on(plot.y, box, y_marks)]
    pen.lines(lines, Stroke(SOFT))
    baseline = bottom - 2 * _TICK - ascent()
    for x, (_, name) in zip(at, x_marks, strict=True):
        pen.text(name, x, baseline, INK)
    for y, (_, name) in zip(_on(plot.y, box, y_marks), y_marks, strict=True):
        pen.text(name, left - 2 * _TICK, y - ascent() / 2, INK, "right")
    pen.text(plot.x.label, left + box.width / 2, _PAD + _GAP, SOFT)
    pen.text(plot.y.label, _PAD + ascent(), bottom + box.height / 2, SOFT, angle=_UP)


def _bar(pen: Pen, bar: Bar, plot: Plot, box: Box) -> None:
    gap = (bar.high - bar.low) * 0.08
    below = 0.0
    for number, part in enumerate(bar.parts):
        if part > 0:
            ends = (bar.low + gap / 2, below), (bar.high - gap / 2, below + part)
            (left, bottom), (right, top) = _points(plot, box, ends).clip(
                (box.left, box.bottom), (box.left + box.width, box.top)
            )
            pen.area(_rectangle(left, bottom, right, top), SERIES[number], bar.title)
            below += part


def _rectangle(left: float, bottom: float, right: float, top: float) -> Floats:
    corners = (left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)
    return np.array(corners, np.float64)


def _line(pen: Pen, line: Line, plot: Plot, box: Box) -> None:
    if not line.points:
        return
    style, points = line.style, _points(plot, box, line.points)
    colour = SERIES[style.colour - 1]
    if len(points) == 1:
        pen.point(points[0], colour, line.name)
        return
    if line.is_step:
        points = steps(points)
    pen.lines([points], Stroke(colour, style.width, style.dashes), title=line.name, within=box)


def _mark(pen: Pen, mark: Mark, number: int, axis: Axis, box: Box) -> None:
    (share,) = _shares(axis, [mark.value])
    x = box.left + box.width * float(share)
    line = np.array([(x, box.bottom), (x, box.top)])
    pen.lines([line], Stroke(MARK, 1, (4, 3)), within=box)
    is_right = share > 0.7
    y = box.top - 9 - 14 * (number % 3)
    pen.text(
        mark.name, x - _GAP if is_right else x + _GAP, y, MARK, "right" if is_right else "left"
    )


# --- rows ----------------------------------------------------------------------------------------


def _draw_rows(pen: Pen, plot: Rows, width: int, height: int) -> None:
    """Draws one bar in each row, with its words beside it."""
    left = _PAD + widest(name for name, _, _ in plot.rows) + _TICK
    high = plot.high or 1
    shares = [value / high / 1.2 for _, value, _ in plot.rows]
    words = [5 + width_of(text) for _, _, text in plot.rows]
    room = width - _PAD - left
    box = Box(left, _PAD, _fitting(room, zip(shares, words, strict=True)), height - 2 * _PAD)
    step = box.height / (len(plot.rows) + 0.2)
    for number, (share, (name, _, text)) in enumerate(zip(shares, plot.rows, strict=True)):
        y = box.top - step * (number + 0.6)
        x = left + box.width * share
        corners = _rectangle(left, y - 0.35 * step, x, y + 0.35 * step)
        pen.area(corners, SERIES[0], f"{name}: {text}")
        pen.text(text, x + 5, y - ascent() / 2, INK, "left")
        pen.text(name, left - _TICK, y - ascent() / 2, INK, "right")
    pen.lines([np.array([(left, box.bottom), (left, box.top)])], Stroke(SOFT))
