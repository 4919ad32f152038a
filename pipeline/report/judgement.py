"""What an audit says of its thresholds, and of its comparison with an earlier audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.engine.audit_comparison import kind_of
from tidelog.pipeline.engine.thresholds import COUNT, SHARE
from tidelog.pipeline.report import page
from tidelog.pipeline.report.page import Cell, ReportFinding
from tidelog.pipeline.report.units import NONE, count, moment, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.report.page import Numbers, ReportTable

_NOTABLE = 0.1  # a change of less than a tenth is not worth a line


def value(number: float | None, kind: str) -> str:
    """Formats a value of a kind: records, a share, a span."""
    if number is None:
        return NONE
    if kind == COUNT:
        return count(int(number))
    return f"{100 * number:.3g} %" if kind == SHARE else span(number)


def broken(each: Numbers) -> str:
    """Returns the sentence for a threshold that is exceeded."""
    limit, name = value(each["limit"], each["kind"]), each["name"]
    if each["value"] is None:
        return f"{name} of {each['subject']} is unknown, and its limit is {limit}"
    least = "at least " if name.startswith("min_") else ""
    found = value(each["value"], each["kind"])
    return f"{name} of {each['subject']} is {found}, and its limit is {least}{limit}"


def findings(report: Numbers) -> Iterator[ReportFinding]:
    """Yields a finding for each threshold that is exceeded, or one that says that all hold."""
    if report.get("thresholds") is None:
        return
    file = report["thresholds"]["file"]
    for each in report["thresholds"]["broken"]:
        yield ReportFinding("bad", "", f"{broken(each)}.", f"Says {file}.")
    if not report["thresholds"]["broken"]:
        yield ReportFinding("ok", "", "Every threshold holds.", f"Of {file}.")


def changes(comparison: Numbers) -> Iterator[str]:
    """Yields a sentence for each value that is notably different from the earlier audit."""
    for row in comparison["rows"]:
        if _is_notable(row):
            kind = kind_of(row["name"])
            yield (
                f"{row['topic']}: {row['name']} is {value(row['now'], kind)},"
                f" and was {value(row['before'], kind)}"
            )
    yield from (f"{topic}: not in the earlier audit" for topic in comparison["new"])
    yield from (f"{topic}: only in the earlier audit" for topic in comparison["gone"])


def table(comparison: Numbers) -> ReportTable:
    """Returns the table of a comparison."""
    return page.table(
        f"Compared with run {comparison['run']}, as of {moment(comparison['at_ms'])} UTC.",
        comparison["rows"],
        {
            "topic": lambda row: row["topic"],
            "value": lambda row: row["name"],
            "before": lambda row: value(row["before"], kind_of(row["name"])),
            "now": lambda row: Cell(value(row["now"], kind_of(row["name"])), _is_notable(row)),
        },
    )


def _is_notable(row: Numbers) -> bool:
    before: float | None = row["before"]
    now: float | None = row["now"]
    if before is None or now is None:
        return before is not now
    return abs(now - before) > _NOTABLE * max(abs(before), abs(now))
