"""`tidelog delete-records`: deletes the records before a time.

It asks the broker for the offset of the time, and then DeleteRecords moves the start of each log
there. It first prints what will be deleted and asks for confirmation, because deletion cannot be
undone. If it is unknown which records are older, they are kept. A record with a time from the
future keeps everything behind it; then it says so, and offers --largest-before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.arguments import add_common, add_flag, add_shift, add_topic, add_yes
from tidelog.cli.cluster import Cluster
from tidelog.cli.output import print_json, print_lines, print_table, shown
from tidelog.cli.shared import NONE, CommandError, UsageError, confirm, warn_of_unit
from tidelog.cli.times.offsets import look_up
from tidelog.text import size_of, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


class DeletionPlan(NamedTuple):
    """The deletion in one partition: records before `offset`; `kept` says what remains, and why."""

    partition: int
    start: int
    offset: int
    records: int
    bytes: int
    kept: str | None


def add_delete_records(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog delete-records`."""
    add_topic(parser)
    what = "the records before the first one at or after it are deleted: 2026-01-01T00:00Z, -30d, or ms"
    parser.add_argument("--before", metavar="TIME", required=True, help=what)
    add_flag(parser, "--appended", "by when records were appended, not by their own time")
    what = (
        "no record counts with a time later than its append time, as in retention: a time from the "
        "future keeps no older records behind it"
    )
    add_flag(parser, "--largest-before", what)
    add_flag(parser, "--dry-run", "only say what would be deleted")
    add_yes(parser)
    add_shift(parser)
    add_common(parser)
    parser.set_defaults(run=_delete)


def _delete(options: argparse.Namespace) -> None:
    if options.appended and options.largest_before:
        raise UsageError("--largest-before is about record times: leave out --appended")
    warn_of_unit(options, "--before", options.before)
    at, appended_at = (None, options.before) if options.appended else (options.before, None)
    found = look_up(options, at, appended_at, capped=options.largest_before)
    ends = {row["partition"]: row for row in look_up(options, None, None)["partitions"]}
    plans = [_plan(found["topic"], row, ends[row["partition"]]) for row in found["partitions"]]
    if at is not None and not options.largest_before:
        capped = look_up(options, str(found["at_ms"]), None, capped=True)["partitions"]
        each = zip(plans, found["partitions"], capped, strict=True)
        plans = [_with_obstacle(plan, row, further) for plan, row, further in each]
    going = [plan for plan in plans if plan.records]
    if not options.json:
        _print_plans(found, plans)
    done = bool(going) and not options.dry_run
    if done:
        what = f"{_sum(going)} of {found['topic']}"
        confirm(
            options,
            f"Delete {what} for good?",
            f"{what} would be gone for good: add --yes to delete them, --dry-run to look only",
            "nothing was deleted",
        )
        _delete_records(options.broker, found, {plan.partition: plan.offset for plan in going})
    if options.json:
        rows = [
            {
                "partition": plan.partition,
                "log_start_offset": plan.offset if done else plan.start,
                "records": plan.records,
                "bytes": plan.bytes,
                "kept": plan.kept,
            }
            for plan in plans
        ]
        print_json({"topic": found["topic"], "deleted": done, "partitions": rows})
    elif done:
        print_lines("", f"Deleted: {_sum(going)}.")


def _delete_records(address: str, found: dict[str, Any], offsets: dict[int, int]) -> None:
    """Deletes from the topic, unless it was created again meanwhile. Raises CommandError."""
    with Cluster(address) as cluster:
        (topic,) = cluster.topics([found["topic"]])
        if topic.topic_id != found["topic_id"]:
            raise CommandError(
                f"the topic {found['topic']} at --broker {address} is not the one that --http looked "
                "at: nothing was deleted"
            )
        cluster.delete_records(found["topic"], offsets)


def _plan(topic: str, row: dict[str, Any], ends: dict[str, Any]) -> DeletionPlan:
    """Returns the deletion in a partition. Raises CommandError if the broker does not know it."""
    number = row["partition"]
    for each in (row, ends):
        if "error" in each:
            raise CommandError(f"{topic}-{number}: {each['message']}")
    start, end = row["log_start_offset"], row["end_offset"]
    offset, kept = row["offset"], None
    if row.get("unknown"):
        unknown = row["unknown"]
        offset = unknown["start_offset"]
        last = unknown["end_offset"] - 1
        kept = f"the append times of {offset} to {last} are unknown: they stay"
    elif offset == NONE:
        offset = end
        if "unknown" not in row and end > start and ends["largest"]["offset"] == NONE:
            return DeletionPlan(number, start, start, 0, 0, "no record has a time: use --appended")
    return DeletionPlan(number, start, offset, row["offsets_before"], row["bytes_before"], kept)


def _with_obstacle(plan: DeletionPlan, row: dict[str, Any], capped: dict[str, Any]) -> DeletionPlan:
    """Returns the plan, and in `kept` the record from the future that ends it, if there is one.

    Raises CommandError if the broker does not know it.
    """
    if "error" in capped:
        raise CommandError(f"partition {plan.partition}: {capped['message']}")
    more = capped["offsets_before"] - row["offsets_before"]
    if plan.kept is not None or row["offset"] == NONE or more <= 0:
        return plan
    time, append = shown(row, "timestamp"), shown(row, "append_time", "unknown")
    return plan._replace(
        kept=f"offset {row['offset']} has the time {time}, and was appended at {append}: "
        f"from there on {some(more, 'record')} stay; --largest-before deletes them too"
    )


def _print_plans(found: dict[str, Any], plans: Sequence[DeletionPlan]) -> None:
    name = "at" if "at_ms" in found else "appended_at"
    what = "with a time" if name == "at" else "appended"
    print_lines(
        f"{found['topic']}: what comes before the first record {what} at or after {shown(found, name)}",
        "",
    )
    rows = [
        (
            plan.partition,
            f"{plan.start} to {plan.offset - 1}" if plan.records else "none",
            plan.records,
            size_of(plan.bytes),
            plan.kept or "",
        )
        for plan in plans
    ]
    print_table((">partition", "offsets", ">records", ">size", ""), rows)
    if not any(plan.records for plan in plans):
        print_lines("", "Nothing to delete.")


def _sum(plans: Sequence[DeletionPlan]) -> str:
    records, size = sum(plan.records for plan in plans), sum(plan.bytes for plan in plans)
    return f"{some(records, 'record')}, {size_of(size)}"
