"""`tidelog cluster rebalance`: evens out replicas and leaders, after brokers were added or replaced.

The plan is made from what each broker has, or is about to get (`rebalance_plan.py`), so the command can
be interrupted and given again: it waits for what is under way, and goes on. A limited number of partitions
move at once, and `--throttle` limits the bandwidth (`throttle.py`). That limit lasts until everything is
moved, also when the command was interrupted meanwhile; then it says what it leaves behind. `--plan` only
prints what would be moved, and `--cancel` takes back what is under way.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tidelog.cli.brokers.assignments import (
    begin_moves,
    cordoned,
    metadata,
    named,
    number,
    racks_of,
    replicas_of,
)
from tidelog.cli.brokers.rebalance_plan import Plan, are, as_json, make_plan, print_plan
from tidelog.cli.brokers.throttle import limit_set, remove_throttle, set_throttle
from tidelog.cli.cluster import Cluster
from tidelog.cli.connecting import raised_as_sentences, sentence_of
from tidelog.cli.shared import (
    BROKER_ADDRESS,
    USAGE,
    CommandError,
    add_broker,
    bar,
    print_json,
    print_lines,
)
from tidelog.client.calls import reassignments
from tidelog.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from tidelog.cli.brokers.balance import Replicas
    from tidelog.protocol.topic_partition import TopicPartition

_POLL_S = 0.25
_WITHIN_S = 86_400
_LOOK_S = 1.0
_AT_ONCE = 10
_MOST_BYTES = 2**63


class _NotDoneError(Exception):
    """The moves were not done in time."""


def add_rebalance(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster rebalance`."""
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--plan", action="store_true", help="print the moves, and make none")
    cancel = "take back all moves under way, whoever began them, and remove the limit"
    instead.add_argument("--cancel", action="store_true", help=cancel)
    at_once = f"how many partitions move at the same time ({_AT_ONCE})"
    parser.add_argument("--at-once", metavar="N", default=str(_AT_ONCE), help=at_once)
    rate = "how many bytes each broker sends and fetches in a second for the moves"
    parser.add_argument("--throttle", metavar="BYTES_PER_S", help=rate)
    within = f"how long to wait until all are moved ({_WITHIN_S})"
    parser.add_argument("--within", metavar="SECONDS", default=str(_WITHIN_S), help=within)
    add_broker(parser)


def run_rebalance(options: argparse.Namespace) -> None:
    """Runs `tidelog cluster rebalance`. Raises CommandError."""
    at_once = _positive("--at-once", options.at_once, 10_000)
    rate = None
    if options.throttle is not None:
        rate = _positive("--throttle", options.throttle, _MOST_BYTES)
    deadline_s = time.monotonic() + number(options.within, "--within", 10**9)
    with Cluster(options.broker) as cluster:
        if options.cancel:
            _cancel(cluster, as_one_object=options.json)
            return
        answer, closed = metadata(cluster), cordoned(cluster)
        racks = {each: rack for each, rack in racks_of(answer).items() if each not in closed}
        plan = make_plan(cluster, answer, racks)
        if options.json:
            print_json(as_json(plan, rate))
        else:
            print_plan(plan, [*racks], rate)
        if options.plan:
            return
        try:
            if rate is None:  # one of a command that was interrupted does not hold for this one
                _unthrottle(cluster)
            elif plan.added:
                set_throttle(cluster, rate, plan.has, plan.added)
            _move(cluster, plan, at_once, deadline_s)
            if rate is not None:
                _unthrottle(cluster)
        except (KeyboardInterrupt, _NotDoneError) as error:
            is_late = isinstance(error, _NotDoneError)
            ended = f"not done within {options.within} s" if is_late else "interrupted"
            raise CommandError(f"{ended}: {_left_behind(options, plan.moves)}") from None
        if (plan.moves or plan.under_way) and not options.json:
            print_lines("All partitions are moved.")


def _positive(option: str, text: str, limit: int) -> int:
    found = number(text, option, limit)
    if found == 0:
        raise CommandError(f"{option} 0: expected at least 1", USAGE)
    return found


def _unthrottle(cluster: Cluster) -> bool:
    return remove_throttle(cluster, [topic.name for topic in metadata(cluster).topics])


def _move(cluster: Cluster, plan: Plan, at_once: int, deadline_s: float) -> None:
    """Moves partitions, a limited number at the same time. Raises CommandError, and _NotDoneError.

    What is under way already does not count among these.
    """
    waiting, begun = dict(plan.moves), dict[Any, Any]()
    others = {place: after for place, after in plan.under_way.items() if place not in waiting}
    looked_s, shown = time.monotonic(), 0
    with bar(plan.copying.total, of_bytes=True) as advance:
        while waiting or begun or others:
            if time.monotonic() >= deadline_s:
                raise _NotDoneError
            new = {place: waiting.pop(place) for place in [*waiting][: at_once - len(begun)]}
            begin_moves(cluster, new)
            begun |= new
            time.sleep(_POLL_S)
            now = replicas_of(metadata(cluster))
            for moving in (begun, others):
                # A topic that was deleted meanwhile has nothing to move any more.
                for place in [
                    each for each in moving if now.get(each, moving[each]) == moving[each]
                ]:
                    del moving[place]
                    plan.copying.done(place)
            if time.monotonic() - looked_s >= _LOOK_S:
                plan.copying.look(cluster.client, [*begun, *others])
                looked_s = time.monotonic()
            advance(plan.copying.copied - shown)
            shown = plan.copying.copied


# --- before it is done ---------------------------------------------------------------------------


def _left_behind(options: argparse.Namespace, moves: Mapping[TopicPartition, Replicas]) -> str:
    """Returns what a command that ends early leaves, and which commands go on or take it back."""
    try:
        # The connection of the command may be in the middle of an answer.
        with Cluster(options.broker) as cluster, raised_as_sentences():
            moving = cluster.client.perform(reassignments.under_way())
            now = replicas_of(metadata(cluster))
            is_limited = limit_set(cluster)
    except CommandError as error:
        return f"what is under way goes on, and a limit stays set ({error})"
    rest = [
        place
        for place, after in moves.items()
        if place not in moving and now.get(place, after) != after
    ]
    parts = [f"{are(len(moving))} still being moved ({named([*moving])})"] if moving else []
    parts += [f"{are(len(rest))} not moved yet ({named(rest)})"] if rest else []
    parts += ["the throttle is still set"] if is_limited else []
    if not parts:
        return "everything is moved, and no throttle is set"
    again = "tidelog cluster rebalance"
    again += "" if str(options.broker) == BROKER_ADDRESS else f" --broker {options.broker}"
    file = getattr(options, "command_config", None)
    again += "" if file is None else f" --command-config {file}"
    throttle = "" if options.throttle is None else f" --throttle {options.throttle}"
    return f"{', '.join(parts)}. To go on: {again}{throttle}. To cancel: {again} --cancel"


def _cancel(cluster: Cluster, *, as_one_object: bool) -> None:
    """Takes back all moves under way, and removes the limit. Raises CommandError."""
    with raised_as_sentences():
        moving = [*cluster.client.perform(reassignments.under_way())]
        refused = cluster.client.perform(reassignments.reassign(dict.fromkeys(moving)))
    over = {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for (topic, index), error in refused.items():
        if error.code not in over:  # it is done, or its topic is gone
            raise CommandError(f"{topic}-{index} is not taken back: {sentence_of(error)}")
    was_limited = _unthrottle(cluster)
    taken_back = [place for place in moving if place not in refused]
    if as_one_object:
        names = [{"topic": topic, "partition": index} for topic, index in taken_back]
        print_json({"cancelled": names, "throttle_removed": was_limited})
        return
    told = f"{are(len(taken_back))} moved no more" if taken_back else "No partition is being moved"
    told += f": {named(taken_back)}" if taken_back else ""
    print_lines(f"{told}. {'The throttle is removed.' if was_limited else 'No throttle was set.'}")
