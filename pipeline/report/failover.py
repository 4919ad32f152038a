"""The report of a failover: a table for a terminal, and a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.report import page
from tidelog.pipeline.report.page import Cell, Heading, ReportFinding
from tidelog.pipeline.report.units import NONE, count, moment, span
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.report.page import Block, Numbers, ReportTable

_LEVELS: Final = {"lost": "bad", "missing": "bad", "unproven": "warn", "refused": "bad"}


def table(rows: Sequence[Numbers]) -> list[str]:
    """Returns the lines of a table, with the remarks on each partition below it."""
    found = _table(rows)
    texts = [list(found.heads), *([cell.text for cell in row] for row in found.rows)]
    first, *others = [max(map(len, column)) for column in zip(*texts, strict=True)]
    form = "  ".join([f"{{:<{first}}}", *(f"{{:>{width}}}" for width in others)])
    heads, *lines = [form.format(*each).rstrip() for each in texts]
    said = [[f"    {each}" for each in sentences(row)] for row in rows]
    return [
        heads,
        *(each for line, more in zip(lines, said, strict=True) for each in (line, *more)),
    ]


def _table(rows: Sequence[Numbers]) -> ReportTable:
    return page.table(
        "Every partition",
        rows,
        {
            "partition": _name,
            "committed": lambda row: str(row["committed"]),
            "unread": lambda row: _counted(row, "unread"),
            "continues at": lambda row: NONE if row["offset"] is None else str(row["offset"]),
            "lost": lambda row: _counted(row, "lost", is_alarming=True),
            "missing": lambda row: _counted(row, "missing", is_alarming=True),
            "read again": lambda row: _counted(row, "duplicates"),
            "proven by": lambda row: row["proven_by"] or row["status"].upper(),
        },
    )


def _counted(row: Numbers, name: str, *, is_alarming: bool = False) -> Cell:
    number = None if row["proof"] is None else row["proof"][name]
    return Cell(count(number), is_alarming and bool(number))


def bare(name: str) -> str:
    """Returns the sentence for a partition without a committed offset of the group."""
    return f"{name}: nothing committed, left as it is: the group begins by its auto.offset.reset"


def _name(row: Numbers) -> str:
    name = f"{row['topic']}-{row['partition']}"
    other = f"{row['target_topic']}-{row['target_partition']}"
    return name if name == other else f"{name} > {other}"


def sentences(row: Numbers) -> Iterator[str]:
    """Yields remarks on a partition that its numbers do not show."""
    if row["search_ms"] is not None:
        yield (
            f"next unread: {row['next_offset']} of {moment(row['next_ms'])}; less {span(row['margin_ms'])}"
            f" ({row['margin_from']}): searched for {moment(row['search_ms'])}"
        )
    proof = row["proof"]
    if proof is not None and proof["lost"]:
        yield (
            f"LOST: {some(proof['lost'], 'unread record')}, the first at {proof['first_lost']} in the source,"
            f" {'is' if proof['lost'] == 1 else 'are'} before {row['offset']} in the target"
        )
    if proof is not None and proof["missing"]:
        yield (
            f"MISSING: {some(proof['missing'], 'unread record')}, the first at {proof['first_missing']} in"
            " the source, not in the target: not copied yet, left out, or gone by retention"
        )
    if proof is not None and proof["compacted"]:
        yield f"{some(proof['compacted'], 'unread record')} compacted away in the target since"
    if proof is not None and proof["foreign"]:
        yield (
            f"{some(proof['foreign'], 'record')} ahead in the target that no record of the source accounts"
            " for: written by others, or a second copy; the group reads them too"
        )
    yield from row["notes"]


def html(report: Numbers) -> str:
    """Returns the page."""
    done = "The offsets were committed." if report["is_applied"] else "Nothing was changed."
    return page.html(
        "Where the group continues",
        f"Group {report['group']} from {report['from']} to {report['to']}, by {report['by']}, as of"
        f" {moment(report['at_ms'])} UTC. {done} Run {report['run']}.",
        _findings(report["partitions"]),
        _body(report),
    )


def _body(report: Numbers) -> Iterator[Block]:
    rows = report["partitions"]
    yield _table(rows)
    remarks = {_name(row): list(sentences(row)) for row in rows}
    if any(remarks.values()):
        yield Heading("What there is to say of each")
    for name, said in remarks.items():
        if said:
            yield Heading(name, 3)
            yield from said
    if report["nothing_committed"]:
        yield Heading("Without an offset")
        yield from map(bare, report["nothing_committed"])


def _findings(rows: Sequence[Numbers]) -> Iterator[ReportFinding]:
    good = [row for row in rows if row["status"] == "ok"]
    if good:
        again = sum(row["proof"]["duplicates"] for row in good)
        yield ReportFinding(
            "ok",
            "",
            f"Of {some(len(good), 'partition')} nothing is lost.",
            f"{some(sum(row['proof']['unread'] for row in good), 'unread record')}, each found at or after"
            f" its offset; {some(again, 'record')} will be read again.",
        )
    for row in rows:
        if row["status"] != "ok":
            said = " ".join(f"{one}." for one in sentences(row))
            yield ReportFinding(
                _LEVELS[row["status"]], _name(row), f"{row['status'].capitalize()}.", said
            )
