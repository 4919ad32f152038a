"""Small plots as SVG text: lines, steps and bars on linear, logarithmic or time axes.

Colours are classes, for which the style sheet of the page has a light and a dark variant. Every
mark has a `<title>` for pointers and screen readers, and every plot has a name and a sentence.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.times import date_of, to_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_DAY: Final = 86_400_000
WIDTH: Final = 720
HEIGHT: Final = 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 88, 16, 14, 46


class Axis(NamedTuple):
    """One axis: its range, its marks with their names, and whether it is logarithmic."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    label: str
    is_log: bool = False

    def at(self, value: float) -> float:
        """Returns the position of a value on the axis, from 0 to 1, cut to that range."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.0


class Line(NamedTuple):
    """Points in order; a step line keeps its value until the next point."""

    name: str
    colour: int  # of the page's palette, from 1 on
    points: Sequence[tuple[float, float]]
    is_step: bool = False


class Bar(NamedTuple):
    """One bar: its start and end, its parts from the axis on, and its description."""

    low: float
    high: float
    parts: Sequence[float]
    title: str


class Mark(NamedTuple):
    """A line across the plot at a value of the first axis."""

    value: float
    name: str


def log_ticks(low: float, high: float, name: Callable[[float], str]) -> list[tuple[float, str]]:
    """Returns marks at powers of ten, at most eight."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, -(-(last - first) // 7))
    return [(10.0**power, name(10.0**power)) for power in range(first, last + 1, step)]


def linear_ticks(
    high: float, name: Callable[[float], str], *, base: int = 1000
) -> list[tuple[float, str]]:
    """Returns marks from 0 on, at numbers that are round in units of 1000 or 1024."""
    if high <= 0:
        return [(0.0, name(0.0))]
    unit = 1.0
    while high / unit >= base:
        unit *= base
    if base != 1000:
        return [(at * unit, name(at * unit)) for at, _ in linear_ticks(high / unit, name)]
    rough = high / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [(step * i, name(step * i)) for i in range(int(high / step + 1e-9) + 1)]


def date_ticks(low: int, high: int) -> list[tuple[float, str]]:
    """Returns marks of a time axis (ms): at most seven, at round hours or at midnight, UTC."""
    step = -(-(high - low) // 6)
    if step <= _DAY // 2:
        step = next(s for s in (1, 2, 3, 4, 6, 12) if s * 3_600_000 >= step) * 3_600_000
    else:
        step = -(-step // _DAY) * _DAY
    first = -(-low // step) * step
    named = date_of if step >= _DAY else _hour
    return [(float(at), named(at)) for at in range(first, high + 1, step)]


def _hour(ms: int) -> str:
    day, _, hour = to_iso(ms).partition("T")
    return f"{day[-5:]} {hour[:5]}"  # from the right: a year may have more digits


def plot(
    name: str,
    sentence: str,
    x: Axis,
    y: Axis,
    *,
    lines: Sequence[Line] = (),
    bars: Sequence[Bar] = (),
    marks: Sequence[Mark] = (),
    height: int = HEIGHT,
) -> str:
    """Draws a plot; bars stand on the first axis."""
    frame = _Frame(x, y, height)
    parts = [*_axes(frame), *_bars(frame, bars), *_marks(frame, marks)]
    for line in lines:
        parts += _line(frame, line)
    return _figure(name, sentence, height, parts)


def bars_across(
    name: str, sentence: str, rows: Sequence[tuple[str, float, str]], high: float
) -> str:
    """Draws horizontal bars, one a row: a name, a value up to `high`, and a text."""
    row_height, left = 22, 150
    height = row_height * len(rows) + 8
    room = WIDTH - left - 110
    parts: list[str] = []
    for number, (label, value, words) in enumerate(rows):
        top = 4 + number * row_height
        width = room * value / high if high > 0 else 0
        middle = top + row_height / 2 + 4
        parts += [
            f'<text x="{left - 8}" y="{middle:.1f}" text-anchor="end">{escape(label)}</text>',
            (
                f'<rect class="c1" x="{left}" y="{top + 3}" width="{max(width, 0.5):.1f}"'
                f' height="{row_height - 6}"><title>{escape(label)}: {escape(words)}</title></rect>'
            ),
            f'<text x="{left + width + 6:.1f}" y="{middle:.1f}">{escape(words)}</text>',
        ]
    return _figure(name, sentence, height, parts)


class _Frame(NamedTuple):
    x: Axis
    y: Axis
    height: int

    def across(self, value: float) -> float:
        return _LEFT + self.x.at(value) * (WIDTH - _LEFT - _RIGHT)

    def up(self, value: float) -> float:
        bottom = self.height - _BOTTOM
        return bottom - self.y.at(value) * (bottom - _TOP)


def _figure(name: str, sentence: str, height: int, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(name)}. {escape(sentence)}">\n'
        f"{body}\n</svg>"
    )


def _axes(frame: _Frame) -> list[str]:
    bottom, right = frame.height - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for value, name in frame.y.ticks:
        if not frame.y.low <= value <= frame.y.high:
            continue
        y = frame.up(value)
        parts += [
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>',
        ]
    for value, name in frame.x.ticks:
        if not frame.x.low <= value <= frame.x.high:
            continue
        x = frame.across(value)
        parts += [
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>',
            f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(name)}</text>',
        ]
    middle = (_TOP + bottom) / 2
    return [
        *parts,
        f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>',
        (
            f'<text class="label" x="{(_LEFT + right) / 2:.0f}" y="{frame.height - 6}"'
            f' text-anchor="middle">{escape(frame.x.label)}</text>'
        ),
        (
            f'<text class="label" transform="translate(13 {middle:.0f}) rotate(-90)"'
            f' text-anchor="middle">{escape(frame.y.label)}</text>'
        ),
    ]


def _bars(frame: _Frame, bars: Sequence[Bar]) -> list[str]:
    parts = []
    base = frame.up(frame.y.low)
    for bar in bars:
        left, right = frame.across(bar.low), frame.across(bar.high)
        gap = min(1.0, (right - left) / 6)
        total = 0.0
        shapes = []
        below = base
        for number, part in enumerate(bar.parts, 1):
            total += part
            top = frame.up(total) if total > 0 else base
            if part > 0:
                shapes.append(
                    f'<rect class="c{number}" x="{left + gap / 2:.2f}" y="{min(top, below - 0.5):.2f}"'
                    f' width="{max(right - left - gap, 0.6):.2f}" height="{max(below - top, 0.5):.2f}"/>'
                )
            below = top
        if shapes:
            parts.append(f"<g><title>{escape(bar.title)}</title>{''.join(shapes)}</g>")
    return parts


def _marks(frame: _Frame, marks: Sequence[Mark]) -> list[str]:
    parts = []
    for number, mark in enumerate(marks):
        x = frame.across(mark.value)
        y = _TOP + 10 + 13 * (number % 3)
        end = x > WIDTH - 150
        parts += [
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{frame.height - _BOTTOM}"/>',
            (
                f'<text class="mark" x="{x - 4 if end else x + 4:.1f}" y="{y}"'
                f' text-anchor="{"end" if end else "start"}">{escape(mark.name)}</text>'
            ),
        ]
    return parts


def _line(frame: _Frame, line: Line) -> list[str]:
    places: list[str] = []
    previous: float | None = None
    for x, y in line.points:
        across, up = frame.across(x), frame.up(y)
        if line.is_step and previous is not None:
            places.append(f"{across:.1f},{previous:.1f}")
        places.append(f"{across:.1f},{up:.1f}")
        previous = up
    if not places:
        return []
    title = f"<title>{escape(line.name)}</title>"
    if len(line.points) == 1:
        x_text, y_text = places[0].split(",")
        return [
            f'<circle class="c{line.colour}" cx="{x_text}" cy="{y_text}" r="3">{title}</circle>'
        ]
    return [f'<polyline class="l{line.colour}" points="{" ".join(places)}">{title}</polyline>']
