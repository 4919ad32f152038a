"""The members of a group, their common protocol, and the check that a request is from one of them.

This part of the machine in group.py changes only the state of members, and is pure: `now_ms` is an
argument, and a waiting request is an opaque ticket.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.coordinators.groups.messages import (
    Answer,
    Join,
    Joined,
    Protocols,
    State,
    Synced,
)
from tidelog.protocol.group_errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.coordinators.groups.messages import Action


MOST_PENDING: Final = 10_000
"""Ids of one group, returned to members that have not joined with them yet (KIP-394)."""


@dataclass(slots=True, eq=False)
class Member:
    """One member, with the requests it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Any = None
    syncing: Any = None
    is_new: bool = True
    has_synced: bool = False
    deadline_ms: int = 0
    noted_ms: int | None = None  # the deadline that is in the heap of the counts

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for an answer, so that its session cannot expire."""
        return (self.joining is not None and not self.is_new) or self.syncing is not None

    def metadata(self, protocol: str) -> bytes:
        """Returns the member's metadata for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class MemberCounts:
    """Counts of the members of one group, and the next of their deadlines, updated with each change.

    Without them each of n members that join at the same time would visit all others.
    """

    __slots__ = ("_due", "_order", "joining", "members", "supporters")

    def __init__(self) -> None:
        self.members = 0
        self.joining = 0
        """Members whose request to join waits for an answer."""
        self.supporters: dict[str, int] = {}
        """How many members support a protocol, by its name."""
        self._due: list[tuple[int, int, Member]] = []  # a heap: no later than the member's deadline
        self._order = count()

    def add(self, member: Member) -> None:
        """Counts a new member, which does not wait for an answer yet."""
        self.members += 1
        self._support(member.protocols, 1)

    def remove(self, member: Member) -> None:
        """Removes a member from the counts."""
        self.members -= 1
        self.joining -= member.joining is not None
        self._support(member.protocols, -1)

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        """Changes the protocols of a member."""
        if member.protocols != protocols:
            self._support(member.protocols, -1)
            self._support(protocols, 1)
        member.protocols = protocols

    def set_joining(self, member: Member, ticket: Any) -> None:
        """Sets the request to join that a member waits for; None: it waits no more."""
        self.joining += (ticket is not None) - (member.joining is not None)
        member.joining = ticket

    def candidates(self) -> set[str]:
        """Returns the protocols that every member supports."""
        return {name for name, votes in self.supporters.items() if votes == self.members}

    def _support(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            votes = self.supporters.get(name, 0) + change
            if votes:
                self.supporters[name] = votes
            else:
                del self.supporters[name]

    # -- deadlines ------------------------------------------------------------------------------

    def note_deadline(self, member: Member) -> None:
        """Adds the deadline of a member to the heap; a later one than the heap has costs nothing."""
        if member.noted_ms is None or member.deadline_ms < member.noted_ms:
            member.noted_ms = member.deadline_ms
            heappush(self._due, (member.deadline_ms, next(self._order), member))

    def next_deadline_ms(self, members: Mapping[str, Member]) -> int | None:
        """Returns the first deadline of the members that do not wait for an answer."""
        while self._due:
            at_ms, _, member = self._due[0]
            is_stale = at_ms != member.noted_ms  # an earlier one was noted since
            if is_stale or members.get(member.member_id) is not member or member.is_waiting:
                heappop(self._due)
                if not is_stale:
                    member.noted_ms = None
            elif member.deadline_ms > at_ms:
                member.noted_ms = member.deadline_ms
                heapreplace(self._due, (member.deadline_ms, next(self._order), member))
            else:
                return at_ms
        return None


@dataclass(slots=True)
class Membership:
    """The members of a group and its generation."""

    group_id: str
    initial_delay_ms: int = 0
    max_size: int = 2**31 - 1
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: dict[str, int] = field(default_factory=dict)  # ids without a join yet -> expiry in ms
    pending_due: list[tuple[int, str]] = field(default_factory=list, compare=False)  # a heap
    counts: MemberCounts = field(default_factory=MemberCounts, compare=False)

    def _known(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.group_id} has no instance {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"{instance_id} is {current} now")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id!r}")
        return member

    def _check_not_deleted(self) -> None:
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id} is being deleted")

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"generation {generation}: it is {self.generation}")

    def _touch(self, member: Member, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms
        self.counts.note_deadline(member)

    def _put(self, member: Member) -> None:
        """Adds a new member; its deadline is set already."""
        self.members[member.member_id] = member
        self.counts.add(member)
        self.counts.note_deadline(member)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def _rename(self, member: Member, member_id: str) -> None:
        """Changes the id of a static member, which stays in its place among the others."""
        old_id = member.member_id
        self.members = {
            (member_id if key == old_id else key): each for key, each in self.members.items()
        }
        member.member_id = member_id
        assert member.instance_id is not None
        self.static[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def _add_pending_id(self, member_id: str, until_ms: int) -> None:
        """Adds an id for a member that is to join with it; beyond a limit the oldest one is deleted."""
        if len(self.pending) >= MOST_PENDING:
            del self.pending[next(iter(self.pending))]
        self.pending[member_id] = until_ms
        heappush(self.pending_due, (until_ms, member_id))

    def pending_deadline_ms(self) -> int | None:
        """Returns when the first of the ids that no member has joined with expires."""
        due = self.pending_due
        while due and self.pending.get(due[0][1]) != due[0][0]:
            heappop(due)
        return due[0][0] if due else None

    def _has_room(self, member_id: str) -> bool:
        """Whether one more member may join; during a rebalance the members that join first stay."""
        member = self.members.get(member_id)
        if self.state is State.PREPARING:
            if member is not None and member.joining is not None:
                return True
            return self.counts.joining < self.max_size
        return member is not None or len(self.members) < self.max_size

    def _supports(self, request: Join) -> bool:
        """Whether the other members of the group support one of a member's protocols."""
        if self.state is State.EMPTY:
            return True
        if request.protocol_type != self.protocol_type:
            return False
        supporters = self.counts.supporters
        return not self.members or any(
            supporters.get(name) == len(self.members) for name, _ in request.protocols
        )

    def _vote(self) -> str:
        """Returns the protocol with most votes.

        Each member votes for its first one that all support.
        """
        candidates = self.counts.candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next((name for name, _ in member.protocols if name in candidates), None)
            if choice is not None:
                votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _apply(self, member: Member, request: Join) -> None:
        self.counts.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host

    def _drop(self, member: Member) -> list[Action]:
        """Removes a member, and answers its waiting requests."""
        del self.members[member.member_id]
        self.counts.remove(member)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        gone = UnknownMemberId(f"{member.member_id} is no longer in group {self.group_id}", "")
        waiting = [at for at in (member.joining, member.syncing) if at is not None]
        return [Answer(ticket, gone) for ticket in waiting]

    def _joined(self, member: Member) -> Joined:
        """Returns the answer to a join for a member of the current generation."""
        protocol = self.protocol or ""
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                (each.member_id, each.instance_id, each.metadata(protocol))
                for each in self.members.values()
            )
        return Joined(
            member.member_id,
            self.generation,
            self.protocol_type or "",
            protocol,
            self.leader or "",
            members,
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type or "", self.protocol or "", member.assignment)

    def tickets(self) -> list[Any]:
        """Returns all waiting requests, for a broker that stops."""
        found = []
        for member in self.members.values():
            found += [at for at in (member.joining, member.syncing) if at is not None]
            self.counts.set_joining(member, None)
            member.syncing = None
        return found

    def restore(self, members: Iterable[Member], now_ms: int) -> None:
        """Restores the members from the log; each must show within its session that it is alive."""
        for member in members:
            member.is_new, member.has_synced = False, True
            self._put(member)
            self._touch(member, now_ms)
        self.state = State.STABLE if self.members else State.EMPTY
