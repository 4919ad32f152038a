"""`tidelog groups`: shows the members, the lag and the committed offsets of consumer groups.

Lag is in records and in time, by a record's own time and by its append time (lag.py). Resetting
offsets is in reset_offsets.py. Actions that delete ask for confirmation, or need --yes without a
terminal. The broker refuses them while the group has members.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_actions, add_yes, span_given
from tidelog.cli.cluster import Cluster
from tidelog.cli.groups.lag import Lag, as_json, measure, with_catch_up
from tidelog.cli.groups.reset_offsets import add_reset, reset
from tidelog.cli.nearest import did_you_mean
from tidelog.cli.output import print_answer, print_json, print_lines, print_table, span_of, working
from tidelog.cli.places import places_given
from tidelog.cli.shared import FAILED, CommandError, confirm
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from tidelog.cli.cluster import GroupStatus, Member
    from tidelog.cli.places import Wanted
    from tidelog.client import GroupOffset
    from tidelog.protocol.topic_partition import TopicPartition

_LONGEST_WATCH_MS = 3_600_000
_TIMES = {"event": "record", "append": "append"}  # by the names in JSON


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog groups`; without an action it lists groups."""
    actions = {
        "list": (_list, "list the groups"),
        "describe": (_describe, "members, what they read, and lag in records and in time"),
        "reset-offsets": (
            _reset,
            "change where a group continues: an offset, a time, the beginning",
        ),
        "delete": (_delete, "delete groups and what they have committed"),
        "delete-offsets": (_delete_offsets, "forget what a group has committed for a topic"),
    }
    for action, one in add_actions(parser, actions):
        if action == "describe":
            one.add_argument("groups", metavar="GROUP", nargs="*", help="all, if none is named")
            what = "watch them for so long, such as 10s, and estimate when they will have caught up"
            one.add_argument("--over", metavar="SPAN", help=what)
        elif action == "delete":
            one.add_argument("groups", metavar="GROUP", nargs="+")
        elif action != "list":
            one.add_argument("group", metavar="GROUP")
            least = "*" if action == "reset-offsets" else "+"
            what = "a topic, or some of its partitions: TOPIC:0,2"
            one.add_argument("places", metavar="TOPIC", nargs=least, help=what)
        if action == "reset-offsets":
            add_reset(one)
        if action.startswith("delete"):
            add_yes(one)


def _list(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        groups = cluster.group_names()
    if options.json:
        print_json([{"group": name, **described} for name, described in groups.items()])
        return
    rows = [(name, each["state"], each["protocol_type"]) for name, each in groups.items()]
    print_table(("group", "state", "kind"), rows)


# --- describing -----------------------------------------------------------------------------------


def _describe(options: argparse.Namespace) -> None:
    over_ms = None
    if options.over is not None:
        over_ms = span_given("--over", options.over, 1, _LONGEST_WATCH_MS, expected="1ms to 1h")
    with Cluster(options.broker) as cluster:
        names = options.groups or list(cluster.group_names())
        measured = _measured(cluster, names, options.http)
        began = time.monotonic()
        if over_ms is not None:
            with working(f"watching the groups for {options.over}"):
                time.sleep(over_ms / 1000)
            earlier = {group.name: lags for group, lags in measured}
            measured = _measured(cluster, names, options.http)
            elapsed_ms = max(int((time.monotonic() - began) * 1000), 1)
            measured = [
                (group, with_catch_up(earlier[group.name], lags, elapsed_ms))
                for group, lags in measured
            ]
    if options.json:
        answer = [_group_as_json(group, lags) for group, lags in measured]
        if over_ms is not None:
            for described, (_, lags) in zip(answer, measured, strict=True):
                for row, lag in zip(described["partitions"], lags, strict=True):
                    row["catch_up_ms"] = lag.catch_up_ms
        print_json(answer)
        return
    for number, (group, lags) in enumerate(measured):
        if number:
            print_lines("")
        _print_group(group)
        _print_lags(group, lags)
        if over_ms is not None:
            print_lines("", *(_catch_up(lag) for lag in lags if lag.records))


def _measured(
    cluster: Cluster, names: Iterable[str], http: str
) -> list[tuple[GroupStatus, list[Lag]]]:
    """Returns these groups, and their lags. Raises CommandError."""
    measured = []
    for name in names:
        group, committed = cluster.group(name), cluster.committed(name)
        if group.state == "Dead" and not committed:
            raise _no_group(name, cluster.group_names())
        assigned = [place for each in group.members for place in each.assigned or ()]
        measured.append((group, measure(cluster, http, committed, assigned)))
    return measured


def _no_group(name: str, there: Iterable[str]) -> CommandError:
    return CommandError(f"there is no group {name}{did_you_mean(name, there)}")


def _catch_up(lag: Lag) -> str:
    """Returns a sentence about when the group will have caught up."""
    place = f"{lag.place[0]}-{lag.place[1]}"
    if lag.catch_up_ms is None:
        return f"{place}: at this rate it does not catch up."
    return f"{place}: at this rate it has caught up in {span_of(lag.catch_up_ms)}."


def _readers(group: GroupStatus) -> dict[TopicPartition, Member]:
    return {place: member for member in group.members for place in member.assigned or ()}


def _group_as_json(group: GroupStatus, lags: Iterable[Lag]) -> dict[str, Any]:
    readers = _readers(group)
    return {
        "group": group.name,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "members": [
            each._asdict()
            | {
                "assigned": None
                if each.assigned is None
                else [{"topic": topic, "partition": number} for topic, number in each.assigned]
            }
            for each in group.members
        ],
        "partitions": [
            as_json(lag)
            | {"member_id": readers[lag.place].member_id if lag.place in readers else None}
            for lag in lags
        ],
    }


def _print_group(group: GroupStatus) -> None:
    kind = ", ".join(each for each in (group.protocol_type, group.protocol) if each)
    print_lines(
        f"{group.name}: {group.state}{f' ({kind})' if kind else ''}, "
        f"{some(len(group.members), 'member')}, coordinator {group.coordinator}",
        "",
    )
    if not group.members:
        return
    print_table(
        ("member", "client", "instance", "host", "reads"),
        [
            (each.member_id, each.client_id, each.instance_id or "", each.host, _reads(each))
            for each in group.members
        ],
        wraps="reads",
    )
    print_lines("")


def _reads(member: Member) -> str:
    """Returns the partitions of a member: "t:0,1 u:3"."""
    if member.assigned is None:
        return "(not a consumer's assignment)"
    by_topic: dict[str, list[str]] = {}
    for topic, number in member.assigned:
        by_topic.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or "-"


def _print_lags(group: GroupStatus, lags: Sequence[Lag]) -> None:
    if not lags:
        print_lines("It has committed nothing.")
        return
    readers = _readers(group)
    names = (
        "topic",
        ">partition",
        ">committed",
        ">end",
        ">lag",
        ">by record time",
        ">by append time",
    )
    print_table(
        (*names, "member"),
        [
            (
                *lag.place,
                lag.committed,
                lag.end,
                lag.records,
                *(
                    None if each is None else span_of(each)
                    for each in (lag.event_ms, lag.append_ms)
                ),
                readers[lag.place].member_id if lag.place in readers else "",
            )
            for lag in lags
        ],
    )
    notes = {
        f"No lag by {_TIMES[by]} time: {why}."
        for lag in lags
        for by, why in sorted(lag.unknown.items())
    }
    if notes:
        print_lines("", *sorted(notes))


# --- changing -------------------------------------------------------------------------------------


def _reset(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        reset(cluster, places_given(options.places), options)


def _delete(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        there = cluster.group_names()
        for name in options.groups:
            if name not in there:
                raise _no_group(name, there)
        listed = ", ".join(options.groups)
        confirm(
            options,
            f"Delete {listed} and all offsets committed there, for good?",
            f"{listed} and all offsets committed there would be gone for good: add --yes",
            "nothing was deleted",
        )
        refusals = cluster.delete_groups(list(dict.fromkeys(options.groups)))
    done = [name for name, refused in refusals.items() if refused is None]
    if options.json:
        print_json([{"group": name, "deleted": name in done} for name in refusals])
    elif done:
        print_lines(f"Deleted {', '.join(done)}.")
    if refused := [each for each in refusals.values() if each is not None]:
        raise CommandError("; ".join(refused), FAILED)


def _delete_offsets(options: argparse.Namespace) -> None:
    wanted = places_given(options.places)
    with Cluster(options.broker) as cluster:
        committed = cluster.committed(options.group)
        if not committed and options.group not in (there := cluster.group_names()):
            raise _no_group(options.group, there)
        places = _committed_there(options.group, committed, wanted)
        listed = ", ".join(f"{topic}-{number}" for topic, number in places)
        what = f"what {options.group} has committed in {listed}"
        refusal = f"{what} would be forgotten: add --yes"
        confirm(options, f"Forget {what}?", refusal, "nothing was forgotten")
        cluster.delete_offsets(options.group, places)
    rows = [
        {"topic": place[0], "partition": place[1], "forgotten": committed[place].offset}
        for place in places
    ]
    print_answer(options, {"group": options.group, "partitions": rows}, f"Forgotten: {what}.")


def _committed_there(
    group: str, committed: dict[TopicPartition, GroupOffset], wanted: Wanted
) -> list[TopicPartition]:
    """Returns the selected partitions that have committed offsets. Raises CommandError."""
    found: list[TopicPartition] = []
    for topic, numbers in wanted.items():
        there = [place for place in committed if place[0] == topic]
        if not there:
            near = did_you_mean(topic, {place[0] for place in committed})
            raise CommandError(f"{group} has committed nothing in {topic}{near}")
        for number in numbers or ():
            if (topic, number) not in committed:
                raise CommandError(f"{group} has committed nothing in {topic}-{number}")
        found += there if numbers is None else [(topic, number) for number in numbers]
    return found
