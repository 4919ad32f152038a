"""`tidelog transactions`: its actions and options, and those actions that list and describe.

Ages are by the broker's clock if its HTTP port answers, else by this machine's. What hangs is found and
ended in `ending.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_actions, add_many, add_yes, number_given, span_given
from tidelog.cli.cluster import Cluster
from tidelog.cli.escaping import escaped
from tidelog.cli.output import instant_of, print_json, print_lines, print_table, span_of
from tidelog.cli.shared import UsageError, instants
from tidelog.cli.transactions import asking, ending
from tidelog.client.calls.transactions import Filters

if TYPE_CHECKING:
    import argparse

    from tidelog.cli.transactions.asking import DescribedTransaction
    from tidelog.protocol.topic_partition import TopicPartition

_MAX_TIMEOUT = "15m"  # the default of transaction.max.timeout.ms


def add_transactions(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog transactions`; without an action it lists."""
    hanging = "transactions that are open in partitions, and that nobody is going to end"
    described = (
        "one transaction: its producer, its time-out, its partitions and where it began there"
    )
    actions = {
        "list": (_list, "list the transactional ids, what each is doing, and for how long"),
        "describe": (_describe, described),
        "find-hanging": (ending.find_hanging, hanging),
        "abort": (ending.abort, "end what hangs in a topic, or what a transactional id has open"),
    }
    parser.set_defaults(state=[], producer_id=[], open_for=None, matching=None)
    for action, one in add_actions(parser, actions):
        if action == "list":
            add_many(
                one,
                "--state",
                "STATE",
                "only those in this state, such as Ongoing; may be repeated",
            )
            add_many(one, "--producer-id", "N", "only of this producer id; may be repeated")
            one.add_argument(
                "--open-for", metavar="SPAN", help="only those open for longer, such as 10m"
            )
            one.add_argument(
                "--matching", metavar="REGEX", help="only ids that this matches as a whole"
            )
        elif action == "describe":
            one.add_argument("ids", metavar="ID", nargs="+")
        else:
            least = "the topic" if action == "abort" else "one topic alone"
            one.add_argument("topic", metavar="TOPIC", nargs="?", help=least)
            one.add_argument("--partition", metavar="N", help="one partition alone")
            what = (
                "a transaction that its coordinator knows without the partition hangs if its producer was "
                f"not heard of for so long; transaction.max.timeout.ms of the brokers ({_MAX_TIMEOUT})"
            )
            one.add_argument("--older-than", metavar="SPAN", default=_MAX_TIMEOUT, help=what)
        if action == "abort":
            what = "only the one that began at this offset"
            one.add_argument("--start-offset", metavar="N", help=what)
            what = "abort what this transactional id has open, and fence its producer"
            one.add_argument("--id", metavar="ID", help=what)
            add_yes(one)


def _list(options: argparse.Namespace) -> None:
    ids = [number_given("--producer-id", text) for text in options.producer_id]
    open_for = options.open_for
    open_for_ms = None if open_for is None else span_given("--open-for", open_for)
    try:
        pattern = None if options.matching is None else re.compile(options.matching)
    except re.error as error:
        raise UsageError(
            f"--matching {options.matching}: not a regular expression: {error}"
        ) from None
    filters = Filters(options.state, ids, open_for_ms)
    with Cluster(options.broker) as cluster:
        listed = asking.listed(cluster, filters)
        if pattern is not None:
            listed = [each for each in listed if pattern.fullmatch(each[1].transactional_id)]
        found = asking.described(cluster, listed)
        now_ms = cluster.now_ms(options.http, asking.STATE_TOPIC) if found else 0
    if options.json:
        print_json([_as_json(each, now_ms) for each in found])
        return
    names = (
        "transactional id",
        "state",
        ">producer id",
        ">epoch",
        ">coordinator",
        ">open for",
        "since",
    )
    print_table(
        names,
        [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.epoch,
                each.coordinator,
                *_age(each, now_ms),
            )
            for each in found
        ],
    )


def _describe(options: argparse.Namespace) -> None:
    with Cluster(options.broker) as cluster:
        found = [asking.describe(cluster, name) for name in dict.fromkeys(options.ids)]
        starts = [_starts(cluster, each) for each in found]
        now_ms = cluster.now_ms(options.http, asking.STATE_TOPIC)
    if options.json:
        described = [_as_json(each, now_ms) for each in found]
        for one, begun in zip(described, starts, strict=True):
            for row, start in zip(one["partitions"], begun.values(), strict=True):
                row["start_offset"] = start
        print_json(described)
        return
    for number, (each, begun) in enumerate(zip(found, starts, strict=True)):
        if number:
            print_lines("")
        _print(each, begun, now_ms)


def _starts(
    cluster: Cluster, transaction: DescribedTransaction
) -> dict[TopicPartition, int | None]:
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


def _print(
    each: DescribedTransaction, begun: dict[TopicPartition, int | None], now_ms: int
) -> None:
    age, since = _age(each, now_ms)
    print_lines(
        f"{escaped(each.transactional_id)}: {escaped(each.state)}, producer id {each.producer_id}, epoch "
        f"{each.epoch}, coordinator {each.coordinator}",
        f"transaction.timeout.ms {span_of(each.timeout_ms)}"
        + (f", open for {age}, since {since}" if since else ""),
    )
    if begun:
        print_lines("")
        rows = [(*place, start) for place, start in begun.items()]
        print_table(("topic", ">partition", ">start offset"), rows)


def _age(each: DescribedTransaction, now_ms: int) -> tuple[str, str]:
    """Returns how long a transaction has been open, and since when; empty if it is not open."""
    if each.start_ms is None:
        return "", ""
    return span_of(max(now_ms - each.start_ms, 0)), instant_of(each.start_ms)


def _as_json(each: DescribedTransaction, now_ms: int) -> dict[str, Any]:
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
