"""Writes the results of a replay run: offsets.parquet, report.json, a summary, the exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.errors import FAILED, FINDINGS, OK
from tidelog.pipeline.replay import offset_map
from tidelog.pipeline.replay.delivery import AT_LEAST_ONCE
from tidelog.pipeline.report.output import REPORT, leave, say
from tidelog.pipeline.report.replay import MAY_BE_TWICE, html, sentences
from tidelog.pipeline.report.units import count
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.replay.replay import Outcome

_SHOWN: Final = 20


def conclude(
    job: str,
    run: str,
    directory: Path,
    outcomes: Sequence[Outcome],
    *,
    mode: str,
    seconds: float,
    more: Mapping[str, Any] | None = None,
    keep_map: bool = True,
    kind: str = "json",
) -> int:
    """Writes and prints the results of the tasks; returns the exit status.

    It is OK; FAILED if a partition stopped; FINDINGS if all records are there, but their offsets
    are unknown or a record may be there twice. `kind` "html" adds a page to report.json.
    report.json is always written: it shows that the run is over.
    """
    failed = [one for one in outcomes if one.error is not None]
    vague = [
        one for one in outcomes if one.error is None and (one.doubts or not one.map.is_complete)
    ]
    status = FAILED if failed else FINDINGS if vague else OK
    if keep_map:
        offset_map.renew(directory / offset_map.NAME, [one.map for one in outcomes])
    report = {
        "job": job,
        "run": run,
        "status": status,
        "delivery": mode,
        **_numbers(outcomes, seconds),
        **(more or {}),
        "partitions": [_partition(one) for one in outcomes],
    }
    leave(report, directory, "json" if kind == "none" else kind, html)
    _say(report)
    return status


def _numbers(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    return {
        "records": sum(one.count for one in outcomes),
        "records_found": sum(one.found for one in outcomes),
        "seconds": round(seconds, 3),
        "worker_cpu_seconds": round(sum(one.cpu_seconds for one in outcomes), 3),
    }


def _partition(one: Outcome) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "records": one.count,
        "records_found": one.found,
        "seconds": round(one.seconds, 3),
        "map_runs": len(one.map.runs),
        "map_is_complete": one.map.is_complete,
        "restarts": one.restarts,
        "doubts": list(one.doubts),
        "error": one.error,
    }


def _say(report: Mapping[str, Any]) -> None:
    """Prints what happened; partitions that stopped or are uncertain go to standard error."""
    partitions = report["partitions"]
    say(
        f"{report['job']} {report['run']}: {some(report['records'], 'record')} in"
        f" {some(len(partitions), 'partition')}, {count(report['records_found'])} of them there before;"
        f" delivery {report['delivery']};"
        f" {report['seconds']:.1f} s"
    )
    if report["delivery"] == AT_LEAST_ONCE:
        say(f"at-least-once: {MAY_BE_TWICE}")
    lines = [
        f"{one['topic']}-{one['partition']}: {said}"
        for one in partitions
        for said in sentences(one)
    ]
    for line in lines[:_SHOWN]:
        say(line, is_trouble=True)


def is_done(directory: Path) -> bool:
    """Returns whether a run is over and wrote everything, even if some offsets are unknown."""
    try:
        report = json.loads((directory / REPORT).read_text(encoding="utf-8"))
        return report["status"] in {OK, FINDINGS}
    except FileNotFoundError:
        return False


def written_by(directory: Path) -> list[tuple[str, int, int]]:
    """Returns topic, partition and number of records for everything that a run has written."""
    report = json.loads((directory / REPORT).read_text(encoding="utf-8"))
    return [(one["topic"], one["partition"], one["records"]) for one in report["partitions"]]
