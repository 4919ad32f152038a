"""The parts of a page: a frame with its style sheet, findings, tables and figures.

It loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVELS: Final = {"bad": "Act", "warn": "Look", "ok": "Good", "info": "Note"}

_STYLE: Final = """
:root { color-scheme: light dark; --ink:#1c2733; --soft:#5b6875; --back:#fff; --card:#f5f7f9; --rule:#d8dee4;
  --c1:#2f6fb0; --c2:#e08a1e; --c3:#3d9a5f; --c4:#8a5bb5; --mark:#b3372f;
  --bad:#b3261e; --warn:#9a5b00; --ok:#1f7a3d; --info:#2f6fb0; }
@media (prefers-color-scheme: dark) { :root { --ink:#e4e9ee; --soft:#9dabb8; --back:#14191f; --card:#1d242c;
  --rule:#39434d; --c1:#6cabe8; --c2:#f0b25a; --c3:#74c794; --c4:#bd98e3; --mark:#ff8a80;
  --bad:#ff8a80; --warn:#f0b25a; --ok:#74c794; --info:#6cabe8; } }
* { box-sizing:border-box; }
body { margin:0 auto; padding:2rem 1.2rem 4rem; max-width:76rem; background:var(--back); color:var(--ink);
  font:16px/1.5 system-ui, sans-serif; }
h1 { margin:0; font-size:1.7rem; } h2 { margin:2.6rem 0 .6rem; font-size:1.3rem; }
h3 { margin:1.8rem 0 .3rem; font-size:1.05rem; }
p { margin:.4rem 0; max-width:48rem; } .soft, figcaption, caption { color:var(--soft); }
.soft, figcaption { font-size:.9rem; }
nav ul { padding:0; margin:.6rem 0; list-style:none; display:flex; flex-wrap:wrap; gap:.3rem 1rem; }
a { color:var(--info); }
code { font:0.9em ui-monospace, monospace; }
ol.findings { list-style:none; margin:1rem 0; padding:0; }
ol.findings li { margin:.5rem 0; padding:.6rem .9rem; background:var(--card); border-radius:.3rem;
  border-left:.35rem solid var(--soft); }
ol.findings b.level { display:inline-block; min-width:3.2rem; }
li.bad { border-color:var(--bad) !important; } li.bad b.level { color:var(--bad); }
li.warn { border-color:var(--warn) !important; } li.warn b.level { color:var(--warn); }
li.ok { border-color:var(--ok) !important; } li.ok b.level { color:var(--ok); }
li.info { border-color:var(--info) !important; } li.info b.level { color:var(--info); }
dl.numbers { display:grid; gap:.6rem; margin:1rem 0;
  grid-template-columns:repeat(auto-fill, minmax(11rem, 1fr)); }
dl.numbers div { background:var(--card); border-radius:.3rem; padding:.5rem .8rem; }
dt { color:var(--soft); font-size:.85rem; }
dd { margin:0; font-size:1.2rem; font-variant-numeric:tabular-nums; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; margin:.6rem 0 1rem; font-size:.92rem; font-variant-numeric:tabular-nums; }
caption { text-align:left; padding:.2rem 0; font-size:.9rem; }
th, td { padding:.25rem .7rem; border-bottom:1px solid var(--rule); text-align:left; white-space:nowrap; }
th { font-weight:600; } thead th { border-bottom-width:2px; }
tbody th { font-weight:500; } .number { text-align:right; }
tr.chosen td { font-weight:600; } td.alarm { color:var(--bad); font-weight:600; }
figure { margin:1.2rem 0; } svg { width:100%; height:auto; max-width:56rem; display:block; }
svg text { fill:var(--ink); font:12px system-ui, sans-serif; } svg text.label { fill:var(--soft); }
svg .grid { stroke:var(--rule); } svg .axis { stroke:var(--soft); }
svg line.mark { stroke:var(--mark); stroke-dasharray:4 3; }
svg text.mark { fill:var(--mark); font-size:11px; }
.c1 { fill:var(--c1); } .c2 { fill:var(--c2); } .c3 { fill:var(--c3); } .c4 { fill:var(--c4); }
svg polyline { fill:none; stroke-width:2; stroke-linejoin:round; }
.l1 { stroke:var(--c1); } .l2 { stroke:var(--c2); } .l3 { stroke:var(--c3); } .l4 { stroke:var(--c4); }
.legend span { margin-right:1.2rem; white-space:nowrap; }
.legend i { display:inline-block; width:.8rem; height:.8rem; margin-right:.35rem; border-radius:.15rem; }
.legend .c1 { background:var(--c1); } .legend .c2 { background:var(--c2); }
.legend .c3 { background:var(--c3); } .legend .c4 { background:var(--c4); }
@media print { body { max-width:none; } .scroll { overflow:visible; } }
"""

Numbers = Mapping[str, Any]  # what a run has counted


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


def page(title: str, subtitle: str, body: Iterable[str]) -> str:
    """Returns a whole page; `title` and `subtitle` are text, `body` is HTML."""
    inside = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="soft">{escape(subtitle)}</p>\n'
        f"{inside}\n</main>\n</body>\n</html>\n"
    )


def findings(found: Iterable[Finding], *, with_topic: bool = True) -> str:
    """Returns findings as HTML, the worst first."""
    order = list(LEVELS)
    items = []
    for each in sorted(found, key=lambda finding: order.index(finding.level)):
        topic = f"<code>{escape(each.topic)}</code> " if with_topic and each.topic else ""
        items.append(
            f'<li class="{each.level}"><b class="level">{LEVELS[each.level]}</b> {topic}'
            f"<b>{escape(each.title)}</b><br>{escape(each.text)}</li>"
        )
    return f'<ol class="findings">{"".join(items)}</ol>'


def numbers(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns a few large numbers with their names."""
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="numbers">{"".join(cells)}</dl>'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """Returns a table; the first column names the row, the others are right-aligned numbers."""
    head = "".join(
        f'<th scope="col"{"" if number == 0 else _NUMBER}>{escape(name)}</th>'
        for number, name in enumerate(heads)
    )
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_NUMBER: Final = ' class="number"'


def _cells(row: Sequence[str | Cell]) -> str:
    parts = []
    for number, value in enumerate(row):
        cell = value if isinstance(value, Cell) else Cell(value)
        classes = [*(["number"] if number else []), *(["alarm"] if cell.is_alarming else [])]
        attribute = f' class="{" ".join(classes)}"' if classes else ""
        tag, scope = ("td", "") if number else ("th", ' scope="row"')
        parts.append(f"<{tag}{scope}{attribute}>{escape(cell.text)}</{tag}>")
    return "".join(parts)


def figure(svg: str, caption: str, legend: Iterable[tuple[int, str]] = ()) -> str:
    """Returns a plot with its caption and the legend of its colours."""
    names = "".join(f'<span><i class="c{c}"></i>{escape(name)}</span>' for c, name in legend)
    shown = f'<div class="legend soft">{names}</div>' if names else ""
    return f"<figure>{shown}{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def paragraph(text: str, *, soft: bool = False) -> str:
    """Returns a paragraph of text."""
    return f"<p{' class=' + chr(34) + 'soft' + chr(34) if soft else ''}>{escape(text)}</p>"


def heading(level: int, text: str, anchor: str = "") -> str:
    """Returns a heading."""
    mark = f' id="{escape(anchor)}"' if anchor else ""
    return f"<h{level}{mark}>{escape(text)}</h{level}>"


def links(names: Iterable[tuple[str, str]]) -> str:
    """Returns links to anchors on the page: (anchor, text)."""
    items = "".join(f'<li><a href="#{escape(a)}">{escape(text)}</a></li>' for a, text in names)
    return f'<nav aria-label="Topics"><ul>{items}</ul></nav>'
