"""A pen: shapes and texts by the SVG renderer of matplotlib, and what they measure.

Colours are stand-ins, because matplotlib accepts no variables of a style sheet; `drawn` puts the
variables in their places. All lengths are in points, of which an inch has 72. Places count from the
lower left corner.
"""

from __future__ import annotations

import io
import re
from functools import cache, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tidelog.pipeline.report.plots import COLOURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_LINE: Final = 0.8  # the width of axes and of the lines behind a plot
_FONT: Final = "DejaVu Sans"  # comes with matplotlib: the same measures everywhere
_SIZE: Final = 11

INK, SOFT, RULE, MARK = "#010000", "#010001", "#010002", "#010003"
SERIES: Final = tuple(f"#0200{number:02x}" for number in range(1, COLOURS + 1))
_VARIABLES: Final = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    RULE: "var(--rule)",
    MARK: "var(--mark)",
    **{colour: f"var(--c{number})" for number, colour in enumerate(SERIES, 1)},
}


def drawn(
    draw: Callable[[Pen], None], width: int, height: int, *, kind: str, name: str, label: str
) -> str:
    """Returns what `draw` draws as SVG that stands in a page.

    `kind` is its class there, and `label` what screen readers say. `name` differs between drawings.
    """
    matplotlib = _matplotlib()
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # The ids of shapes are hashes with this salt. The hidden one of two equal shapes cannot be used.
    settings = {"svg.fonttype": "none", "svg.hashsalt": name}  # text, not outlines
    with matplotlib.rc_context(settings):
        renderer = matplotlib.backends.backend_svg.RendererSVG(
            width, height, file, metadata=nothing
        )
        pen = Pen(renderer)
        draw(pen)
        renderer.finalize()
    return _in_page(file.getvalue(), pen.titles, kind, label)


@cache
def _matplotlib() -> Any:
    import matplotlib as mpl
    import matplotlib.backends.backend_svg
    import matplotlib.cbook
    import matplotlib.font_manager
    import matplotlib.path
    import matplotlib.text
    import matplotlib.textpath
    import matplotlib.transforms

    return mpl


def _in_page(text: str, titles: Mapping[str, str], kind: str, label: str) -> str:
    """Returns matplotlib's file as a part of a page."""
    size = re.search(r'viewBox="([^"]+)"', text)
    assert size is not None
    body = text[text.index(">", size.end()) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(
        r'<g id="([^"]+)">', lambda found: f"<g><title>{escape(titles[found[1]])}</title>", body
    )
    body = body.replace("xlink:href", "href").replace(f"'{_FONT}'", "system-ui, sans-serif")
    body = re.sub(r"#0[12]00[0-9a-f]{2}", lambda found: _VARIABLES[found[0]], body)
    body = re.sub(r"\s*\n\s*", " ", body).strip()
    return f'<svg class="{kind}" viewBox="{size[1]}" role="img" aria-label="{escape(label)}">{body}'


class Stroke(NamedTuple):
    """How a line is drawn."""

    colour: str
    width: float = _LINE
    dashes: Sequence[float] = ()


class Box(NamedTuple):
    """The part of a plot between its axes."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.bottom + self.height


class Pen:
    """Draws shapes and texts; `titles` has the titles of those that have one, by their ids."""

    def __init__(self, renderer: Any) -> None:
        self.titles: dict[str, str] = {}
        self._renderer = renderer
        self._all = _matplotlib()
        self._as_it_is = self._all.transforms.IdentityTransform()

    def lines(
        self,
        points: Sequence[Floats],
        stroke: Stroke,
        *,
        title: str | None = None,
        within: Box | None = None,
    ) -> None:
        """Draws lines from point to point, all as one shape; `within` cuts them off."""
        path = self._all.path.Path
        made = [path(each) for each in points]
        tools = self._renderer.new_gc()
        tools.set_foreground(stroke.colour)
        tools.set_linewidth(stroke.width)
        if stroke.dashes:
            tools.set_dashes(0, stroke.dashes)
        if within is not None:
            tools.set_clip_rectangle(self._all.transforms.Bbox.from_bounds(*within))
        shape = made[0] if len(made) == 1 else path.make_compound_path(*made)
        self._draw(tools, shape, None, title)

    def area(self, corners: Floats, colour: str, title: str) -> None:
        """Fills a shape."""
        shape = self._all.path.Path(corners, closed=True)
        tools = self._renderer.new_gc()
        tools.set_linewidth(0)
        self._draw(tools, shape, self._all.colors.to_rgba(colour), title)

    def _draw(self, tools: Any, shape: Any, fill: Any, title: str | None) -> None:
        if title is not None:
            name = f"shape{len(self.titles)}"
            self.titles[name] = title
            self._renderer.open_group("shape", gid=name)
        self._renderer.draw_path(tools, shape, self._as_it_is, fill)
        if title is not None:
            self._renderer.close_group("shape")

    def point(self, at: Floats, colour: str, title: str) -> None:
        """Draws a point."""
        self.area(self._all.path.Path.circle(tuple(at), 3).to_polygons()[0], colour, title)

    def text(
        self, words: str, x: float, y: float, colour: str, at: str = "center", *, angle: int = 0
    ) -> None:
        """Writes words; their left end, center or right end (`at`) is at x, their baseline at y."""
        if not words:
            return
        font = _font()
        # The text tells the renderer how it is aligned: the page's font is broader or narrower.
        text = self._all.text.Text(
            x, y, words, fontproperties=font, ha=at, rotation=angle, rotation_mode="anchor"
        )
        tools = self._renderer.new_gc()
        tools.set_foreground(colour)
        height = self._renderer.height
        self._renderer.draw_text(tools, x, height - y, words, font, angle, mtext=text)


@cache
def _font() -> Any:
    return _matplotlib().font_manager.FontProperties(family=[_FONT], size=_SIZE)


@lru_cache(4096)
def _measured(words: str) -> tuple[float, float]:
    """Returns the width of words, and how far they reach above their baseline."""
    if not words:
        return 0.0, 0.0
    measure = _matplotlib().textpath.text_to_path.get_text_width_height_descent
    width, height, descent = measure(words, _font(), ismath=False)
    return float(width), float(height - descent)


def width_of(words: str) -> float:
    """Returns the width of words."""
    return _measured(words)[0]


def ascent() -> float:
    """Returns how far names of marks reach above their baseline."""
    return _measured("l")[1]


def widest(names: Iterable[str]) -> float:
    """Returns the largest width of some words; 0 without any."""
    return max(map(width_of, names), default=0.0)


def steps(points: Floats) -> Floats:
    """Returns the corners of a line that keeps each value until the next."""
    corners: Floats = np.column_stack(
        _matplotlib().cbook.pts_to_poststep(points[:, 0], points[:, 1])
    )
    return corners
