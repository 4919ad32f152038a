"""`tidelog cluster status`: who leads what, which replicas lag and why, epochs, and clocks.

It asks one broker for the cluster, and then the HTTP ports of the others that it names, because a
broker alone knows its clock and how far those that follow it are behind. A broker that does not
answer is shown so.
"""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from tidelog.cli.shared import (
    add_common,
    ask,
    counted,
    print_json,
    print_lines,
    print_table,
    run_action,
    span_of,
)
from tidelog.control import ControlClient, ControlError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_ANSWERS_WITHIN_S = 3.0
_CLOSE_MS = 100  # clocks that differ by less are not worth a word


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster`."""
    add_common(parser)
    parser.set_defaults(action="status", unhealthy=False)
    actions = parser.add_subparsers(metavar="action")
    one = actions.add_parser(
        "status", help="who leads what, which replicas lag, and why", allow_abbrev=False
    )
    one.set_defaults(action="status")
    one.add_argument(
        "--unhealthy", action="store_true", help="only partitions that are not fully replicated"
    )
    add_common(one, again=True)


def run_cluster(options: argparse.Namespace) -> int:
    """Runs `tidelog cluster`; returns the exit status."""
    return run_action("cluster", {"status": _status}, options)


def _status(options: argparse.Namespace) -> None:
    answer = _gathered(options.http)
    if options.unhealthy:
        answer["partitions"] = [each for each in answer["partitions"] if each["state"] != "ok"]
    if options.json:
        print_json(answer)
        return
    controller = answer["controller"]
    print_lines(
        f"Cluster {answer['cluster_id']}, "
        + (
            f"controller broker {controller['broker']} in epoch {controller['epoch']}."
            if controller
            else "without a controller."
        )
    )
    print_table(
        ("broker", "state", "epoch", "leads", "in sync", "clock", "address"),
        [_broker_row(each) for each in answer["brokers"]],
        right=("epoch", "leads"),
    )
    if answer["partitions"]:
        print_table(
            ("partition", "leader", "epoch", "replicas", "in sync", "state"),
            [_partition_row(each) for each in answer["partitions"]],
            right=("leader", "epoch"),
        )
    else:
        print_lines("Every partition is fully replicated." if options.unhealthy else "No topics.")


def _gathered(http: str) -> dict[str, Any]:
    """Returns the answer of one broker, with what the others alone can say."""
    answer, offset_ms = _asked(http, lambda address: ask(address, "cluster"))
    followers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for broker in answer["brokers"]:
        own, broker["clock_offset_ms"] = answer, offset_ms
        if broker["broker"] != answer["broker"]:
            broker["clock_offset_ms"] = None
            if not broker["http"]:
                continue
            try:
                own, broker["clock_offset_ms"] = _asked(broker["http"], _quickly)
            except (OSError, HTTPException, ControlError):
                continue
        for each in own["partitions"]:
            if each["leader"] == broker["broker"] and each.get("followers"):
                followers[each["topic"], each["partition"]] = each["followers"]
    for each in answer["partitions"]:
        each["followers"] = followers.get((each["topic"], each["partition"]), [])
    return answer


def _asked(http: str, read: Callable[[str], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """Returns a broker's answer, and how far its clock is ahead of this machine's, in ms."""
    before_s = time.time()
    answer = read(http)
    after_s = time.time()
    offset_ms = round(answer["now_ms"] - (before_s + after_s) * 500)
    is_known = abs(offset_ms) > (after_s - before_s) * 500  # the answer may be as old as this
    return answer, offset_ms if is_known else 0


def _quickly(http: str) -> dict[str, Any]:
    """Returns the answer of a broker that may hang. Raises OSError and HTTPException."""
    client = ControlClient(http, timeout_s=_ANSWERS_WITHIN_S)
    try:
        return client.ask("GET", "/v1/cluster")
    finally:
        client.close()


def _broker_row(each: dict[str, Any]) -> tuple[str, ...]:
    epoch = "-" if each["epoch"] is None else str(each["epoch"])
    in_sync = f"{each['in_sync']} of {each['replicas']}"
    address = next(iter(each["listeners"].values()), "-")
    clock = _clock(each["clock_offset_ms"])
    return str(each["broker"]), each["state"], epoch, str(each["leads"]), in_sync, clock, address


def _clock(offset_ms: int | None) -> str:
    if offset_ms is None:
        return "-"
    if abs(offset_ms) < _CLOSE_MS:
        return "right"
    return f"{span_of(abs(offset_ms))} {'ahead' if offset_ms > 0 else 'behind'}"


def _partition_row(each: dict[str, Any]) -> tuple[str, ...]:
    state = each["state"]
    lags = {one["broker"]: one["lag"] for one in each["followers"]}
    for one in each["missing"]:
        lag = lags.get(one["broker"])
        by = f" ({counted(lag, 'record')})" if lag else ""
        state += f"; {one['broker']}: {one['why']}{by}"
    if each["adding"] or each["removing"]:
        state += f"; moving: {_ids(each['adding'])} in, {_ids(each['removing'])} out"
    leader = "none" if each["leader"] is None else str(each["leader"])
    name = f"{each['topic']}-{each['partition']}"
    epoch = str(each["leader_epoch"])
    return name, leader, epoch, _ids(each["replicas"]), _ids(each["isr"]), state


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers)) or "-"
