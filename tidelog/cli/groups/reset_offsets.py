"""`tidelog groups reset-offsets`: changes where a group continues.

The new offset is the beginning, the end, an offset, a number of records forward or back, that in a
file, or that of a time: the records' own, or with --by append their append time. As Kafka's own
tool, it only prints the plan unless --yes is given. An offset outside the log becomes the
nearest one in it. A group with members is left alone. Nothing is committed before all offsets are
known.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.arguments import add_flag, add_shift, number_given
from tidelog.cli.cluster import INACTIVE, by_topic
from tidelog.cli.escaping import escaped
from tidelog.cli.nearest import did_you_mean
from tidelog.cli.output import print_json, print_lines, print_table
from tidelog.cli.places import places_in
from tidelog.cli.records import time_of
from tidelog.cli.shared import NONE, CommandError, UsageError, machine_ms, warn, warn_of_unit
from tidelog.client import EARLIEST, LATEST

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.cli.cluster import Cluster
    from tidelog.cli.places import Wanted
    from tidelog.client import GroupOffset
    from tidelog.protocol.topic_partition import TopicPartition

_LAST = 2**63 - 1


class ResetPlan(NamedTuple):
    """The new offset of a group in one partition; `note` says what differs from the request."""

    place: TopicPartition
    committed: int | None
    offset: int
    note: str = ""


def add_reset(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog groups reset-offsets`."""
    what = "every partition that the group has committed something in"
    add_flag(parser, "--all-topics", what)
    to = parser.add_mutually_exclusive_group(required=True)
    add_flag(to, "--to-earliest", "the beginning of the log")
    add_flag(to, "--to-latest", "the end of the log")
    add_flag(to, "--to-current", "the committed offset")
    to.add_argument("--to-offset", metavar="OFFSET", help="this offset")
    to.add_argument("--shift-by", metavar="N", help="so many offsets forward, or with -N back")
    what = "the first record at or after it: 2026-01-01T00:00Z, -2h, or milliseconds"
    to.add_argument("--to-time", metavar="TIME", help=what)
    what = "lines of topic,partition,offset, as --export and Kafka's tool write them (-: standard input)"
    to.add_argument("--from-file", metavar="FILE", help=what)
    parser.add_argument(
        "--by",
        type=lambda text: "record" if text == "event" else text,  # its name before
        choices=["record", "append"],
        help="for --to-time: the records' own times (record), or when they were appended",
    )
    add_shift(parser)
    add_flag(parser, "--export", "write topic,partition,offset lines")
    do = parser.add_mutually_exclusive_group()
    add_flag(do, "--yes", "do it", "--execute")
    add_flag(do, "--dry-run", "only show what would be done (default)")


def reset(cluster: Cluster, wanted: Wanted, options: argparse.Namespace) -> None:
    """Prints the plan, or executes it. Raises CommandError."""
    _check(wanted, options)
    name = options.group
    state = cluster.group(name).state
    if state not in INACTIVE:
        raise CommandError(
            f"offsets can only be reset while nobody is in a group, and {name} is {state}: stop its "
            "members first"
        )
    committed = cluster.committed(name)
    plans = _plans(cluster, wanted, committed, options)
    if state == "Dead" and not committed:
        near = did_you_mean(name, cluster.group_names())
        warn(options, f"there is no group {name} yet{near}")
    if options.yes:
        cluster.commit(name, {plan.place: plan.offset for plan in plans})
    _print_plans(name, plans, options)


def _check(wanted: Wanted, options: argparse.Namespace) -> None:
    ways = bool(wanted) + options.all_topics + (options.from_file is not None)
    if ways != 1:
        raise UsageError("name TOPIC or TOPIC:0,1, or give --all-topics or --from-file")
    if options.by is not None and options.to_time is None:
        raise UsageError("--by says which time --to-time means: give both")
    if options.json and options.export:
        raise UsageError("--json and --export: one of them")


# --- the new offsets ------------------------------------------------------------------------------


def _plans(
    cluster: Cluster,
    wanted: Wanted,
    committed: Mapping[TopicPartition, GroupOffset],
    options: argparse.Namespace,
) -> list[ResetPlan]:
    """Returns the new offset for each partition. Raises CommandError."""
    targets = None if options.from_file is None else _from_file(options.from_file, options.group)
    places = _places(cluster, wanted, committed, options, targets)
    starts, ends = (cluster.offsets(places, at) for at in (EARLIEST, LATEST))
    if targets is None:
        targets = _targets(cluster, places, committed, options, (starts, ends))
    plans = []
    for place in places:
        offset, note = targets[place]
        if offset < starts[place]:
            offset, note = starts[place], f"{offset} is before the beginning of the log"
        elif offset > ends[place]:
            offset, note = ends[place], note or f"{offset} is past the end of the log"
        known = committed.get(place)
        plans.append(ResetPlan(place, None if known is None else known.offset, offset, note))
    return plans


def _places(
    cluster: Cluster,
    wanted: Wanted,
    committed: Mapping[TopicPartition, GroupOffset],
    options: argparse.Namespace,
    targets: Iterable[TopicPartition] | None,
) -> list[TopicPartition]:
    """Returns the selected partitions, all of which exist. Raises CommandError."""
    if options.all_topics:
        targets = committed
        if not committed:
            raise CommandError(f"{options.group} has committed nothing: name TOPIC")
    if targets is not None:
        wanted = {**by_topic(targets)}
    return places_in(cluster, wanted)


def _targets(
    cluster: Cluster,
    places: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, GroupOffset],
    options: argparse.Namespace,
    log: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]],
) -> dict[TopicPartition, tuple[int, str]]:
    """Returns the requested offset for each partition, with a note. Raises CommandError."""
    starts, ends = log
    if options.to_earliest:
        return {place: (starts[place], "") for place in places}
    if options.to_latest:
        return {place: (ends[place], "") for place in places}
    if options.to_offset is not None:
        offset = number_given("--to-offset", options.to_offset, 0, _LAST)
        return dict.fromkeys(places, (offset, ""))
    if options.to_time is not None:
        return _at_time(cluster, places, options, ends)
    if options.to_current:
        return {
            place: (committed[place].offset, "")
            if place in committed
            else (ends[place], "nothing is committed: the end")
            for place in places
        }
    try:
        by = int(options.shift_by)
    except ValueError:
        raise UsageError(f"--shift-by {options.shift_by}: expected a number") from None
    if abs(by) > _LAST:
        raise UsageError(f"--shift-by {by}: that is not an offset")
    for topic, number in places:
        if (topic, number) not in committed:
            raise CommandError(
                f"nothing is committed in {topic}-{number} that --shift-by could start from"
            )
    return {place: (committed[place].offset + by, "") for place in places}


def _at_time(
    cluster: Cluster,
    places: Sequence[TopicPartition],
    options: argparse.Namespace,
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, tuple[int, str]]:
    """Returns the first record at or after a time in each partition. Raises CommandError."""
    here_ms = cluster.clock_at(options.http, places[0][0])  # None: it has no HTTP port
    now_ms = machine_ms() if here_ms is None else here_ms
    warn_of_unit(options, "--to-time", options.to_time)
    at = time_of(options.to_time, now_ms, shift=options.shift, what="--to-time")
    by = "appended-at" if options.by == "append" else "at"
    rows = cluster.rows_at(places, at, by, options.http, is_here=here_ms is not None)
    return {place: _row(place, row, ends[place]) for place, row in rows.items()}


def _row(place: TopicPartition, row: Mapping[str, Any], end: int) -> tuple[int, str]:
    """Returns the offset of one partition, and what is to be said of it. Raises CommandError."""
    if "error" in row:
        raise CommandError(f"{place[0]}-{place[1]}: {row['message']}")
    if unknown := row.get("unknown"):  # the earliest possible offset: no record is skipped
        first, last = unknown["start_offset"], unknown["end_offset"] - 1
        return (
            first,
            f"the append times of {first} to {last} are unknown: the group continues before them",
        )
    if row["offset"] == NONE:
        return end, "no record is that late: the end"
    return row["offset"], ""


def _from_file(path: str, group: str) -> dict[TopicPartition, tuple[int, str]]:
    """Parses a file of topic,partition,offset or group,topic,partition,offset.

    Raises CommandError.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"--from-file {path}: {reason}") from None
    found: dict[TopicPartition, tuple[int, str]] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        where = f"--from-file {path}, line {number}"
        fields = [field.strip() for field in row]
        if not fields:
            continue
        if len(fields) == 4 and fields.pop(0) != group:
            continue  # of another group
        if len(fields) != 3 or not all(each.isascii() and each.isdecimal() for each in fields[1:]):
            raise UsageError(f"{where}: expected topic,partition,offset")
        place, offset = (fields[0], int(fields[1])), int(fields[2])
        if offset > _LAST or place[1] >= 2**31:
            raise UsageError(f"{where}: expected topic,partition,offset")
        if place in found:
            raise UsageError(f"{where}: {place[0]}-{place[1]} is there twice")
        found[place] = offset, ""
    if not found:
        raise UsageError(f"--from-file {path}: there is nothing in it for {group}")
    return found


# --- output ---------------------------------------------------------------------------------------


def _print_plans(name: str, plans: Sequence[ResetPlan], options: argparse.Namespace) -> None:
    if options.export:
        csv.writer(sys.stdout, lineterminator="\n").writerows(
            (escaped(plan.place[0]), plan.place[1], plan.offset) for plan in plans
        )
        for (topic, number), _, _, note in plans:
            if note:
                sys.stderr.write(f"{escaped(topic)}-{number}: {escaped(note)}\n")
        return
    if options.json:
        rows = [
            {
                "topic": plan.place[0],
                "partition": plan.place[1],
                "committed_offset": plan.committed,
                "new_offset": plan.offset,
                "note": plan.note or None,
            }
            for plan in plans
        ]
        print_json({"group": name, "executed": options.yes, "partitions": rows})
        return
    print_table(
        ("topic", ">partition", ">committed", ">new", ""),
        [(*plan.place, plan.committed, plan.offset, plan.note) for plan in plans],
    )
    print_lines(
        "", f"{name} continues there." if options.yes else "Nothing was changed: add --yes."
    )
