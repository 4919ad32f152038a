"""`tidelog cluster`: who leads what, which replicas lag and why, epochs, and clocks; and what is wrong.

`gathering.py` asks the brokers. One that does not answer is shown so. Exit status of `tidelog cluster
doctor`: 0 if nothing was found, 1 if something was, 2 if the broker could not be asked, or for a mistake
in the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli.arguments import add_actions, add_common, add_flag
from tidelog.cli.brokers.diagnosis import findings
from tidelog.cli.brokers.elect import add_elect, run_elect
from tidelog.cli.brokers.gathering import gathered, not_asked
from tidelog.cli.brokers.rebalance import add_rebalance, run_rebalance
from tidelog.cli.brokers.roll import add_roll, run_roll
from tidelog.cli.output import print_folded, print_json, print_lines, print_table, span_of
from tidelog.cli.shared import USAGE
from tidelog.cli.transactions.diagnosis import findings as of_transactions
from tidelog.text import some

if TYPE_CHECKING:
    import argparse

    from tidelog.cli.arguments import Command
    from tidelog.cli.brokers.diagnosis import Finding

_FOUND, _UNKNOWN = 1, USAGE
_CLOSE_MS = 100  # clocks that differ by less are not worth a word


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog cluster`."""
    parser.set_defaults(unhealthy=False)
    actions: dict[str, tuple[Command, str]] = {
        "status": (_status, "who leads what, which replicas lag, and why"),
        "doctor": (_doctor, "what is wrong with the cluster, and what helps"),
        "roll": (
            run_roll,
            "restart the brokers one after another, each when all replicas are in sync",
        ),
        "rebalance": (run_rebalance, "even out replicas and leaders over the brokers"),
        "elect": (run_elect, "let the first replicas lead, or any where nobody leads"),
    }
    for action, one in add_actions(parser, actions, add_common, "status"):
        if action == "status":
            add_flag(one, "--unhealthy", "only partitions that are not fully replicated")
        elif action == "doctor":
            one.set_defaults(failed=_UNKNOWN)
        elif action == "roll":
            add_roll(one)
        elif action == "elect":
            add_elect(one)
        else:
            add_rebalance(one)


def _status(options: argparse.Namespace) -> None:
    answer = gathered(options.http)
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
        ("broker", "state", ">leads", "in sync", "clock", "address"),
        [_broker_row(each) for each in answer["brokers"]],
    )
    _print_unreachable(answer)
    if answer["partitions"]:
        print_table(
            ("partition", ">leader", ">epoch", "replicas", "in sync", "state"),
            [_partition_row(each) for each in answer["partitions"]],
        )
    else:
        print_lines("Every partition is fully replicated." if options.unhealthy else "No topics.")


def _print_unreachable(answer: dict[str, Any]) -> None:
    """Says whose clock, and whose followers' lag, are not in the tables."""
    unknown = not_asked(answer)
    if unknown is not None:
        brokers, why = unknown
        print_lines(f"Not asked: {some(len(brokers), 'broker')} ({_ids(brokers)}), because {why}.")
    for each in answer["brokers"]:
        if each["unreachable"] and each["is_name_known"]:
            print_lines(
                f"Broker {each['broker']} gives no answer at {each['http']} ({each['unreachable']})."
            )


def _broker_row(each: dict[str, Any]) -> tuple[object, ...]:
    in_sync = f"{each['in_sync']} of {each['replicas']}"
    address = next(iter(each["listeners"].values()), "-")
    clock = _clock(each["clock_offset_ms"])
    return each["broker"], each["state"], each["leads"], in_sync, clock, address


def _clock(offset_ms: int | None) -> str | None:
    if offset_ms is None:
        return None
    if abs(offset_ms) < _CLOSE_MS:
        return "right"
    return f"{span_of(abs(offset_ms))} {'ahead' if offset_ms > 0 else 'behind'}"


def _partition_row(each: dict[str, Any]) -> tuple[object, ...]:
    state = each["state"]
    lags = {one["broker"]: one["lag"] for one in each["followers"] or ()}
    for one in each["missing"]:
        lag = lags.get(one["broker"])
        by = f" ({some(lag, 'record')})" if lag else ""
        state += f"; {one['broker']}: {one['why']}{by}"
    if each["adding"] or each["removing"]:
        state += f"; moving: {_ids(each['adding'])} in, {_ids(each['removing'])} out"
    leader = "none" if each["leader"] is None else each["leader"]
    name = f"{each['topic']}-{each['partition']}"
    return name, leader, each["leader_epoch"], _ids(each["replicas"]), _ids(each["isr"]), state


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


# --- what is wrong -------------------------------------------------------------------------------


def _doctor(options: argparse.Namespace) -> int:
    """Runs `tidelog cluster doctor`; returns the exit status. Raises CommandError."""
    answer = gathered(options.http)
    found = [*findings(answer), *of_transactions(answer)]
    if options.json:
        names = ("finding", "brokers", "partitions", "sentence", "help")
        told = [{name: getattr(each, name) for name in names} for each in found]
        print_json({"cluster_id": answer["cluster_id"], "findings": told})
    else:
        _print_findings(answer, found)
    return _FOUND if found else 0


def _print_findings(answer: dict[str, Any], found: list[Finding]) -> None:
    for each in found:
        print_folded(f"{each.finding}: {each.sentence}.")
        print_folded(f"what helps: {each.help}.", indent="  ")
        print_lines("")
    brokers, partitions = len(answer["brokers"]), len(answer["partitions"])
    number = some(len(found), "finding") if found else "nothing found"
    print_lines(
        f"{some(brokers, 'broker')} and {some(partitions, 'partition')} examined: {number}."
    )
