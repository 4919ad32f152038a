"""Tables of what retention policies delete, for the pages of audit and what-if."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.pipeline.report import page
from tidelog.pipeline.report.page import Cell
from tidelog.pipeline.report.units import NONE, count, moment, share
from tidelog.text import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.pipeline.engine.whatif import Outcome, SimulatedLog
    from tidelog.pipeline.report.page import Numbers, ReportTable


def policy_rows(logs: Sequence[SimulatedLog], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Returns a row for each policy: what it deletes in all logs, first round and total."""
    names = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    records = sum(log.records for log in logs)
    rows = []
    for name in names:
        mine = [outcome for outcome in outcomes if outcome.policy == name]
        first = [outcome.rounds[0] for outcome in mine]
        last = [outcome.rounds[-1] for outcome in mine]
        times = [kept.first_time for kept in last if kept.first_time is not None]
        rows.append(
            {
                "policy": name,
                "deleted_bytes": sum(kept.deleted_size for kept in first),
                "deleted_records": sum(kept.deleted_records for kept in first),
                "deleted_segments": sum(
                    each.at_ms == outcome.rounds[0].at_ms
                    for outcome in mine
                    for each in outcome.deleted
                ),
                "killed_early": sum(each.killed_early for o in mine for each in o.deleted),
                "horizon_deleted_bytes": sum(kept.deleted_size for kept in last),
                "horizon_deleted_records": sum(kept.deleted_records for kept in last),
                "kept_bytes": sum(kept.size for kept in last),
                "kept_records": sum(kept.records for kept in last),
                "first_time_kept_ms": min(times, default=None),
                "pinned_bytes": sum(max((p.held_size for p in o.pinned), default=0) for o in mine),
                "is_estimated": any(outcome.is_estimated for outcome in mine),
                "records": records,
            }
        )
    return rows


def pinned_rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Returns a row for each segment that a time from the future keeps, by the first policy."""
    return [
        {
            "topic": outcome.topic,
            "partition": outcome.partition,
            "base_offset": each.base_offset,
            "bytes": each.size,
            "held_bytes": each.held_size,
            "offset": each.future.offset,
            "timestamp_ms": each.future.timestamp_ms,
            "producer_id": each.future.producer_id,
            "until_ms": each.until_ms,
        }
        for outcome in outcomes
        for each in outcome.pinned
    ]


def policies_table(
    caption: str, rows: Sequence[Numbers], log_bytes: int, *, with_horizon: bool
) -> ReportTable:
    """Returns the table of policies; `with_horizon` adds what all rounds delete, and what is kept."""
    columns: dict[str, Callable[[Numbers], str | Cell]] = {
        "policy": lambda row: row["policy"],
        "first round deletes": lambda row: size_of(row["deleted_bytes"]),
        "share": lambda row: share(row["deleted_bytes"], log_bytes),
        "records": lambda row: count(row["deleted_records"]),
        "killed early": lambda row: Cell(count(row["killed_early"]), row["killed_early"] > 0),
        "first event kept": lambda row: moment(row["first_time_kept_ms"])[:16],
    }
    if with_horizon:
        columns |= {
            "segments": lambda row: count(row["deleted_segments"]),
            "all rounds delete": lambda row: size_of(row["horizon_deleted_bytes"]),
            "kept": lambda row: size_of(row["kept_bytes"]),
        }
    return page.table(caption, rows, columns)


def pinned_table(rows: Sequence[Numbers]) -> ReportTable:
    """Returns the table of segments that a time from the future keeps."""
    return page.table(
        "Segments that Apache Kafka keeps because of one time from the future, with all behind them.",
        rows,
        {
            "partition": lambda row: f"{row['topic']}-{row['partition']}",
            "segment": lambda row: str(row["base_offset"]),
            "offset": lambda row: count(row["offset"]),
            "its time": lambda row: moment(row["timestamp_ms"]),
            "producer": lambda row: NONE if row["producer_id"] < 0 else str(row["producer_id"]),
            "kept until": lambda row: moment(row["until_ms"]),
            "bytes kept": lambda row: size_of(row["held_bytes"]),
        },
        most=40,
    )
