"""`tidelog cluster rebalance`: evens out replicas and leaders, after brokers were added or replaced.

The plan is made from what each broker has, or is about to get (`balance.py`), so the command can be
interrupted and given again: it waits for what is under way, and goes on. A limited number of partitions
move at once, and `--throttle` limits the bandwidth (`throttle.py`). That limit lasts until everything is
moved, also when the command was interrupted meanwhile. `--plan` only prints what would be moved.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from client.calls import reassignments
from client.calls import topics as topic_calls
from tidelog.cli.brokers.assignments import (
    begin_moves,
    cordoned,
    metadata,
    named,
    number,
    racks_of,
    replicas_of,
)
from tidelog.cli.brokers.balance import added, balanced
from tidelog.cli.brokers.copying import Copying
from tidelog.cli.brokers.throttle import remove_throttle, set_throttle
from tidelog.cli.cluster import Cluster, raised_as_sentences
from tidelog.cli.shared import (
    USAGE,
    CommandError,
    add_broker,
    bar,
    counted,
    print_json,
    print_lines,
    print_table,
    size_of,
    span_of,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from protocol.topic_partition import TopicPartition
    from tidelog.cli.brokers.balance import Replicas

_POLL_S = 0.25
_WITHIN_S = 86_400
_LOOK_S = 1.0
_AT_ONCE = 10
_MOST_BYTES = 2**63


class _Plan(NamedTuple):
    """What is to be moved.

    `has` are the replicas of all partitions now, and `before` those when what is `under_way` is done;
    the `moves` come after that. `added` are the replicas that a partition does not have yet, by either.
    """

    has: dict[TopicPartition, Replicas]
    before: dict[TopicPartition, Replicas]
    under_way: dict[TopicPartition, Replicas]
    moves: dict[TopicPartition, Replicas]
    added: dict[TopicPartition, Replicas]
    sizes: dict[TopicPartition, int]


def add_rebalance(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster rebalance`."""
    parser.add_argument("--plan", action="store_true", help="print the moves, and make none")
    parser.add_argument(
        "--at-once",
        metavar="N",
        default=str(_AT_ONCE),
        help=f"how many partitions move at the same time ({_AT_ONCE})",
    )
    parser.add_argument(
        "--throttle",
        metavar="BYTES_PER_S",
        help="how many bytes each broker sends and fetches in a second for the moves",
    )
    parser.add_argument(
        "--within",
        metavar="SECONDS",
        default=str(_WITHIN_S),
        help=f"how long to wait until all are moved ({_WITHIN_S})",
    )
    add_broker(parser)


def run_rebalance(options: argparse.Namespace) -> None:
    """Runs `tidelog cluster rebalance`. Raises CommandError."""
    at_once = number(options.at_once, "--at-once", 10_000)
    if at_once == 0:
        raise CommandError("--at-once 0: expected at least 1", USAGE)
    rate = None
    if options.throttle is not None:
        rate = number(options.throttle, "--throttle", _MOST_BYTES)
        if rate == 0:
            raise CommandError("--throttle 0: expected at least 1", USAGE)
    deadline_s = time.monotonic() + number(options.within, "--within", 10**9)
    with Cluster(options.broker) as cluster:
        answer = metadata(cluster)
        closed = cordoned(cluster)
        racks = {each: rack for each, rack in racks_of(answer).items() if each not in closed}
        plan = _planned(cluster, answer, racks)
        if options.json:
            print_json(_as_json(plan, rate))
        else:
            _print_plan(plan, [*racks], rate)
        if not options.plan:
            _carry_out(cluster, plan, rate, at_once, deadline_s)
            if (plan.moves or plan.under_way) and not options.json:
                print_lines("All partitions are moved.")


def _planned(cluster: Cluster, answer: Any, racks: dict[int, str | None]) -> _Plan:
    with raised_as_sentences():
        moving = cluster.client.perform(reassignments.under_way())
    under_way = {place: move.target for place, move in moving.items()}
    has, sizes = replicas_of(answer), _sizes(cluster, answer)
    before = {**has, **under_way}
    moves = balanced(before, racks, sizes)
    whole = {
        place: tuple(each for each in replicas if each not in _adding(moving.get(place)))
        for place, replicas in has.items()
    }
    new = added(whole, {**{place: before[place] for place in under_way}, **moves})
    return _Plan(has, before, under_way, moves, new, sizes)


def _adding(move: reassignments.Move | None) -> tuple[int, ...]:
    return () if move is None else move.adding


def _carry_out(
    cluster: Cluster, plan: _Plan, rate: int | None, at_once: int, deadline_s: float
) -> None:
    """Moves everything under the limit that is given, and leaves none. Raises CommandError."""
    if rate is None:  # one of a command that was interrupted does not hold for this one
        _unthrottle(cluster)
    elif plan.added:
        set_throttle(cluster, rate, plan.has, plan.added)
    _move(cluster, plan, at_once, deadline_s)
    if rate is not None:
        _unthrottle(cluster)


def _unthrottle(cluster: Cluster) -> None:
    remove_throttle(cluster, [topic.name for topic in metadata(cluster).topics])


def _sizes(cluster: Cluster, answer: Any) -> dict[TopicPartition, int]:
    """Returns the bytes of each partition's leader."""
    found: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        led: dict[int, list[int]] = {}
        for one in topic.partitions:
            if one.leader_id >= 0:
                led.setdefault(one.leader_id, []).append(one.partition_index)
        for leader, indexes in led.items():
            with raised_as_sentences():
                sizes = cluster.client.perform(topic_calls.log_sizes(topic.name, indexes, leader))
            found.update({(topic.name, index): size for index, size in sizes.items()})
    return found


def _move(cluster: Cluster, plan: _Plan, at_once: int, deadline_s: float) -> None:
    """Moves partitions, a limited number at the same time. Raises CommandError.

    What is under way already does not count among these.
    """
    waiting, moving = dict(plan.moves), dict[Any, Any](plan.under_way)
    for place in waiting:
        moving.pop(place, None)
    others = len(moving)
    copying = Copying(plan.added, plan.sizes)
    looked_s, shown = time.monotonic(), 0
    with bar(copying.total, of_bytes=True) as advance:
        while waiting or moving:
            if time.monotonic() >= deadline_s:
                raise CommandError(
                    f"{named([*moving, *waiting])}. Give the command again to go on; those that are "
                    "under way go on by themselves, see tidelog cluster status --unhealthy"
                )
            free = max(at_once + others - len(moving), 0)
            begun = {place: waiting.pop(place) for place in [*waiting][:free]}
            begin_moves(cluster, begun)
            moving |= begun
            time.sleep(_POLL_S)
            now = replicas_of(metadata(cluster))
            # A topic that was deleted meanwhile has nothing to move any more.
            for place in [each for each, after in moving.items() if now.get(each, after) == after]:
                others -= place in plan.under_way and place not in plan.moves
                del moving[place]
                copying.done(place)
            if time.monotonic() - looked_s >= _LOOK_S:
                copying.look(cluster.client, moving)
                looked_s = time.monotonic()
            advance(copying.copied - shown)
            shown = copying.copied


def _print_plan(plan: _Plan, brokers: list[int], rate: int | None) -> None:
    counts = [_counted(each) for each in (plan.before, {**plan.before, **plan.moves})]
    rows = [
        (
            str(broker),
            *(f"{has[broker]} -> {will[broker]}" for has, will in zip(*counts, strict=True)),
        )
        for broker in sorted(brokers)
    ]
    print_table(("broker", "replicas", "leads by preference"), rows)
    copying = Copying(plan.added, plan.sizes)
    going = len(plan.under_way.keys() - plan.moves.keys())
    if not plan.moves and not going:
        print_lines("Nothing is moved: the brokers have as many replicas as each other.")
        return
    parts = [f"{counted(len(plan.moves), 'partition')} to move"] if plan.moves else []
    parts += [f"{counted(going, 'partition')} under way"] if going else []
    print_lines(f"{', '.join(parts)}, {size_of(copying.total)} to copy{_at_least(copying, rate)}.")


def _at_least(copying: Copying, rate: int | None) -> str:
    """Returns what is said of the time: the broker that gets most gets it at the rate at best."""
    if rate is None:
        return ""
    least_s = -(-copying.largest_of_a_broker() // rate)
    return f"; at {size_of(rate)}/s that takes {span_of(least_s * 1000)} at least"


def _counted(replicas: Mapping[TopicPartition, Replicas]) -> tuple[Counter[int], Counter[int]]:
    """Returns how many replicas, and how many preferred leaders, each broker has."""
    return (
        Counter(broker for each in replicas.values() for broker in each),
        Counter(each[0] for each in replicas.values() if each),
    )


def _as_json(plan: _Plan, rate: int | None) -> dict[str, Any]:
    return {
        "bytes": Copying(plan.added, plan.sizes).total,
        "throttle": rate,
        "under_way": [
            {"topic": topic, "partition": index, "new_replicas": list(after)}
            for (topic, index), after in plan.under_way.items()
        ],
        "moves": [
            {
                "topic": topic,
                "partition": index,
                "replicas": list(plan.before[topic, index]),
                "new_replicas": list(after),
            }
            for (topic, index), after in plan.moves.items()
        ],
    }
