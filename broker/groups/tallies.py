"""What is asked of all members at every event, kept as they change.

Without it each of n members that join at the same time would look at all others. Pure: deadlines are
in ms of the clock that the group is given.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.groups.members import Member
    from tidelog.broker.groups.messages import Protocols


class Tallies:
    """Counts of the members of one group, and the next of their deadlines."""

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
        """Counts a member no more."""
        self.members -= 1
        self.joining -= member.joining is not None
        self._support(member.protocols, -1)

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        """Gives a member other protocols."""
        if member.protocols != protocols:
            self._support(member.protocols, -1)
            self._support(protocols, 1)
        member.protocols = protocols

    def set_joining(self, member: Member, ticket: Any) -> None:
        """Lets a member wait for the answer to a join; None: it waits no more."""
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
        """Sees to it that the deadline of a member is not missed; a later one costs nothing."""
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
