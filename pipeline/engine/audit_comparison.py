"""Compares two audits: what has changed of each topic since an earlier report.json.

Only what both audits know is compared. Counts grow as a log grows, so shares stand for them, except
the number of records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.engine.thresholds import COUNT, TOPIC_MEASURES, Measure

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN: Final = (
    *("records", "missing_share", "future_share", "suspect", "out_of_order_share"),
    *("lateness_p99_9", "lateness_max", "delay_p50", "delay_p99_9", "delay_max"),
)
_MEASURES: Final[Mapping[str, Measure]] = {
    **TOPIC_MEASURES,
    "records": Measure(COUNT, lambda summary: summary["records"]),
}


class ComparisonError(ValueError):
    """A file that is no report of an audit; the message says why."""


def parse(text: str) -> dict[str, Any]:
    """Returns the report in a file. Raises ComparisonError."""
    try:
        report = json.loads(text)
        if report["job"] != "audit":
            raise ComparisonError(f"it is a report of {report['job']}")
        summaries = [topic["summary"] for topic in report["topics"]]
        for summary in summaries:
            values(summary)
        _ = report["run"], report["now_ms"]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ComparisonError):
            raise
        raise ComparisonError(f"it has no such form: {error!r}") from None
    found: dict[str, Any] = report
    return found


def values(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns what is compared of a topic: name and value, None if unknown."""
    if not summary["records"]:
        return {"records": 0}
    return {name: _MEASURES[name].of(summary) for name in _SHOWN}


def kind_of(name: str) -> str:
    """Returns what a value is: a number of records, a share or a span."""
    return _MEASURES[name].kind


def compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the comparison of two reports, in the form of report.json."""
    then = {topic["topic"]: values(topic["summary"]) for topic in before["topics"]}
    here = {topic["topic"]: values(topic["summary"]) for topic in now["topics"]}
    rows = [
        {"topic": topic, "name": name, "before": then[topic][name], "now": value}
        for topic, found in here.items()
        if topic in then
        for name, value in found.items()
        if name in then[topic]
    ]
    return {
        "run": before["run"],
        "at_ms": before["now_ms"],
        "rows": rows,
        "new": [topic for topic in here if topic not in then],
        "gone": [topic for topic in then if topic not in here],
    }
