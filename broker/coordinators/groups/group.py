"""The classic group protocol as a pure state machine: events in, actions out.

A method of `Group` is an event (a request, or that time has passed) with `now_ms`, from a clock
that never goes back. It returns actions: `Answer` a waiting member, `Store` the group. The machine
uses no event loop, socket or file; a waiting request is an opaque ticket. A refused request raises
the error for its response.

    EMPTY -> PREPARING -> COMPLETING -> STABLE -> PREPARING ...      (DEAD: deleted)

In PREPARING members join, until all have joined again or the longest rebalance timeout is over. In
COMPLETING the group waits for the leader's assignment. Subscriptions and assignments are opaque, so
consumers, Connect and other users of the protocol are treated alike. Events and actions are in
messages.py, the members in members.py.

Source: Kafka's GroupCoordinator and GroupMetadata as of 3.9; KIP-62, KIP-134, KIP-345, KIP-394,
KIP-814.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.groups.members import Member, Membership
from tidelog.broker.coordinators.groups.messages import (
    ON_COMMIT,
    ON_HEARTBEAT,
    ON_JOIN,
    ON_SYNC,
    Action,
    Answer,
    Join,
    State,
    Store,
)
from tidelog.protocol.group_errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may wait for the first response, for its connection may be gone."""

_LEAST_WAIT_FOR_STATIC_MS = 1_000  # members may ask for no rebalance timeout at all


@dataclass(slots=True)
class Group(Membership):
    """The state machine of one group."""

    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    _is_initial: bool = False
    _has_grown: bool = False
    _left_ms: int = 0

    # -- join -----------------------------------------------------------------------------------

    def join(self, request: Join, ticket: Any, now_ms: int) -> list[Action]:
        """A member joins; it is answered at once or when the others have joined.

        Raises the error for the response.
        """
        self._check_not_deleted()
        if not self._has_room(request.member_id):
            return self._refuse_member(request.member_id, ticket, now_ms)
        if request.protocol_type == "" or not request.protocols or not self._supports(request):
            raise InconsistentGroupProtocol(
                f"group {self.group_id} is of type {self.protocol_type}, protocol {self.protocol}"
            )
        if request.member_id == "":
            return self._join_unknown(request, ticket, now_ms)
        if request.member_id in self.pending and request.instance_id is None:
            return self._add(request, request.member_id, ticket, now_ms)
        member = self._known(request.member_id, request.instance_id)
        refusal = ON_JOIN[self.state]
        if refusal is not None:
            raise refusal
        is_same = member.protocols == request.protocols
        if is_same and self.state is State.COMPLETING:
            return [Answer(ticket, self._joined(member))]
        if is_same and self.state is State.STABLE and member.member_id != self.leader:
            self._touch(member, now_ms)
            return [Answer(ticket, self._joined(member))]
        return self._update(member, request, ticket, now_ms)

    def _join_unknown(self, request: Join, ticket: Any, now_ms: int) -> list[Action]:
        if request.instance_id is not None:
            old_id = self.static.get(request.instance_id)
            if old_id is not None:
                return self._replace_static_member(self.members[old_id], request, ticket, now_ms)
        elif request.needs_id:
            self._add_pending_id(request.new_id, now_ms + request.session_timeout_ms)
            raise MemberIdRequired(request.new_id)
        return self._add(request, request.new_id, ticket, now_ms)

    def _refuse_member(self, member_id: str, ticket: Any, now_ms: int) -> list[Action]:
        """Refuses a member of a full group; an existing member that came too late is removed."""
        full = GroupMaxSizeReached(f"group {self.group_id} has {self.max_size} members")
        self.pending.pop(member_id, None)
        if member_id in self.members:
            self._drop(self.members[member_id])
        return [Answer(ticket, full), *self._try_complete(now_ms)]

    def _add(self, request: Join, member_id: str, ticket: Any, now_ms: int) -> list[Action]:
        """Adds a new member and begins a rebalance."""
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            deadline_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self._put(member)
        self.counts.set_joining(member, ticket)
        self.pending.pop(member_id, None)
        if self.state is State.PREPARING:
            self._has_grown = True
        return self._rebalance(now_ms)

    def _update(self, member: Member, request: Join, ticket: Any, now_ms: int) -> list[Action]:
        """An existing member joins again, with or without changes."""
        actions: list[Action] = []
        if member.joining is not None:  # its first request was lost
            actions.append(Answer(member.joining, RebalanceInProgress()))
        self._apply(member, request)
        self.counts.set_joining(member, ticket)
        return actions + self._rebalance(now_ms)

    def _replace_static_member(
        self, member: Member, request: Join, ticket: Any, now_ms: int
    ) -> list[Action]:
        """A static member returns under a new member id (KIP-345); the old id is fenced."""
        fenced = FencedInstanceId(
            f"{request.instance_id} is {request.new_id} now", member.member_id
        )
        actions: list[Action] = [
            Answer(waiting, fenced)
            for waiting in (member.joining, member.syncing)
            if waiting is not None
        ]
        leader_before = self.leader
        self._rename(member, request.new_id)
        member.syncing = None
        self.counts.set_joining(member, None)
        self._apply(member, request)
        self._touch(member, now_ms)
        if self.state is not State.STABLE or self._vote() != self.protocol:
            self.counts.set_joining(member, ticket)
            return actions + self._rebalance(now_ms)
        joined = self._joined(member)
        if request.can_skip:
            joined = joined._replace(skip_assignment=bool(joined.members))
        else:  # a leader is answered with the former id, or it would assign again
            joined = joined._replace(leader=leader_before or "", members=())
        return [*actions, Store(), Answer(ticket, joined)]

    # -- rebalance ------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> list[Action]:
        """Begins a rebalance, unless one is under way; ends it if all members have joined."""
        actions: list[Action] = []
        if self.state is not State.PREPARING:
            if self.state is State.COMPLETING:
                actions += self._refuse_syncs()
            is_first = self.state is State.EMPTY
            self._is_initial = is_first and self.initial_delay_ms > 0
            self.state, self.sync_deadline_ms = State.PREPARING, None
            timeout_ms = self._rebalance_timeout_ms()
            wait_ms = self.initial_delay_ms if self._is_initial else timeout_ms
            self._left_ms, self._has_grown = max(0, timeout_ms - wait_ms), False
            self.join_deadline_ms = now_ms + wait_ms
            if is_first and not self._is_initial:  # a member with a pending id may still join
                return actions + self._complete_join(now_ms)
        return actions + self._try_complete(now_ms)

    def _refuse_syncs(self) -> list[Action]:
        waiting = [member for member in self.members.values() if member.syncing is not None]
        actions: list[Action] = [
            Answer(member.syncing, RebalanceInProgress()) for member in waiting
        ]
        for member in waiting:
            member.syncing = None
            self.counts.note_deadline(member)  # it counts again
        return actions

    def _try_complete(self, now_ms: int) -> list[Action]:
        if self.state is not State.PREPARING or (self._is_initial and self.members):
            return []
        if self.pending or self.counts.joining < len(self.members):
            return []
        return self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> list[Action]:
        """Ends the join phase and begins the next generation."""
        self._is_initial = False
        gone = [m for m in self.members.values() if m.joining is None and m.instance_id is None]
        for member in gone:
            self._drop(member)
        present = [member for member in self.members.values() if member.joining is not None]
        if self.members and not present:  # all are static members that have not returned yet
            wait_ms = max(self._rebalance_timeout_ms(), _LEAST_WAIT_FOR_STATIC_MS)
            self.join_deadline_ms = now_ms + wait_ms
            return []
        self.join_deadline_ms = None
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, None, None
            return [Store()]
        if self.leader not in {member.member_id for member in present}:
            self.leader = present[0].member_id
        self.protocol, self.state = self._vote(), State.COMPLETING
        self.sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        actions: list[Action] = []
        for member in self.members.values():
            member.has_synced = False
            if member.joining is not None:
                actions.append(Answer(member.joining, self._joined(member)))
                self.counts.set_joining(member, None)
                member.is_new = False
                self._touch(member, now_ms)
        return actions

    def _after_removal(self, now_ms: int) -> list[Action]:
        if self.state in (State.STABLE, State.COMPLETING):
            return self._rebalance(now_ms)
        return self._try_complete(now_ms)

    # -- sync -----------------------------------------------------------------------------------

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocols: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        ticket: Any,
        now_ms: int,
    ) -> list[Action]:
        """A member asks for its assignment; `protocols` are type and name, if it sends them.

        Raises the error for the response.
        """
        self._check_not_deleted()
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        for requested, ours in zip(protocols, (self.protocol_type, self.protocol), strict=True):
            if requested is not None and requested != ours:
                raise InconsistentGroupProtocol(f"{requested} is not the group's: that is {ours}")
        refusal = ON_SYNC[self.state]
        if refusal is not None:
            raise refusal
        member.has_synced = True
        self._touch(member, now_ms)
        if self.state is State.STABLE:
            return [Answer(ticket, self._synced(member))]
        actions: list[Action] = []
        if member.syncing is not None:
            actions.append(Answer(member.syncing, RebalanceInProgress()))
        member.syncing = ticket
        if member_id != self.leader:
            return actions
        for each in self.members.values():
            each.assignment = assignments.get(each.member_id, b"")
        self.state = State.STABLE
        actions.append(Store())
        for each in self.members.values():
            if each.syncing is not None:
                actions.append(Answer(each.syncing, self._synced(each)))
                each.syncing = None
                self._touch(each, now_ms)
        return actions

    def not_stored(self, now_ms: int) -> list[Action]:
        """The assignment could not be written, so no member may use it: begins a new rebalance."""
        if self.state is not State.STABLE:
            return []
        for member in self.members.values():
            member.assignment = b""
        return self._rebalance(now_ms)

    # -- heartbeat, leave, commit -----------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """A member is alive; raises the error for the response."""
        self._check_not_deleted()
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        self._touch(member, now_ms)
        refusal = ON_HEARTBEAT[self.state]
        if refusal is not None:
            raise refusal

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Action]:
        """Removes a member, by member id or instance id.

        Raises UnknownMemberId, FencedInstanceId.
        """
        self._check_not_deleted()
        if member_id in self.pending:
            del self.pending[member_id]
            return self._try_complete(now_ms)
        if member_id == "" and instance_id is not None:
            member_id = self.static.get(instance_id, "")
        actions = self._drop(self._known(member_id, instance_id))
        return actions + self._after_removal(now_ms)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Checks that a member may commit offsets, and extends its session.

        A transaction may name no member, and no rebalance is in its way (KIP-447); no
        session is extended. Raises the error for the response.
        """
        self._check_not_deleted()
        if generation < 0 and self.state is State.EMPTY:
            return  # an admin tool, or a consumer that assigns its own partitions
        if generation < 0 and member_id == "" and instance_id is None:
            if is_transactional:
                return
            raise UnknownMemberId(f"group {self.group_id} has members: only they commit")
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        if is_transactional:
            return
        refusal = ON_COMMIT[self.state]
        if refusal is not None:
            raise refusal
        self._touch(member, now_ms)

    # -- time -----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Returns when `tick` must be called next; None if there is no deadline."""
        first_ms = self.counts.next_deadline_ms(self.members)
        due = (first_ms, self.pending_deadline_ms(), self.join_deadline_ms, self.sync_deadline_ms)
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def tick(self, now_ms: int) -> list[Action]:
        """Removes members whose session has expired, and ends phases that took too long."""
        actions: list[Action] = []
        expired = [m for m in self.members.values() if not m.is_waiting and m.deadline_ms <= now_ms]
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= now_ms:
            self.sync_deadline_ms = None
            late_ids = {member.member_id for member in expired}
            expired = [
                m for m in self.members.values() if m.member_id in late_ids or not m.has_synced
            ]
        for member in expired:
            actions += self._drop(member)
        late = [member_id for member_id, at_ms in self.pending.items() if at_ms <= now_ms]
        for member_id in late:
            del self.pending[member_id]
        if expired or late:
            actions += self._after_removal(now_ms) if expired else self._try_complete(now_ms)
        if self.join_deadline_ms is not None and self.join_deadline_ms <= now_ms:
            actions += self._join_time_over(now_ms)
        return actions

    def _join_time_over(self, now_ms: int) -> list[Action]:
        """Extends the first rebalance of a group that still grows; else completes it with its members."""
        if self._is_initial and self._has_grown and self._left_ms > 0:
            wait_ms = min(self.initial_delay_ms, self._left_ms)
            self._left_ms, self._has_grown = self._left_ms - wait_ms, False
            self.join_deadline_ms = now_ms + wait_ms
            return []
        return self._complete_join(now_ms)
