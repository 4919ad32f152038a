"""`tidelog transactions find-hanging` and `abort`: what nobody is going to end, and ending it.

`abort` asks for confirmation, or needs --yes without a terminal. It ends in a partition only what hangs
there: what a coordinator will end is left to it, or is aborted whole with --id.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import number_given, partition_given, span_given
from tidelog.cli.cluster import Cluster
from tidelog.cli.escaping import escaped
from tidelog.cli.output import (
    instant_of,
    print_answer,
    print_json,
    print_lines,
    print_table,
    span_of,
)
from tidelog.cli.shared import CommandError, UsageError, confirm, instants
from tidelog.cli.transactions import asking
from tidelog.cli.transactions.hanging import find
from tidelog.text import some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tidelog.cli.transactions.hanging import Hanging


def find_hanging(options: argparse.Namespace) -> None:
    """Shows what hangs in a topic, or in all, and the commands that help. Raises CommandError."""
    with Cluster(options.broker) as cluster:
        examined, found = _hanging(cluster, options)
    if options.json:
        print_json([_hanging_as_json(each) for each in found])
        return
    if found:
        _print_hanging(found)
        print_lines("", "what helps:")
        print_lines(
            *(
                f"  tidelog transactions abort {shlex.quote(escaped(each.place[0]))} "
                f"--partition {each.place[1]} --start-offset {each.transaction.start_offset}"
                for each in found
            ),
            "",
        )
    number = f"{some(len(found), 'transaction')} hang" if len(found) != 1 else "1 transaction hangs"
    print_lines(f"{some(examined, 'partition')} examined: {number if found else 'nothing hangs'}.")


def _hanging(cluster: Cluster, options: argparse.Namespace) -> tuple[int, list[Hanging]]:
    """Returns how many partitions were examined, and what hangs there. Raises CommandError."""
    only = partition_given(options)
    if only is not None and options.topic is None:
        raise UsageError("--partition needs a TOPIC")
    older_than_ms = span_given("--older-than", options.older_than)
    topics = cluster.topics(None if options.topic is None else [options.topic])
    places = [
        (topic.name, one.number)
        for topic in topics
        for one in topic.partitions
        if only is None or one.number == only
    ]
    if only is not None and not places:
        raise CommandError(f"there is no partition {options.topic}-{only}")
    if not places:
        return 0, []
    now_ms = cluster.now_ms(options.http, places[0][0])
    return len(places), find(cluster, places, older_than_ms, now_ms)


def _print_hanging(found: Sequence[Hanging]) -> None:
    names = (
        "topic",
        ">partition",
        ">start offset",
        ">producer id",
        ">epoch",
        "last heard of",
        ">ago",
    )
    print_table(
        (*names, "why it hangs"),
        [
            (
                *each.place,
                each.transaction.start_offset,
                each.transaction.producer_id,
                each.transaction.epoch,
                None if each.age_ms is None else instant_of(each.transaction.last_ms),
                None if each.age_ms is None else span_of(max(each.age_ms, 0)),
                each.why,
            )
            for each in found
        ],
        wraps="why it hangs",
    )


def _hanging_as_json(each: Hanging) -> dict[str, Any]:
    opened = each.transaction
    return {
        "topic": each.place[0],
        "partition": each.place[1],
        "start_offset": opened.start_offset,
        "producer_id": opened.producer_id,
        "producer_epoch": opened.epoch,
        "coordinator_epoch": opened.coordinator_epoch,
        "last_ms": None if each.age_ms is None else opened.last_ms,
        "last": None if each.age_ms is None else instants().to_iso(opened.last_ms),
        "age_ms": None if each.age_ms is None else max(each.age_ms, 0),
        "transactional_id": each.transactional_id,
        "why": each.why,
    }


def abort(options: argparse.Namespace) -> None:
    """Aborts what hangs in a topic, or the transaction of an id. Raises CommandError."""
    given = options.start_offset
    start_offset = None if given is None else number_given("--start-offset", given)
    if (options.id is None) == (options.topic is None):
        raise UsageError("expected TOPIC or --id ID")
    with Cluster(options.broker) as cluster:
        if options.id is not None:
            _abort_whole(cluster, options)
        else:
            _abort_hanging(cluster, options, start_offset)


def _abort_whole(cluster: Cluster, options: argparse.Namespace) -> None:
    """Aborts the transaction of a transactional id, through its coordinator."""
    if options.partition is not None or options.start_offset is not None:
        raise UsageError("--id aborts in every partition: leave out the others")
    name = escaped(options.id)
    transaction = asking.describe(cluster, options.id)
    if transaction.start_ms is None:
        raise CommandError(f"{name} has nothing open: it is {transaction.state}")
    confirm(
        options,
        f"Abort what {name} has open, and fence its producer?",
        f"what {name} has open would be aborted, and its producer fenced: add --yes",
        "nothing was aborted",
    )
    asking.fence(cluster, transaction)
    done = {"transactional_id": options.id, "aborted": True}
    print_answer(options, done, f"Aborted: what {name} had open. Its producer is fenced.")


def _abort_hanging(cluster: Cluster, options: argparse.Namespace, start_offset: int | None) -> None:
    """Aborts what hangs in a topic, or one transaction of that."""
    _, found = _hanging(cluster, options)
    if start_offset is not None:
        found = [each for each in found if each.transaction.start_offset == start_offset]
    where = escaped(options.topic) + ("" if options.partition is None else f"-{options.partition}")
    if not found:
        at = "" if start_offset is None else f" at offset {start_offset}"
        raise CommandError(
            f"no transaction hangs in {where}{at}: one that a coordinator knows is aborted with --id"
        )
    told = ", ".join(
        f"{escaped(each.place[0])}-{each.place[1]} from offset {each.transaction.start_offset} on "
        f"(producer id {each.transaction.producer_id})"
        for each in found
    )
    confirm(
        options,
        f"Abort, so that consumers of committed data leave its records out, in {told}?",
        f"would be aborted, so that consumers of committed data leave its records out: {told}: add --yes",
        "nothing was aborted",
    )
    for each in found:
        asking.abort_in(cluster, each.place, each.transaction)
    done = [_hanging_as_json(each) | {"aborted": True} for each in found]
    print_answer(options, done, *(f"Aborted: {line}." for line in told.split(", ")))
