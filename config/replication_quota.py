"""The settings of replication quotas (KIP-73): how fast replicas that are not in sync are copied."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidelog.config.setting import LONG_MAX, Type, setting

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL_REPLICAS = "*"
"""The value of a list of throttled replicas that names all."""

_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def parse_throttled_replicas(text: str) -> tuple[str, ...]:
    """Returns the members of a list of throttled replicas, PARTITION:BROKER, or * alone.

    Raises ValueError, as Kafka's ThrottledReplicaListValidator refuses.
    """
    members = tuple(each.strip() for each in text.split(",") if each.strip())
    if members != (ALL_REPLICAS,) and not all(map(_REPLICA.fullmatch, members)):
        raise ValueError("expected * or a list of replicas, PARTITION:BROKER,PARTITION:BROKER")
    return members


def throttled_here(members: Iterable[str], broker: int) -> frozenset[int] | None:
    """Returns the partitions of a list whose replicas on a broker are throttled; None means all."""
    if ALL_REPLICAS in members:
        return None
    named = (each.split(":") for each in members)
    return frozenset(int(partition) for partition, at in named if int(at) == broker)


def _rate(name: str, doc: str, **more: Any) -> Any:
    return setting(name, Type.LONG, LONG_MAX, doc, low=0, for_one_broker=True, **more)


def _replicas(side: str, doc: str) -> Any:
    name = f"{side}.replication.throttled.replicas"
    return setting(name, Type.LIST, (), doc, convert=parse_throttled_replicas)


LEADER_RATE = _rate(
    "leader.replication.throttled.rate",
    "How many bytes of throttled replicas a leader sends in a second (KIP-73). A follower that is in "
    "sync is never held back.",
)
FOLLOWER_RATE = _rate(
    "follower.replication.throttled.rate",
    "How many bytes of throttled replicas a follower fetches in a second (KIP-73). A replica that is "
    "in sync is never held back.",
)
ALTER_LOG_DIRS_RATE = _rate(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "How many bytes are moved between the log directories of a broker in a second. Replicas are not "
    "moved between them here.",
    effective=False,
)
QUOTA_WINDOWS = setting(
    "replication.quota.window.num",
    Type.INT,
    11,
    "Over how many windows the rate of throttled replication is measured.",
    low=1,
    dynamic=False,
)
QUOTA_WINDOW_S = setting(
    "replication.quota.window.size.seconds",
    Type.INT,
    1,
    "How long, in s, each window is over which the rate of throttled replication is measured.",
    low=1,
    dynamic=False,
)
LEADER_REPLICAS = _replicas(
    "leader",
    "Which replicas count against leader.replication.throttled.rate of the broker that leads: "
    "PARTITION:BROKER,PARTITION:BROKER, or * for all of the topic.",
)
FOLLOWER_REPLICAS = _replicas(
    "follower",
    "Which replicas count against follower.replication.throttled.rate of their broker: "
    "PARTITION:BROKER,PARTITION:BROKER, or * for all of the topic.",
)
