"""`tidelog broker`: takes brokers out of the cluster.

`remove ID...` moves every partition away from brokers that shall leave. They are closed to new replicas
first (`cordoned.brokers`). Then each of their replicas goes to a broker that stays: to another rack if
there is one, else to the broker that has least. Where no broker is left to take it, the partition has one
replica less. The command waits until nothing is left, and can be given again if it was interrupted: the
brokers go on without it. `forget ID...` lets the cluster forget brokers that are stopped for good and have
no replicas, their places in `cordoned.brokers` too.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_actions, add_within, number_given, wait_given
from tidelog.cli.arguments import add_broker as add_address
from tidelog.cli.brokers.assignments import (
    CORDONED,
    begin_moves,
    cordoned,
    counts_of,
    metadata,
    named,
    racks_of,
    replicas_of,
)
from tidelog.cli.cluster import Cluster
from tidelog.cli.output import bar, print_lines
from tidelog.cli.shared import CommandError, UsageError
from tidelog.client.calls import brokers as broker_calls
from tidelog.protocol.wire import EncodeError
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tidelog.protocol.topic_partition import TopicPartition

_POLL_S = 0.25
_WITHIN = "1h"
_LARGEST_ID = 2**31 - 1


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog broker`."""
    actions = {
        "remove": (_remove, "move all partitions away from brokers"),
        "forget": (_forget, "forget brokers that are stopped for good"),
    }
    for action, one in add_actions(parser, actions, add_address, None):
        one.add_argument("brokers", metavar="ID", nargs="+", help="the brokers that shall leave")
        if action == "remove":
            add_within(one, _WITHIN, "how long to wait until nothing is left")


def moved(
    replicas: Sequence[int],
    leaving: frozenset[int],
    racks: Mapping[int, str | None],
    has: Mapping[int, int],
) -> tuple[int, ...]:
    """Returns a partition's replicas without those that leave, each replaced in its place.

    `racks` are the brokers that can take replicas, and `has` says how many replicas each has. The
    result is shorter where there are too few brokers, and empty where there is none.
    """
    found = list(replicas)
    for place, broker in enumerate(replicas):
        if broker not in leaving:
            continue
        others = [each for each in found if each not in leaving]
        used = {racks.get(each) for each in others} - {None}
        free = [each for each in racks if each not in leaving and each not in found]
        if free:
            found[place] = min(free, key=lambda each: (racks[each] in used, has.get(each, 0), each))
    return tuple(broker for broker in found if broker not in leaving)


def _remove(options: argparse.Namespace) -> None:
    leaving = _ids(options)
    deadline_s = time.monotonic() + wait_given(options)
    with Cluster(options.broker) as cluster:
        answer = metadata(cluster)
        _check_known(cluster, answer, leaving)
        racks = racks_of(answer)
        if not racks.keys() - leaving:
            raise UsageError("no broker would be left: at least one has to stay")
        were_closed = cordoned(cluster)
        closed = were_closed | leaving
        if not racks.keys() - closed:
            raise CommandError(
                f"no broker is left that takes replicas: {CORDONED} has all others that are up"
            )
        if closed != were_closed:
            cluster.alter(None, {CORDONED: ",".join(map(str, sorted(closed)))})
        _move_all(cluster, leaving, closed, deadline_s)
    left = [str(each) for each in sorted(leaving)]
    who = f"Broker {left[0]} has" if len(left) == 1 else f"Brokers {', '.join(left)} have"
    print_lines(
        f"{who} no partitions any more, and can be stopped for good.",
        f"Then: tidelog broker forget {' '.join(left)}",
    )


def _forget(options: argparse.Namespace) -> None:
    leaving = _ids(options)
    with Cluster(options.broker) as cluster:
        _check_known(cluster, metadata(cluster), leaving)
        for broker in sorted(leaving):
            cluster.perform(broker_calls.unregister(broker))
            print_lines(f"Broker {broker} is forgotten.")


def _ids(options: argparse.Namespace) -> frozenset[int]:
    return frozenset(number_given("ID", text, 0, _LARGEST_ID) for text in options.brokers)


def _check_known(cluster: Cluster, answer: Any, wanted: frozenset[int]) -> None:
    """Raises CommandError if one of these brokers is not in the cluster, up or down."""
    known = {*racks_of(answer), *counts_of(answer)}
    if wanted - known:
        with contextlib.suppress(EncodeError):  # a broker that names only those that are up
            known |= cluster.perform(broker_calls.registered())
    if unknown := sorted(wanted - known):
        there = ", ".join(map(str, sorted(known)))
        raise UsageError(f"there is no broker {unknown[0]} in the cluster, which has {there}")


def _move_all(
    cluster: Cluster, leaving: frozenset[int], closed: frozenset[int], deadline_s: float
) -> None:
    """Moves partitions until none is left on the brokers that leave. Raises CommandError.

    None is moved to a broker that is closed.
    """
    asked: set[TopicPartition] = set()
    answer, done = metadata(cluster), 0
    left = _left(answer, leaving)
    total = len(left)
    with bar(total) as advance:
        while left:
            if time.monotonic() >= deadline_s:
                raise CommandError(
                    f"{some(len(left), 'partition')} still there: {named([*left])}. The brokers go on "
                    "moving; give the command again to wait, and see tidelog cluster status --unhealthy"
                )
            racks = {each: rack for each, rack in racks_of(answer).items() if each not in closed}
            has, moves = counts_of(answer), dict[Any, Any]()
            for (topic, index), replicas in left.items():
                if (topic, index) in asked:
                    continue
                moves[topic, index] = after = moved(replicas, leaving, racks, has)
                if not after:
                    raise CommandError(f"no broker is up that could take {topic}-{index}")
                has.update(set(after) - set(replicas))
            begin_moves(cluster, moves)
            asked |= moves.keys()
            time.sleep(_POLL_S)
            answer = metadata(cluster)
            left = _left(answer, leaving)
            advance(max(total - len(left) - done, 0))
            done = max(total - len(left), done)


def _left(answer: Any, leaving: frozenset[int]) -> dict[TopicPartition, Sequence[int]]:
    """Returns the partitions that have a replica on one of the brokers, with their replicas."""
    there = replicas_of(answer).items()
    return {place: replicas for place, replicas in there if not leaving.isdisjoint(replicas)}
