"""One run of `backfill`: counts all rows, stages them in order, and writes what is staged."""

from __future__ import annotations

import re
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from tidelog.client import Client
from tidelog.pipeline.backfill import malformed, staging, tables
from tidelog.pipeline.backfill.in_process import rows_in_process
from tidelog.pipeline.backfill.local_files import NeedsSpark
from tidelog.pipeline.backfill.rows import Limits
from tidelog.pipeline.backfill.staging import RowsOnSpark
from tidelog.pipeline.errors import FINDINGS, OK, PipelineError, Refused, SetupError, UsageError
from tidelog.pipeline.options import INLINE
from tidelog.pipeline.plan import ScanPlan
from tidelog.pipeline.progress import Progress
from tidelog.pipeline.replay import replay, targets
from tidelog.pipeline.replay.conclusion import conclude
from tidelog.pipeline.replay.staged_source import StagedSource
from tidelog.pipeline.report.output import say
from tidelog.pipeline.times import to_iso
from tidelog.storage.time.retention import oldest_kept
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.backfill.in_process import RowsInProcess
    from tidelog.pipeline.backfill.malformed import Malformed
    from tidelog.pipeline.backfill.rows import Counts
    from tidelog.pipeline.jobs.backfill import BackfillOptions
    from tidelog.pipeline.replay.targets import TargetTopic
    from tidelog.pipeline.session import TaskSession
    from tidelog.pipeline.source.splits import Split
    from tidelog.protocol.topic_partition import TopicPartition

JOB: Final = "backfill"
_STAGED: Final = "staged"
_SECRET: Final = re.compile(r"password|pwd|secret|token", re.IGNORECASE)
_KAFKAS_RETENTION_MS: Final = 604_800_000  # where the cluster does not tell its default


def prepare(
    options: BackfillOptions, session: TaskSession, directory: Path, name: str, now_ms: int
) -> int:
    """Stages and counts the rows, and makes the plan.

    Raises Refused if some rows are refused; a dry run returns FINDINGS instead.
    """
    with Client(options.to_broker) as client:
        target = target_of(client, options)
        targets.refuse_records(client, _places(target), options)
        limits = limits_of(target, now_ms)
        rows, counts, broken = _counted(session, options, target, limits)
        refused = [
            *_report_malformed(options, broken),
            *_report_prediction(options, target, counts),
        ]
        if options.dry_run:
            return FINDINGS if refused else OK
        if refused:
            raise Refused("nothing was written: " + "; ".join(refused))
        # Staged under a temporary name and renamed: the final name is always complete.
        partial = directory / f".{_STAGED}"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(directory / _STAGED, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        rows.stage(partial, limits)
        _refuse_changed(staging.staged_files(partial), _left(counts, options))
        partial.rename(directory / _STAGED)
        if options.create:
            target = targets.prepare(
                client, options.topic, options.partitions, create=True, settings=_settings(options)
            )
        notes = targets.settle(client, _places(target), options)
    _plan(options, directory, name, now_ms, {**notes, "partitions": target.partition_count})
    return OK


def _counted(
    session: TaskSession, options: BackfillOptions, target: TargetTopic, limits: Limits
) -> tuple[RowsInProcess | RowsOnSpark, Counts, Malformed]:
    """Returns the rows of the table, their counts and its broken lines; shows where they are made and why.

    Raises UsageError, PipelineError and SetupError.
    """
    rows: RowsInProcess | RowsOnSpark
    broken = malformed.NONE
    with Progress(JOB, None, unit="rows") as progress:
        try:
            rows = rows_in_process(session, options, target.partition_count)
            note = "in this process"
        except NeedsSpark as reason:
            if session.master == INLINE:
                raise SetupError(f"--master {INLINE} has no Spark, and {reason}") from None
            note = f"on Spark because {reason}"
            progress.begin(note)
            table, broken = tables.opened(session, options)
            rows = RowsOnSpark(table, options, target.partition_count)
        counts = rows.count(limits)
        progress.update(counts.rows, note)
    return rows, counts, broken


def _left(counts: Counts, options: BackfillOptions) -> int:
    """Returns how many rows remain to be written."""
    left_out = counts.without_time if options.without_time == "drop" else 0
    left_out += counts.too_old + counts.too_new if options.outside == "drop" else 0
    return counts.rows - left_out


def _refuse_changed(staged: Mapping[int, tuple[str, ...]], counted: int) -> None:
    """Raises PipelineError unless as many rows were staged as counted: the table is read twice."""
    found = sum(map(staging.row_count, staged.values()))
    if found != counted:
        raise PipelineError(
            f"{some(found, 'row')} of the {counted} that were counted are there: the table has changed"
            " meanwhile; nothing was written"
        )


def _plan(
    options: BackfillOptions,
    directory: Path,
    name: str,
    now_ms: int,
    notes: Mapping[str, Any] | None,
) -> ScanPlan:
    def make() -> tuple[Sequence[Split], Mapping[str, Any]]:
        assert notes is not None
        return (), notes

    return ScanPlan.open(
        directory,
        job=JOB,
        run=name,
        arguments={
            **table_arguments(options),
            "time_column": options.time_column,
            "time_unit": options.time_unit,
            "time_zone": options.time_zone,
            "key_column": options.key_column,
            "header_columns": options.header_columns,
            "partition_column": options.partition_column,
            "value_columns": options.value_columns,
            "format": options.format,
            "registry": options.registry and tables.without_password(options.registry),
            "subject": options.subject,
            "without_time": options.without_time,
            "outside": options.outside,
            **({"malformed": options.malformed} if options.malformed != "refuse" else {}),
            "to_brokers": options.to_broker,
            "topic": options.topic,
            "delivery": options.delivery,
        },
        now_ms=now_ms,
        make=make,
    )


def table_arguments(options: BackfillOptions) -> dict[str, Any]:
    """Returns what plan.json says about the table, without passwords."""
    return {
        "table": tables.named(options),
        "input": options.input,
        "jdbc": options.jdbc and tables.without_password(options.jdbc),
        "option": sorted(
            (key, "***" if _SECRET.search(key) else value) for key, value in options.option
        ),
    }


def write(options: BackfillOptions, session: TaskSession, directory: Path, name: str) -> int:
    """Writes the staged rows; returns the exit status."""
    began_s = time.monotonic()
    plan = _plan(options, directory, name, 0, None)
    files = staging.staged_files(directory / _STAGED)
    table, total = tables.named(options), sum(map(staging.row_count, files.values()))
    tasks = targets.tasks_of(
        options,
        plan.notes,
        f"{JOB}/{name}",
        {(table, partition): StagedSource(each) for partition, each in files.items()},
        {table: options.topic},
        compression=max(0, targets.codec_of(options.compression)),
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


def target_of(client: Client, options: BackfillOptions) -> TargetTopic:
    """Returns the topic as it is or would be; nothing is created before all rows are counted."""
    if client.has_topic(options.topic):
        return targets.look_at(client, options.topic)
    if not options.create:
        raise UsageError(f"the target has no topic {options.topic}: make it, or say --create")
    return targets.as_it_would_be(client, options.topic, options.partitions, _settings(options))


def _places(target: TargetTopic) -> list[TopicPartition]:
    return [(target.topic, partition) for partition in range(target.partition_count)]


def _settings(options: BackfillOptions) -> dict[str, str]:
    return dict(options.set)


def limits_of(target: TargetTopic, now_ms: int) -> Limits:
    """Returns the times by which rows are counted."""
    retention_ms = int(target.settings.get("retention.ms") or _KAFKAS_RETENTION_MS)
    deletes = "delete" in (target.settings.get("cleanup.policy") or "delete")
    by_event = int(target.settings.get("retention.max.eventtime.ms") or -1) >= 0
    basis = target.settings.get("retention.time.basis") or ("append" if by_event else "record")
    counts = deletes and basis == "record" and not target.is_stamped
    kept_ms = oldest_kept(retention_ms if counts else -1, now_ms)
    return Limits(*target.window(now_ms), kept_ms, now_ms)


def _report_malformed(options: BackfillOptions, broken: Malformed) -> list[str]:
    """Prints how many lines are broken and where; returns the sentence that refuses them."""
    if not broken.lines:
        return []
    is_refused = options.malformed == "refuse"
    what = "refused: say --malformed drop" if is_refused else "left out"
    said = f"{some(broken.lines, 'malformed row')}: {what} ({'; '.join(broken.where)})"
    say(said)
    return [said] if is_refused else []


def _report_prediction(options: BackfillOptions, target: TargetTopic, counts: Counts) -> list[str]:
    """Prints the counts; returns the sentences that say why rows are refused."""
    span = (
        ""
        if counts.first_ms is None or counts.last_ms is None
        else f", from {to_iso(counts.first_ms)} to {to_iso(counts.last_ms)}"
    )
    say(
        f"{some(counts.rows, 'row')}{span}, to {some(target.partition_count, 'partition')} of"
        f" {target.topic}"
    )
    for unit, count in counts.in_other_units.items():
        if 2 * count < counts.rows - counts.without_time:
            continue  # a history has a few days in 1970 that seconds of today would be
        say(
            f"warning: the times of {some(count, 'row')} look like {unit} instead of milliseconds: is"
            f" --time-unit right for column {options.time_column}?"
        )
    refused: list[str] = []
    if counts.without_time:
        what = {
            "refuse": "refused: say --without-time keep or drop",
            "keep": "written without a time",
            "drop": "left out",
        }[options.without_time]
        said = f"{some(counts.without_time, 'row')} without a time (null, or -1 ms, which means none): {what}"
        say(said)
        refused += [said] if options.without_time == "refuse" else []
    if counts.elsewhere:
        refused.append(
            f"{some(counts.elsewhere, 'row')} with a partition outside 0 to {target.partition_count - 1} in"
            f" {options.partition_column}: refused"
        )
        say(refused[-1])
    outside = counts.too_old + counts.too_new
    if outside:
        what = "left out" if options.outside == "drop" else "refused"
        said = (
            f"{some(outside, 'row')} outside the window of {target.topic}: {what} ({counts.too_old} older"
            f" than {target.before_setting} ms before now, {counts.too_new}"
            f" newer than message.timestamp.after.max.ms = {target.after_ms} ms after)"
        )
        say(said)
        refused += [said] if options.outside == "refuse" else []
    if counts.expired:
        said = (
            f"retention would delete {counts.expired} of {some(counts.rows, 'row')} at once (older than"
            f" retention.ms = {target.settings.get('retention.ms') or _KAFKAS_RETENTION_MS});"
            " retention.ms=-1 or retention by event time avoids that"
            + ("" if options.accept_deletion else ": refused unless --accept-deletion")
        )
        say(said)
        refused += [] if options.accept_deletion else [said]
    return refused
