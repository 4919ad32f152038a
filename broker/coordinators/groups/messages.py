"""The events and actions of a group: its states, requests, answers, and what is to be done.

The error of a request in each state is written here once, in tables. Values only: `group.py` has the
behaviour. Names are those of Apache Kafka's GroupCoordinator.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.protocol.group_errors import (
    CoordinatorNotAvailable,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.protocol.errors import BrokerError


class State(Enum):
    """The state of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# The error for a request of a known member in the current generation, by state; None: served.
ON_HEARTBEAT: Mapping[State, type[BrokerError] | None] = {
    State.EMPTY: UnknownMemberId,
    State.PREPARING: RebalanceInProgress,
    State.COMPLETING: None,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}
ON_SYNC: Mapping[State, type[BrokerError] | None] = {
    State.EMPTY: UnknownMemberId,
    State.PREPARING: RebalanceInProgress,
    State.COMPLETING: None,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}
ON_COMMIT: Mapping[State, type[BrokerError] | None] = {
    State.EMPTY: None,
    State.PREPARING: None,
    State.COMPLETING: RebalanceInProgress,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}
ON_JOIN: Mapping[State, type[BrokerError] | None] = {
    State.EMPTY: UnknownMemberId,
    State.PREPARING: None,
    State.COMPLETING: None,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}

Protocols = tuple[tuple[str, bytes], ...]


class Join(NamedTuple):
    """A request to join; `new_id` is the id for a member that has none yet."""

    member_id: str
    new_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_id: bool = False  # v4: the member must join again with the id of the response
    can_skip: bool = False  # v9: the response may ask a leader not to assign


class Joined(NamedTuple):
    """The answer to a join; `members` only for the leader."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """A member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Answer(NamedTuple):
    """Answer a waiting request."""

    ticket: Any
    outcome: Joined | Synced | BrokerError


class Store(NamedTuple):
    """Write the group to the log, before the answers of the same list are sent."""


Action = Answer | Store
