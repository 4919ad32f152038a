"""The report of a replay run: what was written to each partition, in sentences and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.report import page
from tidelog.pipeline.report.page import Cell, KeyFigures, ReportFinding
from tidelog.pipeline.report.units import count
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.report.page import Numbers

MAY_BE_TWICE: Final = (
    "a record may be there twice if this run is repeated after the target has forgotten its producer"
    " (producer.id.expiration.ms, a day)"
)


def sentences(partition: Numbers) -> Iterator[str]:
    """Yields what is wrong or unknown about a partition."""
    if partition["error"]:
        yield partition["error"]
    elif not partition["map_is_complete"]:
        found = partition["records_found"]
        yield (
            "the offset of the first record is unknown"
            if found == 1
            else f"the offsets of the first {some(found, 'record')} are unknown"
        )
    yield from partition["doubts"]
    if partition["restarts"]:
        yield (
            f"started over {some(partition['restarts'], 'time')}: the target had other records of this run's"
            " producer than expected"
        )


def html(report: Numbers) -> str:
    """Returns the page for what report.json holds."""
    partitions, seconds = report["partitions"], report["seconds"]
    written = report["records"] - report["records_found"]
    figures = [
        ("records", count(report["records"])),
        ("there before", count(report["records_found"])),
        ("partitions", count(len(partitions))),
        ("seconds", f"{seconds:,.1f}"),
        ("records a second", f"{written / max(seconds, 0.001):,.0f}"),
    ]
    table = page.table(
        "What each partition has of the run",
        partitions,
        {
            "partition": _name,
            "records": lambda one: count(one["records"]),
            "there before": lambda one: count(one["records_found"]),
            "runs of offsets": lambda one: (
                count(one["map_runs"]) + ("" if one["map_is_complete"] else " (not whole)")
            ),
            "seconds": lambda one: f"{one['seconds']:,.1f}",
            "stopped": lambda one: Cell("yes" if one["error"] else "no", bool(one["error"])),
        },
    )
    return page.html(
        f"{report['job']} {report['run']}",
        f"delivery: {report['delivery']}",
        _findings(report),
        [KeyFigures(figures), table],
    )


def _name(partition: Numbers) -> str:
    return f"{partition['topic']}-{partition['partition']}"


def _findings(report: Numbers) -> Iterator[ReportFinding]:
    for one in report["partitions"]:
        said = " ".join(f"{each[:1].upper()}{each[1:]}." for each in sentences(one))
        if one["error"]:
            yield ReportFinding("bad", _name(one), "It stopped.", said)
        elif one["doubts"] or not one["map_is_complete"]:
            yield ReportFinding("warn", _name(one), "Not everything is known.", said)
        elif said:
            yield ReportFinding("info", _name(one), "Its writes started over.", said)
    if report["delivery"] == "at-least-once":
        text = f"{MAY_BE_TWICE[:1].upper()}{MAY_BE_TWICE[1:]}."
        yield ReportFinding("info", "", "At least once.", text)
    elif all(one["error"] is None for one in report["partitions"]):
        text = f"Delivered {report['delivery'].replace('position', 'by position')}."
        yield ReportFinding("ok", "", "Every record is there once.", text)
