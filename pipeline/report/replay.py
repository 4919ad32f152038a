"""The page of a replay run: what was written to each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.pipeline.report import page
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def html(report: Mapping[str, Any]) -> str:
    """Returns the page for what report.json holds."""
    partitions, seconds = report["partitions"], report["seconds"]
    written = report["records"] - report["records_found"]
    return page.render(
        "replay.html",
        title=f"{report['job']} {report['run']}",
        subtitle=f"delivery: {report['delivery']}",
        findings=page.in_order(_findings(report)),
        numbers=[
            ("records", f"{report['records']:,}"),
            ("there before", f"{report['records_found']:,}"),
            ("partitions", str(len(partitions))),
            ("seconds", f"{seconds:,.1f}"),
            ("records a second", f"{written / max(seconds, 0.001):,.0f}"),
        ],
        partitions=page.table(
            "What each partition has of the run",
            ["partition", "records", "there before", "runs of offsets", "seconds", "stopped"],
            [
                [
                    f"{one['topic']}-{one['partition']}",
                    f"{one['records']:,}",
                    f"{one['records_found']:,}",
                    f"{one['map_runs']:,}" + ("" if one["map_is_complete"] else " (not whole)"),
                    f"{one['seconds']:,.1f}",
                    page.Cell("yes" if one["error"] else "no", one["error"] is not None),
                ]
                for one in partitions
            ],
        ),
    )


def _findings(report: Mapping[str, Any]) -> Iterator[page.Finding]:
    for one in report["partitions"]:
        name = f"{one['topic']}-{one['partition']}"
        if one["error"]:
            yield page.Finding("bad", name, "It stopped.", one["error"])
        elif not one["map_is_complete"]:
            found = some(one["records_found"], "record")
            text = f"Of {found} that the target had before, nobody knows where they are."
            yield page.Finding("warn", name, "The map of offsets is not whole.", text)
        for doubt in one["doubts"]:
            yield page.Finding("warn", name, "Nobody knows.", f"{doubt[:1].upper()}{doubt[1:]}.")
    if report["delivery"] == "at-least-once":
        text = (
            "A record may be there twice if the run is repeated after the target has forgotten its"
            " producer (producer.id.expiration.ms)."
        )
        yield page.Finding("info", "", "At least once.", text)
    elif all(one["error"] is None for one in report["partitions"]):
        text = f"Delivered {report['delivery'].replace('position', 'by position')}."
        yield page.Finding("ok", "", "Every record is there once.", text)
