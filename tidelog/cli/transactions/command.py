"""`tidelog transactions`: lists, describes and aborts transactions, and finds those that hang.

Ages are by the broker's clock if its HTTP port answers, else by this machine's. `abort` asks for
confirmation, or needs --yes without a terminal. It ends in a partition only what hangs there: what a
coordinator will end is left to it, or is aborted whole with --id.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from client.calls.transactions import Filters
from tidelog.cli.cluster import Cluster
from tidelog.cli.escaping import escaped
from tidelog.cli.shared import (
    USAGE,
    CommandError,
    add_actions,
    add_yes,
    check_number,
    confirm,
    counted,
    instants,
    print_json,
    print_lines,
    print_table,
    run_action,
    span_of,
)
from tidelog.cli.transactions import asking
from tidelog.cli.transactions.hanging import find

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from protocol.topic_partition import TopicPartition
    from tidelog.cli.transactions.asking import Transaction
    from tidelog.cli.transactions.hanging import Hanging

_MAX_TIMEOUT = "15m"  # the default of transaction.max.timeout.ms
_DESCRIBED = {
    "list": "list the transactional ids, what each is doing, and for how long",
    "describe": "one transaction: its producer, its time-out, its partitions and where it began there",
    "find-hanging": "transactions that are open in partitions, and that nobody is going to end",
    "abort": "end what hangs in a topic, or what a transactional id has open",
}


def add_transactions(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog transactions`; without an action it lists."""
    parser.set_defaults(state=[], producer_id=[], open_for=None, matching=None)
    for action, one in add_actions(parser, _DESCRIBED):
        if action == "list":
            _add_filters(one)
        elif action == "describe":
            one.add_argument("ids", metavar="ID", nargs="+")
        else:
            least = "the topic" if action == "abort" else "one topic alone"
            one.add_argument("topic", metavar="TOPIC", nargs="?", help=least)
            one.add_argument("--partition", metavar="N", help="one partition alone")
            one.add_argument(
                "--older-than",
                metavar="SPAN",
                default=_MAX_TIMEOUT,
                help="a transaction that its coordinator knows without the partition hangs if its producer "
                f"was not heard of for so long; transaction.max.timeout.ms of the brokers ({_MAX_TIMEOUT})",
            )
        if action == "abort":
            one.add_argument(
                "--start-offset", metavar="N", help="only the one that began at this offset"
            )
            one.add_argument(
                "--id",
                metavar="ID",
                help="abort what this transactional id has open, and fence its producer",
            )
            add_yes(one)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--state",
        action="append",
        metavar="STATE",
        default=[],
        help="only those in this state, such as Ongoing; may be repeated",
    )
    add(
        "--producer-id",
        action="append",
        metavar="N",
        default=[],
        help="only of this producer id; may be repeated",
    )
    add("--open-for", metavar="SPAN", help="only those open for longer, such as 10m")
    add("--matching", metavar="REGEX", help="only ids that this matches as a whole")


def run_transactions(options: argparse.Namespace) -> int:
    """Runs `tidelog transactions`; returns the exit status."""
    actions = {
        "list": _list,
        "describe": _describe,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }
    return run_action("transactions", actions, options)


# --- listing and describing -------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> None:
    for text in options.producer_id:
        check_number("--producer-id", text)
    open_for_ms = None if options.open_for is None else _span("--open-for", options.open_for)
    try:
        pattern = None if options.matching is None else re.compile(options.matching)
    except re.error as error:
        raise CommandError(
            f"--matching {options.matching}: no regular expression: {error}", USAGE
        ) from None
    filters = Filters(options.state, [int(each) for each in options.producer_id], open_for_ms)
    with Cluster(options.broker) as cluster:
        listed = asking.listed(cluster, filters)
        if pattern is not None:
            listed = [each for each in listed if pattern.fullmatch(each[1].transactional_id)]
        found = asking.described(cluster, listed)
        now_ms = asking.now_ms(cluster, options.http) if found else 0
    if options.json:
        print_json([_as_json(each, now_ms) for each in found])
        return
    print_table(
        ("transactional id", "state", "producer id", "epoch", "coordinator", "open for", "since"),
        [
            (
                each.transactional_id,
                each.state,
                str(each.producer_id),
                str(each.epoch),
                str(each.coordinator),
                *_age(each, now_ms),
            )
            for each in found
        ],
        right=("producer id", "epoch", "coordinator", "open for"),
    )


def _describe(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        found = [asking.describe(cluster, name) for name in dict.fromkeys(options.ids)]
        starts = [_starts(cluster, each) for each in found]
        now_ms = asking.now_ms(cluster, options.http)
    if options.json:
        print_json(
            [
                _as_json(each, now_ms)
                | {
                    "partitions": [
                        {"topic": place[0], "partition": place[1], "start_offset": start}
                        for place, start in begun.items()
                    ]
                }
                for each, begun in zip(found, starts, strict=True)
            ]
        )
        return
    for number, (each, begun) in enumerate(zip(found, starts, strict=True)):
        if number:
            print_lines("")
        _print(each, begun, now_ms)


def _starts(cluster: Cluster, transaction: Transaction) -> dict[TopicPartition, int | None]:
    """Returns where a transaction began in each of its partitions; None before its first record."""
    return {
        place: next(
            (
                each.start_offset
                for each in asking.open_in(cluster, place)
                if each.producer_id == transaction.producer_id
            ),
            None,
        )
        for place in transaction.partitions
    }


def _print(each: Transaction, begun: dict[TopicPartition, int | None], now_ms: int) -> None:
    age, since = _age(each, now_ms)
    print_lines(
        f"{escaped(each.transactional_id)}: {escaped(each.state)}, producer id {each.producer_id}, epoch "
        f"{each.epoch}, coordinator {each.coordinator}",
        f"transaction.timeout.ms {span_of(each.timeout_ms)}"
        + (f", open for {age}, since {since}" if since else ""),
    )
    if begun:
        print_lines("")
        print_table(
            ("topic", "partition", "start offset"),
            [
                (place[0], str(place[1]), "-" if start is None else str(start))
                for place, start in begun.items()
            ],
            right=("partition", "start offset"),
        )


def _age(each: Transaction, now_ms: int) -> tuple[str, str]:
    """Returns how long a transaction has been open, and since when; empty if it is not open."""
    if each.start_ms is None:
        return "", ""
    return span_of(max(now_ms - each.start_ms, 0)), _iso(each.start_ms)


def _iso(time_ms: int) -> str:
    text: str | None = instants().to_iso(time_ms)
    return str(time_ms) if text is None else text.replace(".000Z", "Z")


def _as_json(each: Transaction, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "coordinator": each.coordinator,
        "producer_id": each.producer_id,
        "producer_epoch": each.epoch,
        "timeout_ms": each.timeout_ms,
        "start_ms": each.start_ms,
        "start": instants().to_iso(each.start_ms),
        "open_for_ms": None if each.start_ms is None else max(now_ms - each.start_ms, 0),
        "partitions": [{"topic": topic, "partition": number} for topic, number in each.partitions],
    }


# --- what hangs -------------------------------------------------------------------------------------


def _find_hanging(options: argparse.Namespace) -> None:
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
    number = (
        f"{counted(len(found), 'transaction')} hang" if len(found) != 1 else "1 transaction hangs"
    )
    print_lines(
        f"{counted(examined, 'partition')} examined: {number if found else 'nothing hangs'}."
    )


def _hanging(cluster: Cluster, options: argparse.Namespace) -> tuple[int, list[Hanging]]:
    """Returns how many partitions were examined, and what hangs there. Raises CommandError."""
    check_number("--partition", options.partition)
    if options.partition is not None and options.topic is None:
        raise CommandError("--partition needs a TOPIC", USAGE)
    older_than_ms = _span("--older-than", options.older_than)
    topics = cluster.topics(None if options.topic is None else [options.topic])
    places = [
        (topic.name, one.number)
        for topic in topics
        for one in topic.partitions
        if options.partition is None or one.number == int(options.partition)
    ]
    if options.partition is not None and not places:
        raise CommandError(f"there is no partition {options.topic}-{options.partition}")
    if not places:
        return 0, []
    now_ms = asking.now_ms(cluster, options.http, places[0][0])
    return len(places), find(cluster, places, older_than_ms, now_ms)


def _print_hanging(found: Sequence[Hanging]) -> None:
    print_table(
        (
            "topic",
            "partition",
            "start offset",
            "producer id",
            "epoch",
            "last heard of",
            "ago",
            "why it hangs",
        ),
        [
            (
                each.place[0],
                str(each.place[1]),
                str(each.transaction.start_offset),
                str(each.transaction.producer_id),
                str(each.transaction.epoch),
                "-" if each.age_ms is None else _iso(each.transaction.last_ms),
                "-" if each.age_ms is None else span_of(max(each.age_ms, 0)),
                each.why,
            )
            for each in found
        ],
        right=("partition", "start offset", "producer id", "epoch", "ago"),
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


# --- ending -----------------------------------------------------------------------------------------


def _abort(options: argparse.Namespace) -> None:
    check_number("--start-offset", options.start_offset)
    if (options.id is None) == (options.topic is None):
        raise CommandError("expected TOPIC or --id ID", USAGE)
    with Cluster(options.broker) as cluster:
        if options.id is not None:
            _abort_whole(cluster, options)
        else:
            _abort_hanging(cluster, options)


def _abort_whole(cluster: Cluster, options: argparse.Namespace) -> None:
    """Aborts the transaction of a transactional id, through its coordinator."""
    if options.partition is not None or options.start_offset is not None:
        raise CommandError("--id aborts in every partition: leave out the others", USAGE)
    name = escaped(options.id)
    transaction = asking.describe(cluster, options.id)
    if transaction.start_ms is None:
        raise CommandError(f"{name} has nothing open: it is {transaction.state}")
    confirm(
        f"Abort what {name} has open, and fence its producer?",
        refusal=f"what {name} has open would be aborted, and its producer fenced: add --yes",
        declined="nothing was aborted",
        yes=options.yes,
    )
    asking.fence(cluster, transaction)
    if options.json:
        print_json({"transactional_id": options.id, "aborted": True})
    else:
        print_lines(f"Aborted: what {name} had open. Its producer is fenced.")


def _abort_hanging(cluster: Cluster, options: argparse.Namespace) -> None:
    """Aborts what hangs in a topic, or one transaction of that."""
    _, found = _hanging(cluster, options)
    if options.start_offset is not None:
        wanted = int(options.start_offset)
        found = [each for each in found if each.transaction.start_offset == wanted]
    where = escaped(options.topic) + ("" if options.partition is None else f"-{options.partition}")
    if not found:
        at = "" if options.start_offset is None else f" at offset {options.start_offset}"
        raise CommandError(
            f"no transaction hangs in {where}{at}: one that a coordinator knows is aborted with --id"
        )
    told = ", ".join(
        f"{escaped(each.place[0])}-{each.place[1]} from offset {each.transaction.start_offset} on "
        f"(producer id {each.transaction.producer_id})"
        for each in found
    )
    confirm(
        f"Abort, so that consumers of committed data leave its records out, in {told}?",
        refusal=f"would be aborted, so that consumers of committed data leave its records out: {told}: "
        "add --yes",
        declined="nothing was aborted",
        yes=options.yes,
    )
    for each in found:
        asking.abort_in(cluster, each.place, each.transaction)
    if options.json:
        print_json([_hanging_as_json(each) | {"aborted": True} for each in found])
    else:
        print_lines(*(f"Aborted: {line}." for line in told.split(", ")))


def _span(option: str, text: str) -> int:
    """Returns a span in ms. Raises CommandError."""
    try:
        span_ms: int = instants().parse_duration(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", USAGE) from None
    if span_ms < 0:
        raise CommandError(f"{option} {text}: expected a span from 0 on", USAGE)
    return span_ms
