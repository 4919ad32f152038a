"""All fetch sessions of a broker, pure: how many there are, and which one goes for another (KIP-227).

There are at most `max.incremental.fetch.session.cache.slots` sessions, with at most
`fetch.session.cache.max.partitions` partitions in total. For a new session another one goes, as in Kafka:

1. the one that was not used for longest, if that is more than two minutes;
2. else the one that is worth least, if the new one is worth more: one with more partitions is worth more
   than one with fewer. A session goes in this way only when it is two minutes old.

A client for which there is no room gets no session, and its fetches are answered in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.partitions.fetch.session import FetchSession
from tidelog.protocol.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.broker.partitions.fetch.session import Cached
    from tidelog.protocol.api.fetch import FetchRequest

EVICTION_S: Final = 120.0  # Kafka's min.incremental.fetch.session.eviction.ms, which nobody can set
_ASK_AGAIN_S: Final = 1.0  # after a search in vain


class _Worth(NamedTuple):
    """What a session is worth; the id decides between equal ones."""

    size: int
    id: int


class FetchSessions:
    """The fetch sessions of one broker."""

    def __init__(self, slots: int, most_partitions: int, draw: Callable[[], int]) -> None:
        """`draw` returns a random id from 1 on."""
        self._slots, self._most_partitions, self._draw = slots, most_partitions, draw
        self._sessions: dict[int, FetchSession] = {}  # in the order in which they were used last
        self._searched_s = -_ASK_AGAIN_S  # when a search found nothing, and for what
        self._searched_for = _Worth(0, 0)
        self.partitions = 0
        self.evicted = 0

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    # --- one session ------------------------------------------------------------------------------

    def begin(
        self, size: int, now_s: float, *, by_id: bool
    ) -> tuple[FetchSession | None, list[FetchSession]]:
        """Returns a new session to which `size` partitions will be added, and those that go for it.

        There is none if there is no room.
        """
        worth = _Worth(size, 0)
        has_room, evicted = self._make_room(worth, size, now_s)
        if not has_room:
            return None, evicted
        session_id = self._draw()
        while session_id in self._sessions:
            session_id = self._draw()
        session = FetchSession(session_id, now_s, by_id=by_id)
        self._sessions[session_id] = session
        return session, evicted

    def count(self, session: FetchSession) -> None:
        """Counts the partitions that were added to a new session."""
        self.partitions += session.size

    @property
    def are_too_large(self) -> bool:
        """Whether the sessions have more partitions than they may: one has grown."""
        return self.partitions > self._most_partitions

    def take(
        self, request: FetchRequest, now_s: float, by_id: bool
    ) -> tuple[FetchSession | None, Sequence[Cached]]:
        """Applies a fetch to its session; returns it, and the partitions that the client forgets.

        A session without partitions is closed, and None is returned. Raises FetchSessionIdNotFound,
        InvalidFetchSessionEpoch and FetchSessionTopicIdError.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"{request.session_epoch} instead of {session.epoch}")
        if session.by_id != by_id:
            raise FetchSessionTopicIdError("topics of the session are named in another way")
        before = session.size
        gone = session.take(request)
        self.partitions += session.size - before
        if not session.size:
            self.close(session.id)
            return None, gone
        session.last_used_s = now_s
        del self._sessions[session.id]
        self._sessions[session.id] = session
        return session, gone

    def outgrown(self, session: FetchSession, now_s: float) -> list[FetchSession]:
        """Returns the sessions that go because one has grown: that itself if there is no room."""
        del self._sessions[session.id]  # it cannot go for itself
        worth = _Worth(session.size, 0)
        has_room, evicted = self._make_room(worth, 0, now_s)
        self._sessions[session.id] = session
        if not has_room:
            self._evict(session)
            evicted.append(session)
        return evicted

    def close(self, session_id: int) -> FetchSession | None:
        """Closes a session and returns it; None if there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_closed = True
            self.partitions -= session.size
            self._searched_s = -_ASK_AGAIN_S
        return session

    # --- room -------------------------------------------------------------------------------------

    def _make_room(self, worth: _Worth, size: int, now_s: float) -> tuple[bool, list[FetchSession]]:
        """Returns whether there is room for a session with `size` more partitions, and what went."""
        evicted: list[FetchSession] = []
        if worth.size > self._most_partitions or self._slots < 1:
            return False, evicted
        while len(self._sessions) >= self._slots or self.partitions + size > self._most_partitions:
            victim = self._victim(worth, now_s)
            if victim is None:
                return False, evicted
            self._evict(victim)
            evicted.append(victim)
        return True, evicted

    def _evict(self, session: FetchSession) -> None:
        self.close(session.id)
        self.evicted += 1

    def _victim(self, worth: _Worth, now_s: float) -> FetchSession | None:
        """Returns the session that goes for another one; None if none does.

        A search in vain is not repeated at once, because clients without a session ask with each fetch.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_s - oldest.last_used_s > EVICTION_S:
            return oldest
        if now_s - self._searched_s < _ASK_AGAIN_S and worth <= self._searched_for:
            return None
        least = min(
            (
                _Worth(each.size, each.id)
                for each in self._sessions.values()
                if now_s - each.created_s > EVICTION_S
            ),
            default=None,
        )
        if least is None or worth < least:
            self._searched_s, self._searched_for = now_s, worth
            return None
        return self._sessions[least.id]
