r"""Write a table to a topic; each row gets the event time that a column contains.

Times are seconds, milliseconds, microseconds or nanoseconds since 1970, also negative, or ISO texts
with their zone. A column of Spark's own timestamp type needs no unit. Rows with a key go to the
partition that the Java clients choose; within a partition they are ordered by time. Before anything
is written, all rows are counted. Rows without a time, and rows that the topic's window
(message.timestamp.before.max.ms, after) would reject, are refused (exit status 1). The job reports
what retention would delete at once. The rows are staged as Parquet in the directory of the run, so
a run that was killed can be repeated with the same --run, and still writes each row exactly once.

    tidelog pipeline backfill --table history.parquet --time-column day --time-unit iso --key-column id \\
        --to-brokers b:9092 --topic history --create --partitions 6 --set retention.ms=-1
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client import Client
from pipeline import options as shared
from pipeline.errors import FINDINGS, OK, PipelineError, UsageError
from pipeline.plan import PLAN, Plan, at_work
from pipeline.replay import targets
from pipeline.report.output import say
from pipeline.times import UNITS, to_iso
from storage.time.retention import oldest_kept

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pipeline.replay.targets import Target
    from pipeline.session import Session
    from pipeline.source.splits import Split

JOB: Final = "backfill"
FORMATS: Final = ("parquet", "csv", "json", "orc", "table")
_STAGED: Final = "staged"
_KAFKAS_RETENTION_MS: Final = 604_800_000  # of a topic that is created without this setting


class _Counts(NamedTuple):
    """The counts that are made before anything is written."""

    rows: int
    without_time: int
    too_old: int
    too_new: int
    expired: int
    first_ms: int | None
    last_ms: int | None

    def left_by(self, options: argparse.Namespace) -> int:
        """Returns how many rows remain to be written."""
        left_out = self.without_time if options.without_time == "drop" else 0
        left_out += self.too_old + self.too_new if options.outside == "drop" else 0
        return self.rows - left_out


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the job."""
    group = parser.add_argument_group("which rows")
    add = group.add_argument
    add(
        "--table", required=True, metavar="PATH|NAME", help="files, a directory, an URI, or a table"
    )
    add(
        "--input",
        choices=FORMATS,
        help="what the table is (by its ending; 'table' for one of Spark's catalog)",
    )
    add(
        "--option",
        action="append",
        default=[],
        type=shared.pair,
        metavar="KEY=VALUE",
        help="an option of Spark's reader, header=true for CSV say",
    )
    add("--time-column", required=True, metavar="COLUMN", help="when it happened")
    add("--time-unit", choices=UNITS, help="the unit of the time column (not for timestamps)")
    add("--key-column", metavar="COLUMN", help="the key (none: null keys)")
    add(
        "--value-columns",
        metavar="A,B",
        help="what the value is made of (all columns; with raw: one column)",
    )
    add(
        "--format",
        choices=["json", "raw"],
        default="json",
        help="the value: a JSON object of the columns, or one column's bytes as they are",
    )
    add(
        "--without-time",
        choices=["refuse", "keep", "drop"],
        default="refuse",
        help="rows whose time is null: refuse all, write them without a time, leave them out",
    )
    add(
        "--outside",
        choices=["refuse", "drop"],
        default="refuse",
        help="rows outside the topic's window: refuse all, leave them out",
    )
    targets.add_target(parser)
    one = parser.add_argument_group("the topic")
    one.add_argument("--topic", required=True, metavar="TOPIC", help="where to")
    one.add_argument(
        "--partitions", type=int, default=1, metavar="N", help="of a topic that is made (1)"
    )
    shared.add_run(parser)


def run(options: argparse.Namespace, session: Session) -> int:
    """Stages, counts and writes; returns the exit status."""
    if options.partitions < 1:
        raise UsageError("--partitions: a topic has at least one")
    if options.format == "raw" and (options.value_columns is None or "," in options.value_columns):
        raise UsageError("--format raw needs one --value-columns COLUMN")
    now_ms = time.time_ns() // 1_000_000
    name = options.run or shared.new_run_id(JOB, now_ms)
    directory = Path(options.out) / name
    if options.dry_run:
        has_plan = (directory / PLAN).exists()
        return OK if has_plan else _prepare(options, session, directory, name, now_ms)
    with at_work(directory):
        status = OK
        if not (directory / PLAN).exists():
            status = _prepare(options, session, directory, name, now_ms)
        return status if status != OK else _write(options, session, directory, name)


def _prepare(
    options: argparse.Namespace, session: Session, directory: Path, name: str, now_ms: int
) -> int:
    """Stages and counts the rows, and makes the plan unless some rows are refused."""
    from pipeline.runs import backfill_staging

    with Client(options.to_brokers) as client:
        target = _target(client, options)
        frame = backfill_staging.rows(session, options, target.partition_count)
        counts = _Counts(*backfill_staging.count(frame, *_limits(target, now_ms)))
        refused = _report_prediction(options, target, counts)
        if refused or options.dry_run:
            return FINDINGS if refused else OK
        # Staged under a temporary name and renamed: the final name is always complete.
        partial = directory / f".{_STAGED}"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(directory / _STAGED, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        backfill_staging.stage(
            backfill_staging.kept(frame, options, *_limits(target, now_ms)),
            partial,
            target.partition_count,
        )
        _refuse_changed(backfill_staging.staged_files(partial), counts.left_by(options))
        partial.rename(directory / _STAGED)
        if options.create:
            target = targets.prepare(
                client, options.topic, options.partitions, create=True, settings=_settings(options)
            )
        places = [(options.topic, partition) for partition in range(target.partition_count)]
        notes = targets.settle(client, places, options)
    _plan(options, directory, name, now_ms, {**notes, "partitions": target.partition_count})
    return OK


def _refuse_changed(staged: Mapping[int, tuple[str, ...]], counted: int) -> None:
    """Raises PipelineError unless as many rows were staged as counted: the table is read twice."""
    from pipeline.runs.backfill_staging import row_count

    found = sum(map(row_count, staged.values()))
    if found != counted:
        raise PipelineError(
            f"{found} rows are there of {counted} that were counted: the table has changed meanwhile; nothing"
            " was written"
        )


def _plan(
    options: argparse.Namespace,
    directory: Path,
    name: str,
    now_ms: int,
    notes: Mapping[str, Any] | None,
) -> Plan:
    def make() -> tuple[Sequence[Split], Mapping[str, Any]]:
        assert notes is not None
        return (), notes

    return Plan.open(
        directory,
        job=JOB,
        run=name,
        arguments={
            "table": options.table,
            "input": options.input,
            "option": sorted(options.option),
            "time_column": options.time_column,
            "time_unit": options.time_unit,
            "key_column": options.key_column,
            "value_columns": options.value_columns,
            "format": options.format,
            "without_time": options.without_time,
            "outside": options.outside,
            "to_brokers": options.to_brokers,
            "topic": options.topic,
            "delivery": options.delivery,
        },
        now_ms=now_ms,
        make=make,
    )


def _write(options: argparse.Namespace, session: Session, directory: Path, name: str) -> int:
    """Writes the staged rows; returns the exit status."""
    from pipeline.progress import Progress
    from pipeline.replay import replay
    from pipeline.replay.conclusion import conclude
    from pipeline.replay.staged_source import StagedSource
    from pipeline.runs import backfill_staging

    began_s = time.monotonic()
    plan = _plan(options, directory, name, 0, None)
    with Client(options.to_brokers) as client:
        targets.refuse_anew(client, plan.notes)
        target = targets.look_at(client, options.topic)
    tasks, total = [], 0
    for partition, files in backfill_staging.staged_files(directory / _STAGED).items():
        total += backfill_staging.row_count(files)
        tasks.append(
            replay.Task(
                brokers=options.to_brokers,
                topic=options.topic,
                partition=partition,
                delivery=targets.delivery_of(plan.notes, f"{JOB}/{name}", options.topic, partition),
                source=StagedSource(files),
                source_topic=options.table,
                source_partition=partition,
                compression=max(0, targets.codec_of(options.compression)),
                batch_limit=min(options.batch_bytes, target.batch_limit),
                is_stamped=target.is_stamped,
            )
        )
    with Progress(JOB, total) as progress:
        outcomes = replay.replay(session, tasks, progress)
    return conclude(
        JOB,
        name,
        directory,
        outcomes,
        mode=plan.notes["delivery"],
        seconds=time.monotonic() - began_s,
        kind=options.report,
        more={"rows_staged": total},
        keep_map=False,
    )


def _target(client: Client, options: argparse.Namespace) -> Target:
    """Returns the topic as it is or would be; nothing is created before all rows are counted."""
    if client.has_topic(options.topic):
        return targets.look_at(client, options.topic)
    if not options.create:
        raise UsageError(f"the target has no topic {options.topic}: make it, or say --create")
    return targets.as_made(options.topic, options.partitions, _settings(options))


def _settings(options: argparse.Namespace) -> dict[str, str]:
    return dict(options.set)


def _limits(target: Target, now_ms: int) -> tuple[int, int, int]:
    """Returns the oldest and newest time the topic accepts, and the oldest that retention keeps."""
    retention_ms = int(target.settings.get("retention.ms") or _KAFKAS_RETENTION_MS)
    by_event = int(target.settings.get("retention.max.eventtime.ms") or -1) >= 0
    basis = target.settings.get("retention.time.basis") or ("append" if by_event else "record")
    counts = basis == "record" and not target.is_stamped
    return *target.window(now_ms), oldest_kept(retention_ms if counts else -1, now_ms)


def _report_prediction(options: argparse.Namespace, target: Target, counts: _Counts) -> bool:
    """Prints the counts; returns whether some rows are refused."""
    span = (
        ""
        if counts.first_ms is None or counts.last_ms is None
        else f", from {to_iso(counts.first_ms)} to {to_iso(counts.last_ms)}"
    )
    say(f"{counts.rows} rows{span}, to {target.partition_count} partitions of {target.topic}")
    refused = False
    if counts.without_time:
        refused = options.without_time == "refuse"
        what = {
            "refuse": "refused: say --without-time keep or drop",
            "keep": "written without a time",
            "drop": "left out",
        }[options.without_time]
        say(f"{counts.without_time} rows without a time (null, or -1 ms, which means none): {what}")
    outside = counts.too_old + counts.too_new
    if outside:
        refused |= options.outside == "refuse"
        what = "left out" if options.outside == "drop" else "refused"
        say(
            f"{outside} rows outside the window of {target.topic}: {what} ({counts.too_old} older than"
            f" message.timestamp.before.max.ms = {target.before_ms} ms before now, {counts.too_new} newer"
            f" than message.timestamp.after.max.ms = {target.after_ms} ms after)"
        )
    if counts.expired:
        say(
            f"warning: {counts.expired} rows are older than retention.ms ="
            f" {target.settings.get('retention.ms', _KAFKAS_RETENTION_MS)} and may be deleted at once:"
            " set retention.ms=-1, or retention by event time"
        )
    return refused
