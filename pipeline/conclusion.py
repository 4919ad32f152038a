"""What a run of the replay engine leaves behind: offsets.parquet, report.json, a summary, an exit status."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from pipeline import offset_map
from pipeline.delivery import AT_LEAST_ONCE
from pipeline.errors import FAILED, FINDINGS, OK
from pipeline.report.replay import html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.replay import Outcome

REPORT: Final = "report.json"
PAGE: Final = "report.html"
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
    """Write and say what became of the tasks.

    OK, or FAILED where a partition stopped; FINDINGS where all is there but nobody knows where, or where a
    record may be there twice. `kind` "html" adds a page to report.json, which is always there: it says that
    the run is over.
    """
    failed = [one for one in outcomes if one.error is not None]
    vague = [one for one in outcomes if not one.map.is_complete and one.error is None]
    status = FAILED if failed else FINDINGS if vague else OK
    if keep_map:
        offset_map.write(directory / offset_map.NAME, [one.map for one in outcomes])
    count = sum(one.count for one in outcomes)
    found = sum(one.found for one in outcomes)
    cpu_s = sum(one.cpu_seconds for one in outcomes)
    report = {
        "job": job,
        "run": run,
        "status": status,
        "delivery": mode,
        "records": count,
        "records_found": found,
        "seconds": round(seconds, 3),
        "worker_cpu_seconds": round(cpu_s, 3),
        **(more or {}),
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "records": one.count,
                "records_found": one.found,
                "seconds": round(one.seconds, 3),
                "map_runs": len(one.map.runs),
                "map_is_complete": one.map.is_complete,
                "error": one.error,
            }
            for one in outcomes
        ],
    }
    _write(directory / REPORT, json.dumps(report, indent=1) + "\n")
    if kind == "html":
        _write(directory / PAGE, html(report))
    print(  # noqa: T201 - what the job says
        f"{job} {run}: {count} records in {len(outcomes)} partitions, {found} of them there before;"
        f" delivery {mode}; {seconds:.1f} s"
    )
    if mode == AT_LEAST_ONCE:
        print(  # noqa: T201 - as above
            "at-least-once: a record may be there twice if this run is repeated after the target has"
            " forgotten its producer (producer.id.expiration.ms, a day)"
        )
    for one in vague[:_SHOWN]:
        print(  # noqa: T201 - as above
            f"{one.topic}-{one.partition}: nobody knows where the first {one.found} records are",
            file=sys.stderr,
        )
    for one in failed[:_SHOWN]:
        print(f"{one.topic}-{one.partition}: {one.error}", file=sys.stderr)  # noqa: T201 - as above
    return status


def is_done(directory: Path) -> bool:
    """Whether a run is over, and everything there."""
    try:
        return bool(json.loads((directory / REPORT).read_text(encoding="utf-8"))["status"] == OK)
    except FileNotFoundError:
        return False


def written_by(directory: Path) -> list[tuple[str, int, int]]:
    """Topic, partition and records of what a run has written."""
    report = json.loads((directory / REPORT).read_text(encoding="utf-8"))
    return [(one["topic"], one["partition"], one["records"]) for one in report["partitions"]]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)
