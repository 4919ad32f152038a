"""What the brokers of a cluster say of it over HTTP: who leads, and whether all is well again."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.nemesis.history import Place
    from tidelog.cluster import BrokerCluster
    from tidelog.process import BrokerProcess

_ASK_S = 2.0


def said_by(broker: BrokerProcess) -> dict[str, Any] | None:
    """Returns what a broker says of its cluster; None if it does not answer."""
    if not broker.is_running:
        return None
    try:
        with urllib.request.urlopen(f"http://{broker.http}/v1/cluster", timeout=_ASK_S) as answer:
            return dict(json.loads(answer.read()))
    except (OSError, ValueError):
        return None


def leaders(cluster: BrokerCluster) -> dict[str, int]:
    """Returns the leader of each partition that has one, as the first broker that answers says."""
    for broker in cluster:
        said = said_by(broker)
        if said is not None:
            return {
                f"{each['topic']}-{each['partition']}": each["leader"]
                for each in said["partitions"]
                if each["leader"] is not None
            }
    return {}


def illnesses(cluster: BrokerCluster, places: list[Place]) -> Iterator[str]:
    """Yields what is not as it should be, as any of the brokers says."""
    for number, broker in enumerate(cluster, 1):
        said = said_by(broker)
        if said is None:
            yield f"broker {number} does not answer"
            continue
        for each in said["brokers"]:
            if each["state"] != "serving":
                yield f"broker {number} says that broker {each['broker']} is {each['state']}"
        known = {(each["topic"], each["partition"]) for each in said["partitions"]}
        for place in places:
            if tuple(place) not in known:
                yield f"broker {number} does not know {place}"
        for each in said["partitions"]:
            is_moving = each["adding"] or each["removing"]
            if each["state"] != "ok" or is_moving or len(each["replicas"]) < len(cluster):
                name = f"{each['topic']}-{each['partition']}"
                yield f"broker {number} says that {name} is {each['state']}: {each}"
