"""What passes between a group, its members and its keeper: states, requests, answers, actions.

What a request gets in each state is said once, in tables. Values only: what is done with them is in
groups.py, by the names of Apache Kafka's GroupCoordinator.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(Enum):
    """Where a group is; the value is the name clients know it by."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# What a request of a known member of the present generation gets in each state; None: it is served.
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
    """A request to join; `new_id` names who comes without an id."""

    member_id: str
    new_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_id: bool = False  # v4: join again with the id you are given
    can_skip: bool = False  # v9: a leader can be told not to assign


class Joined(NamedTuple):
    """What a member learns when its join is answered; `members` only for the leader."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    """A member's part of the assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Answer(NamedTuple):
    """Answer one who waits."""

    ticket: Any
    outcome: Joined | Synced | BrokerError


class Store(NamedTuple):
    """Write the group down, before the answers that come with it."""


Action = Answer | Store
