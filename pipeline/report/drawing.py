"""Draws plots with matplotlib as SVG that stands in a page of HTML.

Colours become the variables of the page's style sheet, so that a plot is light or dark with its
page. Text stays text, in the page's font. Every line and bar has a `<title>` for pointers and
screen readers. Each plot is made once and drawn twice, for wide and for narrow windows; the
style sheet shows one.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, Final

from pipeline.report.plots import COLOURS, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.report.plots import Axis, Bar, Line, Mark, Plot

WIDE: Final = 760
NARROW: Final = 380
_HEIGHT: Final = 290
_ROW: Final = 24
_POINTS: Final = 72  # an inch
_PAD: Final = 3  # points around a plot

# Stand-ins for the colours of the style sheet: matplotlib accepts no variables.
_INK, _SOFT, _RULE, _MARK = "#010000", "#010001", "#010002", "#010003"
_SERIES: Final = tuple(f"#0200{number:02x}" for number in range(1, COLOURS + 1))
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _SOFT: "var(--soft)",
    _RULE: "var(--rule)",
    _MARK: "var(--mark)",
    **{colour: f"var(--c{number})" for number, colour in enumerate(_SERIES, 1)},
}
_SETTINGS: Final = {
    "svg.fonttype": "none",  # text, not outlines
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same measures everywhere
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _SOFT,
    "axes.edgecolor": _SOFT,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def svg(plot: Plot | Rows) -> str:
    """Returns the plot for wide and for narrow windows."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_SETTINGS), _uncollected():
        figure = matplotlib.figure.Figure(dpi=_POINTS)
        axes = figure.subplots()
        for shape in (figure.patch, axes.patch):
            shape.set_visible(False)
        titles = _draw_rows(axes, plot) if isinstance(plot, Rows) else _draw(axes, plot)
        drawn = [_svg(axes, plot, width, titles) for width in (WIDE, NARROW)]
    return "".join(drawn)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Suspends garbage collection: a plot has so many objects that all of the process are searched."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _svg(axes: Any, plot: Plot | Rows, width: int, titles: Mapping[str, str]) -> str:
    """Returns what is drawn in the axes at one width of their figure."""
    matplotlib, figure, is_narrow = _matplotlib(), axes.figure, width == NARROW
    name = "narrow" if is_narrow else "wide"
    if isinstance(plot, Rows):
        height = _ROW * len(plot.rows) + 20
    else:
        height = _HEIGHT
        _set_ticks(axes, plot.x, "x", most=4 if is_narrow else 9)
    # The ids of shapes are hashes with this salt. The hidden one of two equal shapes cannot be used.
    matplotlib.rcParams["svg.hashsalt"] = f"{plot.name} {name}"
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    renderer = matplotlib.backends.backend_svg.RendererSVG(width, height, file, metadata=nothing)
    figure.set_size_inches(width / _POINTS, height / _POINTS)
    _fit(axes, renderer)
    figure.draw(renderer)
    renderer.finalize()
    return _inline(file.getvalue(), plot, f"plot {name}", titles)


def _fit(axes: Any, renderer: Any) -> None:
    """Makes the axes as large as leaves room for their names and marks.

    A layout engine of matplotlib would measure all texts four times, and draw the figure twice.
    """
    figure, box = axes.figure, _matplotlib().transforms.Bbox
    axes.set_position((0.25, 0.25, 0.5, 0.5))  # smaller than it gets: no text sticks out farther
    inner, outer = axes.get_window_extent(), axes.get_tightbbox(renderer)
    low = figure.bbox.p0 + _PAD + inner.p0 - outer.p0
    high = (figure.bbox.p1 - _PAD + inner.p1 - outer.p1).clip(low + 1)
    axes.set_position(box((low, high)).transformed(figure.transFigure.inverted()))


@cache
def _matplotlib() -> Any:
    import matplotlib as mpl
    import matplotlib.backends.backend_svg
    import matplotlib.figure
    import matplotlib.patches
    import matplotlib.transforms

    return mpl


def _inline(text: str, plot: Plot | Rows, kind: str, titles: Mapping[str, str]) -> str:
    """Returns matplotlib's file as a part of a page."""
    size = re.search(r'viewBox="([^"]+)"', text)
    assert size is not None
    body = text[text.index(">", size.end()) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(
        r'<g id="([^"]+)">',
        lambda found: (
            f"<g><title>{escape(titles[found[1]])}</title>" if found[1] in titles else "<g>"
        ),
        body,
    )
    body = body.replace("xlink:href", "href").replace("'DejaVu Sans'", "system-ui, sans-serif")
    body = re.sub(r"#0[12]00[0-9a-f]{2}", lambda found: _VARIABLES[found[0]], body)
    body = re.sub(r"\s*\n\s*", " ", body).strip()
    label = escape(f"{plot.name}. {plot.sentence}")
    return f'<svg class="{kind}" viewBox="{size[1]}" role="img" aria-label="{label}">{body}'


# --- drawing -------------------------------------------------------------------------------------


def _draw(axes: Any, plot: Plot) -> dict[str, str]:
    """Draws all but the marks of the first axis; returns the titles of what has one."""
    titles: dict[str, str] = {}
    _scale(axes, plot.x, "x")
    _scale(axes, plot.y, "y")
    _set_ticks(axes, plot.y, "y", most=9)
    axes.grid(visible=True, axis="y", color=_RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    for number, bar in enumerate(plot.bars):
        _bar(axes, bar, f"bar{number}", titles)
    for number, line in enumerate(plot.lines):
        _line(axes, line, f"line{number}", titles)
    for number, mark in enumerate(plot.marks):
        _mark(axes, mark, number, plot.x)
    return titles


def _scale(axes: Any, axis: Axis, which: str) -> None:
    """Sets range and label of an axis."""
    if axis.is_log:
        axes.set(**{f"{which}scale": "log"})
    low, high = float(axis.low), float(axis.high)  # whole numbers may be beyond int64 here
    high = high if high > low else max(low + 1, math.nextafter(low, math.inf))
    axes.set(**{f"{which}lim": (low, high), f"{which}label": axis.label})


def _set_ticks(axes: Any, axis: Axis, which: str, most: int) -> None:
    """Sets the marks of an axis; of too many every second or third is shown."""
    inside = [tick for tick in axis.ticks if axis.low <= tick[0] <= axis.high]
    shown = inside[:: max(1, -(-len(inside) // most))]
    scale = axes.xaxis if which == "x" else axes.yaxis
    scale.set_ticks([float(at) for at, _ in shown], [name for _, name in shown])
    scale.set_ticks([], minor=True)


def _bar(axes: Any, bar: Bar, name: str, titles: dict[str, str]) -> None:
    gap = (bar.high - bar.low) * 0.08
    below = 0.0
    for number, part in enumerate(bar.parts):
        if part > 0:
            # `axes.bar` would work the limits out again for each.
            axes.add_artist(
                _matplotlib().patches.Rectangle(
                    (bar.low + gap / 2, below),
                    bar.high - bar.low - gap,
                    part,
                    facecolor=_SERIES[number],
                    gid=f"{name}-{number}",
                )
            )
            titles[f"{name}-{number}"] = bar.title
            below += part


def _line(axes: Any, line: Line, name: str, titles: dict[str, str]) -> None:
    if not line.points:
        return
    style = line.style
    (drawn,) = axes.plot(
        [x for x, _ in line.points],
        [y for _, y in line.points],
        color=_SERIES[style.colour - 1],
        linewidth=style.width,
        drawstyle="steps-post" if line.is_step else "default",
        solid_joinstyle="round",
        marker="o" if len(line.points) == 1 else None,
        clip_on=len(line.points) > 1,
    )
    if style.dashes:
        drawn.set_dashes([length / style.width for length in style.dashes])  # in line widths
    drawn.set_gid(name)
    titles[name] = line.name


def _mark(axes: Any, mark: Mark, number: int, x: Axis) -> None:
    axes.axvline(mark.value, color=_MARK, linewidth=1, linestyle=(0, (4, 3)))
    is_right = axes.transLimits.transform(axes.transScale.transform((mark.value, x.low or 1)))[0]
    axes.annotate(
        mark.name,
        (mark.value, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if is_right > 0.7 else 4, -9 - 14 * (number % 3)),
        textcoords="offset points",
        ha="right" if is_right > 0.7 else "left",
        color=_MARK,
    )


def _draw_rows(axes: Any, plot: Rows) -> dict[str, str]:
    """Draws them; returns their titles."""
    titles: dict[str, str] = {}
    for number, (name, value, words) in enumerate(plot.rows):
        (shape,) = axes.barh(number, value, 0.7, color=_SERIES[0])
        shape.set_gid(f"row{number}")
        titles[f"row{number}"] = f"{name}: {words}"
        axes.annotate(
            words, (value, number), xytext=(5, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(len(plot.rows)), [name for name, _, _ in plot.rows])
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, (plot.high or 1) * 1.2), ylim=(len(plot.rows) - 0.4, -0.6))
    axes.spines["bottom"].set_visible(False)
    return titles
