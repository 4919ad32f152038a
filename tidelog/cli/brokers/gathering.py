"""What all brokers of a cluster say of it, gathered over their HTTP ports.

One broker is asked for the cluster, and then the others that it names, because a broker alone knows
its clock, how far those that follow it are behind, and what it says of itself.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any

from tidelog.cli.shared import CommandError, addresses_in, ask
from tidelog.control import ControlClient, ControlError

if TYPE_CHECKING:
    from collections.abc import Callable

_ANSWERS_WITHIN_S = 3.0


def gathered(http: str) -> dict[str, Any]:
    """Returns the answer of one broker, with what the others alone can say.

    `http` is the address of a broker, or those of several, separated by commas: each of these is asked
    where it is named, and the others where they say that they are.

    Each broker gets `clock_offset_ms`, how far its clock is ahead of this machine's; `own`, what it
    says of itself; `unreachable`, why its HTTP port gave no answer; and `is_name_known`, False if its
    address has a name that means nothing on this machine, as a container's name outside of its
    network. The first three are None where they do not apply. A broker that says that it has no session
    is away, and leads nothing, whatever the image of the first one shows. `followers` of a partition is None
    where its leader was not asked. Raises CommandError if a broker
    that is named does not answer, or is of another cluster.
    """
    first, *more = addresses_in(http)
    answer, offset_ms = _asked(first, lambda address: ask(address, "cluster"))
    told = {answer["broker"]: (answer, offset_ms)}
    for address in more:
        other, offset_ms = _asked(address, lambda at: ask(at, "cluster"))
        if other["cluster_id"] != answer["cluster_id"]:
            raise CommandError(f"the brokers at {first} and {address} are of different clusters")
        told[other["broker"]] = (other, offset_ms)
    followers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    away: set[int] = set()
    for broker in answer["brokers"]:
        broker["own"] = broker["clock_offset_ms"] = broker["unreachable"] = None
        broker["is_name_known"] = True
        if broker["broker"] not in told:
            if not broker["http"]:
                continue
            try:
                told[broker["broker"]] = _asked(broker["http"], quickly)
            except (OSError, ControlError) as error:
                broker["unreachable"] = str(error) or type(error).__name__
                broker["is_name_known"] = not isinstance(error, socket.gaierror)
                continue
        own, broker["clock_offset_ms"] = told[broker["broker"]]
        broker["own"] = own.get("own")
        for each in own["partitions"]:
            if each["leader"] == broker["broker"] and each.get("followers") is not None:
                followers[each["topic"], each["partition"]] = each["followers"]
        if broker["own"] and broker["own"]["not_serving"] and broker["state"] == "serving":
            broker["state"] = "away"  # it knows better than who was asked first
            away.add(broker["broker"])
    for each in answer["partitions"]:
        if each["leader"] in away:
            each["leader"], each["state"] = None, "offline"
        each["followers"] = followers.get((each["topic"], each["partition"]))
    return answer


def not_asked(answer: dict[str, Any]) -> tuple[list[int], str] | None:
    """Returns the brokers whose addresses mean nothing here, and what helps; None if there are none."""
    unknown = [each for each in answer["brokers"] if not each["is_name_known"]]
    if not unknown:
        return None
    named = ", ".join(each["http"] for each in unknown)
    why = (
        f"their names are not known on this machine ({named}): give the HTTP ports of all brokers as they "
        f"are reached from here, separated by commas (--http HOST:PORT,HOST:PORT), or run the command "
        f"where the names are known, as inside a container"
    )
    return [each["broker"] for each in unknown], why


def _asked(http: str, read: Callable[[str], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """Returns a broker's answer, and how far its clock is ahead of this machine's, in ms."""
    before_s = time.time()
    answer = read(http)
    after_s = time.time()
    offset_ms = round(answer["now_ms"] - (before_s + after_s) * 500)
    is_known = abs(offset_ms) > (after_s - before_s) * 500  # the answer may be as old as this
    return answer, offset_ms if is_known else 0


def quickly(http: str) -> dict[str, Any]:
    """Returns the answer of a broker that may hang. Raises OSError and ControlError."""
    with contextlib.closing(ControlClient(http, timeout_s=_ANSWERS_WITHIN_S)) as client:
        return client.ask("GET", "/v1/cluster")
