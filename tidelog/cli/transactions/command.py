"""`tidelog transactions`: its actions and options, and those actions that list and describe.

Ages are by the broker's clock if its HTTP port answers, else by this machine's. What hangs is found and
ended in `ending.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidelog.cli.cluster import Cluster
from tidelog.cli.escaping import escaped
from tidelog.cli.shared import (
    USAGE,
    CommandError,
    add_actions,
    add_yes,
    check_number,
    instant_of,
    instants,
    print_json,
    print_lines,
    print_table,
    run_action,
    span_given,
    span_of,
)
from tidelog.cli.transactions import asking, ending
from tidelog.client.calls.transactions import Filters

if TYPE_CHECKING:
    import argparse

    from tidelog.cli.transactions.asking import Transaction
    from tidelog.protocol.topic_partition import TopicPartition

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
        "find-hanging": ending.find_hanging,
        "abort": ending.abort,
    }
    return run_action("transactions", actions, options)


# --- listing and describing -------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> None:
    for text in options.producer_id:
        check_number("--producer-id", text)
    open_for = options.open_for
    open_for_ms = None if open_for is None else span_given("--open-for", open_for)
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
    return span_of(max(now_ms - each.start_ms, 0)), instant_of(each.start_ms)


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
