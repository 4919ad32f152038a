"""Pages from templates: what stands on a page (findings, tables, figures), and how it is written.

A page is one file of HTML that loads nothing. The templates lay pages out and escape all text; the
modules beside this one say what stands in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.report import units
from tidelog.text import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.pipeline.report.plots import Plot, Rows, Style

LEVELS: Final = {"bad": "Act", "warn": "Look", "ok": "Good", "info": "Note"}
"""The severities of findings, the worst first, and the word on the page."""

Numbers = Mapping[str, Any]  # what a run has counted

_TEMPLATES: Final = Path(__file__).with_name("templates")


class Finding(NamedTuple):
    """A sentence and its severity: `bad`, `warn`, `ok` or `info`."""

    level: str
    topic: str
    title: str
    text: str


class Cell(NamedTuple):
    """A cell of a table: its text, and whether it is alarming."""

    text: str
    is_alarming: bool = False


class Table(NamedTuple):
    """A table; the first column names the row, the others are right-aligned numbers."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


class Figure(NamedTuple):
    """A plot with its caption, and the names of its lines and bars beside their styles."""

    plot: Plot | Rows
    caption: str
    legend: Sequence[tuple[Style, str]] = ()


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> Table:
    """Returns a table; a cell without a mark is not alarming. Raises ValueError for a ragged row."""
    made = [[Cell(value) if isinstance(value, str) else value for value in row] for row in rows]
    if any(len(row) != len(heads) for row in made):
        raise ValueError(f"a row of {caption!r} has not {len(heads)} cells")
    return Table(caption, heads, made)


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """Returns findings, the worst first."""
    order = list(LEVELS)
    return sorted(found, key=lambda finding: order.index(finding.level))


def render(template: str, **values: Any) -> str:
    """Returns a page from a template and what stands in it."""
    text: str = _environment().get_template(template).render(**values, levels=LEVELS)
    return text


@cache
def _environment() -> Any:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "count": units.count,
        "moment": units.moment,
        "size": size_of,
        "span": units.span,
    }
    return found
