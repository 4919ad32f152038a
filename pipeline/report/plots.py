"""The data of plots: axes with their marks, lines, bars; templates/blocks.html draws them as SVG.

Event times reach from before year 1 to beyond 9999, and dates of libraries do not. So times are
plain milliseconds, and the marks of a time axis are made here. Places in a drawing are per cent of
its width and height, from the upper left corner.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.times import date_of, to_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DAY: Final = 86_400_000

COLOURS: Final = 8
"""How many colours the style sheet has for lines and bars: `--c1` and so on."""

_DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (9, 6), (2.5, 4), (10, 4, 2.5, 4))
_WIDEST: Final = 5.0
_MOST_MARKS: Final = 9


class Style(NamedTuple):
    """How a line is drawn: its colour (from 1 on), its dashes and its width in pixels."""

    colour: int
    dashes: tuple[float, ...] = ()
    width: float = 2.0


def styles(count: int) -> list[Style]:
    """Returns a style for each of several lines of one plot.

    No two have the same colour and dashes, up to 32 lines. Each is narrower than the one below it,
    and all but the first are dashed: where lines coincide, every one can still be seen.
    """
    step = (_WIDEST - 2.0) / max(count - 1, 1)
    return [
        Style(
            number % COLOURS + 1,
            _DASHES[(number + number // COLOURS) % len(_DASHES)],
            round(_WIDEST - step * number, 2) if count > 1 else 2.0,
        )
        for number in range(count)
    ]


class Axis(NamedTuple):
    """One axis: its range, its marks with their names, and whether it is logarithmic."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    label: str
    is_log: bool = False

    @property
    def marks(self) -> list[tuple[float, str]]:
        """The marks that are shown: those in the range, at most nine."""
        inside = [(at, name) for at, name in self.ticks if self.low <= at <= self.high]
        return inside[:: -(-len(inside) // _MOST_MARKS) or 1]

    @property
    def longest(self) -> int:
        """The number of letters of the longest name of a mark."""
        return max((len(name) for _, name in self.marks), default=0)

    def percent(self, value: float) -> float:
        """Returns how far along the axis a value is."""
        low, high, at = float(self.low), float(self.high), float(value)
        if self.is_log:
            low, high, at = (math.log10(max(each, low / 1e6)) for each in (low, high, at))
        return 100 * (at - low) / ((high - low) or max(1.0, math.ulp(low)))


class Line(NamedTuple):
    """Points in order; a step line keeps its value until the next point."""

    name: str
    style: Style
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


class Plot(NamedTuple):
    """A plot; bars stand on the first axis. The name and the sentence say what it shows.

    `parts` are the names of the parts of a bar.
    """

    name: str
    sentence: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = ()
    bars: Sequence[Bar] = ()
    parts: Sequence[str] = ()
    marks: Sequence[Mark] = ()

    @property
    def legend(self) -> list[tuple[Style, str]]:
        """The names of the lines and of the parts of bars, each with its style."""
        lines = dict.fromkeys((line.style, line.name) for line in self.lines)
        return [*lines, *((Style(n, (), 10), name) for n, name in enumerate(self.parts, 1))]

    def across(self, value: float) -> float:
        """Returns where a value of the first axis is."""
        return round(self.x.percent(value), 2)

    def down(self, value: float) -> float:
        """Returns where a value of the second axis is."""
        return round(100 - self.y.percent(value), 2)

    def path(self, line: Line) -> str:
        """Returns a line as the path of SVG; a single point is one without length."""
        places = dict.fromkeys((self.across(x), self.down(y)) for x, y in line.points)
        (x, y), *others = places
        step = "H{:g}V{:g}" if line.is_step else "L{:g} {:g}"
        return f"M{x:g} {y:g}" + ("".join(step.format(*each) for each in others) or "h0")

    def areas(self, bar: Bar) -> list[tuple[int, float, float, float, float]]:
        """Returns the number of the colour, left, top, width and height of each part of a bar."""
        gap = (bar.high - bar.low) * 0.04
        left, right = self.across(bar.low + gap), self.across(bar.high - gap)
        tops = [self.down(top) for top in accumulate(bar.parts, initial=0)]
        return [
            (number, left, top, round(right - left, 2), round(bottom - top, 2))
            for number, (part, (bottom, top)) in enumerate(
                zip(bar.parts, pairwise(tops), strict=True), 1
            )
            if part > 0
        ]


class Rows(NamedTuple):
    """Horizontal bars, one a row: a name, a value, and a text beside it."""

    name: str
    sentence: str
    rows: Sequence[tuple[str, float, str]]


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
