"""The page of a report: what stands on it (findings, headings, sentences, tables, plots), as HTML.

A page is one file that loads nothing. One template lays every page out and escapes all text; the
modules beside this one say what stands in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.report.plots import Plot, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LEVELS: Final = {"bad": "Act", "warn": "Look", "ok": "Good", "info": "Note"}
"""The severities of findings, the worst first, and the word on the page."""

Numbers = Mapping[str, Any]  # what a run has counted

_TEMPLATES: Final = Path(__file__).with_name("templates")


class ReportFinding(NamedTuple):
    """A sentence and its severity: `bad`, `warn`, `ok` or `info`."""

    level: str
    topic: str
    title: str
    text: str


class Heading(NamedTuple):
    """A heading of a part of the page (level 2) or of a piece of one (level 3)."""

    text: str
    level: int = 2


class KeyFigures(NamedTuple):
    """Numbers that stand out, each with its name."""

    pairs: Sequence[tuple[str, str]]


class Cell(NamedTuple):
    """A cell of a table: its text, and whether it is alarming."""

    text: str
    is_alarming: bool = False


class ReportTable(NamedTuple):
    """A table; the first column names the row, the others are right-aligned numbers."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


Block = str | Heading | KeyFigures | ReportTable | Plot | Rows
"""What stands on a page below the findings; text is a paragraph."""


def table(
    caption: str,
    found: Sequence[Any],
    columns: Mapping[str, Callable[[Any], str | Cell]],
    *,
    most: int | None = None,
) -> ReportTable:
    """Returns a table with a row for each thing found: the heads of columns, and what they say of it.

    With `most` only the first are shown, and the caption says so.
    """
    if most is not None and len(found) > most:
        caption += f" The first {most} of {len(found)}; all in report.json."
    cells = [[value(each) for value in columns.values()] for each in found[:most]]
    rows = [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in cells]
    return ReportTable(caption, list(columns), rows)


def html(
    title: str, subtitle: str, findings: Iterable[ReportFinding], body: Iterable[Block]
) -> str:
    """Returns a page; the worst findings come first, and several parts have a list of links."""
    levels = list(LEVELS)
    blocks = list(body)
    parts = [each for each in blocks if isinstance(each, Heading) and each.level == 2]
    text: str = _template().render(
        title=title,
        subtitle=subtitle,
        findings=sorted(findings, key=lambda finding: levels.index(finding.level)),
        levels=LEVELS,
        blocks=[(type(each).__name__, each) for each in blocks],
        parts=parts if len(parts) > 2 else [],
    )
    return text


@cache
def _template() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.html")
