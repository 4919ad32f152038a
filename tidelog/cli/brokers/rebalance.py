"""`tidelog cluster rebalance`: evens out replicas and leaders, after brokers were added or replaced.

The plan is made from what each broker has, or is about to get (`rebalance_plan.py`), so the command can
be interrupted and given again: it waits for what is under way, and goes on. A limited number of partitions
move at once. `--throttle` limits the bandwidth by Kafka's settings (KIP-73), until everything is moved,
also when the command was interrupted meanwhile; then it says what it leaves behind. `--dry-run` only prints
what would be moved, and `--cancel` takes back what is under way.

The limit is the rates of all brokers, and in each topic a list of the replicas that they hold for. The
rates are set first and removed last: where they are not set, no list of ours is left. A list `*` and the
rates of single brokers are somebody else's, and stay.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import (
    BROKER_ADDRESS,
    add_flag,
    add_within,
    number_given,
    size_given,
    wait_given,
)
from tidelog.cli.brokers.assignments import (
    begin_moves,
    cordoned,
    metadata,
    named,
    racks_of,
    replicas_of,
)
from tidelog.cli.brokers.rebalance_plan import RebalancePlan, print_plan
from tidelog.cli.cluster import Cluster, by_topic
from tidelog.cli.connecting import sentence_of
from tidelog.cli.output import bar, print_answer, print_json, print_lines
from tidelog.cli.shared import CommandError
from tidelog.client.calls import reassignments
from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls.settings import Resource
from tidelog.config.replication_quota import ALL_REPLICAS
from tidelog.protocol.error_codes import ErrorCode
from tidelog.text import are

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
_POLL_S = 0.5
_WITHIN = "1d"
_AT_ONCE = 10


def add_rebalance(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster rebalance`."""
    instead = parser.add_mutually_exclusive_group()
    add_flag(instead, "--dry-run", "print the moves, and make none", "--plan")
    cancel = "take back all moves under way, whoever began them, and remove the limit"
    add_flag(instead, "--cancel", cancel)
    at_once = f"how many partitions move at the same time ({_AT_ONCE})"
    parser.add_argument("--at-once", metavar="N", default=str(_AT_ONCE), help=at_once)
    rate = "how many bytes each broker sends and fetches in a second for the moves (20MiB)"
    parser.add_argument("--throttle", metavar="BYTES_PER_S", help=rate)
    add_within(parser, _WITHIN, "how long to wait until all are moved")


def run_rebalance(options: argparse.Namespace) -> None:
    """Runs `tidelog cluster rebalance`. Raises CommandError."""
    at_once, rate = number_given("--at-once", options.at_once, 1), None
    if options.throttle is not None:
        rate = size_given("--throttle", options.throttle, 1)
    deadline_s = time.monotonic() + wait_given(options)
    with Cluster(options.broker) as cluster:
        if options.cancel:
            _cancel(cluster, options)
            return
        answer, closed = metadata(cluster), cordoned(cluster)
        racks = {each: rack for each, rack in racks_of(answer).items() if each not in closed}
        plan = RebalancePlan(cluster, answer, racks)
        if options.json:
            print_json(plan.as_json(rate))
        else:
            print_plan(plan, racks, rate)
        if options.dry_run:
            return
        try:
            if rate is None:  # one of a command that was interrupted does not hold for this one
                _remove_throttle(cluster)
            elif plan.added:
                _set_throttle(cluster, rate, plan)
            _move(cluster, plan, at_once, deadline_s)
            if rate is not None:
                _remove_throttle(cluster)
        except (KeyboardInterrupt, TimeoutError) as error:
            is_late = isinstance(error, TimeoutError)
            unit = " s" if options.within.isdecimal() else ""
            ended = f"not done within {options.within}{unit}" if is_late else "interrupted"
            raise CommandError(f"{ended}: {_left_behind(options, plan)}") from None
        if (plan.moves or plan.under_way) and not options.json:
            print_lines("All partitions are moved.")


def _move(cluster: Cluster, plan: RebalancePlan, at_once: int, deadline_s: float) -> None:
    """Moves partitions, a limited number at the same time. Raises CommandError, and TimeoutError.

    What is under way already does not count among these.
    """
    waiting, own, shown = dict(plan.moves), set[Any](), 0
    moving = {place: after for place, after in plan.under_way.items() if place not in waiting}
    with bar(plan.total, of_bytes=True) as advance:
        while waiting or moving:
            if time.monotonic() >= deadline_s:
                raise TimeoutError
            new = {place: waiting.pop(place) for place in [*waiting][: at_once - len(own)]}
            begin_moves(cluster, new)
            moving |= new
            own |= new.keys()
            time.sleep(_POLL_S)
            now = replicas_of(metadata(cluster))
            # A topic that was deleted meanwhile has nothing to move any more.
            for place in [each for each, after in moving.items() if now.get(each, after) == after]:
                del moving[place]
                own.discard(place)
                plan.done(place)
            plan.look(moving)
            copied = plan.total - plan.left
            advance(copied - shown)
            shown = copied


def _left_behind(options: argparse.Namespace, plan: RebalancePlan) -> str:
    """Returns what a command that ends early leaves, and which commands go on or take it back."""
    try:
        # The connection of the command may be in the middle of an answer.
        with Cluster(options.broker) as cluster:
            moving = cluster.perform(reassignments.under_way())
            now = replicas_of(metadata(cluster))
            is_limited = _is_limited(cluster)
    except CommandError as error:
        return f"what is under way goes on, and a limit stays set ({error})"
    rest = [each for each in plan.moves if now.get(each, plan.moves[each]) != plan.moves[each]]
    rest = [each for each in rest if each not in moving]
    parts = []
    if moving:
        parts.append(f"{are(len(moving), 'partition')} still being moved ({named([*moving])})")
    if rest:
        parts.append(f"{are(len(rest), 'partition')} not moved yet ({named(rest)})")
    if is_limited:
        parts.append("the throttle is still set")
    if not parts:
        return "everything is moved, and no throttle is set"
    again = "tidelog cluster rebalance"
    again += "" if str(options.broker) == BROKER_ADDRESS else f" --broker {options.broker}"
    file = options.command_config
    again += "" if file is None else f" --command-config {file}"
    throttle = "" if options.throttle is None else f" --throttle {options.throttle}"
    return f"{', '.join(parts)}. To go on: {again}{throttle}. To cancel: {again} --cancel"


def _cancel(cluster: Cluster, options: argparse.Namespace) -> None:
    """Takes back all moves under way, and removes the limit. Raises CommandError."""
    moving = [*cluster.perform(reassignments.under_way())]
    refused = cluster.perform(reassignments.reassign(dict.fromkeys(moving)))
    over = {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for (topic, index), error in refused.items():
        if error.code not in over:  # it is done, or its topic is gone
            raise CommandError(f"{topic}-{index} is not taken back: {sentence_of(error)}")
    was_limited = _remove_throttle(cluster)
    taken_back = [place for place in moving if place not in refused]
    names = [{"topic": topic, "partition": index} for topic, index in taken_back]
    told = "No partition is being moved"
    if taken_back:
        told = f"{are(len(taken_back), 'partition')} moved no more: {named(taken_back)}"
    told += f". {'The throttle is removed.' if was_limited else 'No throttle was set.'}"
    print_answer(options, {"cancelled": names, "throttle_removed": was_limited}, told)


# --- the throttle --------------------------------------------------------------------------------


def _set_throttle(cluster: Cluster, rate: int, plan: RebalancePlan) -> None:
    """Limits what is copied to new replicas, to bytes per second for each broker. Raises CommandError."""
    cluster.alter(None, dict.fromkeys(RATES, str(rate)))
    for topic, indexes in by_topic(sorted(plan.added)).items():
        lists = {
            name: ",".join(f"{each}:{one}" for each in indexes for one in replicas[topic, each])
            for name, replicas in ((LEADERS, plan.has), (FOLLOWERS, plan.added))
        }
        _set_lists(cluster, topic, lists)


def _is_limited(cluster: Cluster) -> bool:
    """Returns whether rates are set for all brokers. Raises CommandError."""
    return bool(cluster.perform(setting_calls.describe(Resource(), names=RATES)))


def _remove_throttle(cluster: Cluster) -> bool:
    """Removes the limit from brokers and topics; returns False if none was set. Raises CommandError."""
    if not _is_limited(cluster):
        return False
    for topic in cluster.topics():
        _set_lists(cluster, topic.name, dict.fromkeys((LEADERS, FOLLOWERS)))
    cluster.alter(None, dict.fromkeys(RATES))
    return True


def _set_lists(cluster: Cluster, topic: str, lists: Mapping[str, str | None]) -> None:
    """Sets the lists of a topic, or removes them, but for those that name all replicas."""
    now = {entry.name: entry.value for entry in cluster.settings(topic, (LEADERS, FOLLOWERS))}
    changes = {
        name: text
        for name, text in lists.items()
        if now.get(name) != ALL_REPLICAS and (text or now.get(name))
    }
    if changes:
        cluster.alter(topic, changes)
