"""What are my timestamps worth? Reads the times of a log and reports how far they can be trusted.

It reports lateness and disorder; times that are in the future, in another unit, missing or
negative; producers with wrong clocks; how long records take to arrive; and how far groups are
behind. It says which windows and which retention would be safe, and what others would have refused
or deleted. It only reads. Exit status 1: there are findings, or, with --thresholds, a limit is
exceeded.

    tidelog pipeline audit --broker localhost:9092 --topics orders
    tidelog pipeline audit --logs /var/lib/kafka --cluster localhost:9092 --groups billing
    tidelog pipeline audit --broker localhost:9092 --topics 'orders-.*' --from -7d --to now

Log directories show more than brokers: segments, and what retention deletes. Logs of tidelog also
show when records were appended, from either source.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline import options as common
from tidelog.pipeline.declaring import Choice, Flag, Item, Text, declared
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.options import Instant, RunOptions, TimedSource, UpTo
from tidelog.pipeline.plan import PLAN, ScanPlan, described
from tidelog.pipeline.report.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.session import TaskSession
    from tidelog.pipeline.source.splits import Split


_JUDGED: Final = "how it is judged"


@declared
class AuditOptions(RunOptions, TimedSource):
    """The options of the job."""

    job = "audit"
    section = "what to read"

    cluster: Text = common.addresses(
        "the cluster of the log directories: for its topics' settings and its groups' offsets"
    )
    groups: Text = Text("groups whose lag in time is reported", metavar="A,B")
    margin: Item[int] = common.span(
        "how far after its append time a time may be before it counts as from the future (1m)",
        default=60_000,
    )
    no_retention: Flag = Flag(
        "do not try retention policies on log directories; those of Apache Kafka are read twice for it"
    )
    upto: Choice[UpTo] = common.upto(
        "read log directories to the end, if nobody kept the high watermark"
    )
    thresholds: Text = Text(
        "limits in TOML; they alone decide the exit status, and those that are broken are named",
        section=_JUDGED,
        metavar="FILE",
    )
    compare: Text = Text(
        "report.json of an earlier audit, or the directory of its run: what has changed since",
        section=_JUDGED,
        metavar="OLD.json",
    )
    at: Item[Instant | None] = common.moment("judge as of this time (now)", section=_JUDGED)


OPTIONS: Final = AuditOptions


def run(options: AuditOptions, session: TaskSession) -> int:
    """Audits; returns the exit status."""
    cluster = options.broker or options.cluster
    if options.groups and cluster is None:
        raise UsageError("--groups needs --broker or --cluster: offsets are committed there")
    from tidelog.pipeline.runs import audit_run
    from tidelog.pipeline.runs.audit_judging import Judge
    from tidelog.pipeline.source import access

    judge = Judge(options)
    started_ms = time.time_ns() // 1_000_000
    directory = options.run_directory
    options = common.as_begun(options, directory / PLAN)
    selection = common.selection_of(options, upto=options.upto)
    made: list[Split] = []

    def make() -> tuple[Sequence[Split], Mapping[str, Any]]:
        made.extend(access.plan(selection, logs=options.logs, brokers=options.broker))
        if options.logs and not made:
            access.refuse_none(selection, options.logs)
        return made, {"now_ms": started_ms if options.at is None else options.at}

    plan = ScanPlan.open(
        directory,
        job="audit",
        run=options.run,
        arguments={
            **common.read_arguments(options),
            "margin_ms": options.margin,
        },
        now_ms=started_ms,
        make=make,
        save=not options.dry_run,
    )
    if options.dry_run:
        say(described(plan))
        return OK
    if not plan.is_new:
        again = common.selection_of(options, upto=options.upto, offsets=plan.offsets)
        made = list(access.plan(again, logs=options.logs, brokers=options.broker))
    found = audit_run.Auditing(options, session, selection, plan).report(made, cluster)
    return audit_run.leave(judge.judged(found), directory, options.report)
