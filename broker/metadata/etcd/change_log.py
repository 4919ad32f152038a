"""The last changes that the watch has returned, kept in this process for `changes` and `watch`.

The log has every change of the cluster's keys between two revisions, and the revisions of every key at
the second of them. If etcd answers with an older revision than that, it went back: the log ends, and every
call raises WentBackError. All methods run in the loop of gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.store import CompactedError, WentBackError
from tidelog.broker.timer import timeout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.metadata.store import Change

log = logging.getLogger("tidelog.etcd")


class Revisions(NamedTuple):
    """The revisions of a key: a key that is put again after a deletion is created again."""

    create: int
    mod: int


def apply(change: Change, revisions: dict[str, Revisions]) -> None:
    """Applies a change to the revisions of the keys before it."""
    known = revisions.pop(change.key, None)
    if change.value is not None:
        create = change.revision if known is None else known.create
        revisions[change.key] = Revisions(create, change.revision)


class ChangeLog:
    """The changes after `begin` up to `end`, both revisions."""

    def __init__(self, kept_revisions: int) -> None:
        """The log is empty until `restart`."""
        self.begin = self.end = 0
        self.revisions: dict[str, Revisions] = {}
        """The revisions that created and last modified each key that exists at `end`."""
        self._kept = kept_revisions
        self._revisions: deque[list[Change]] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._answered = (
            0  # the newest revision of an answer, which the watch may not have returned yet
        )
        self._went_back: WentBackError | None = None

    @property
    def known(self) -> int:
        """The newest revision that the watch or an answer had."""
        return max(self.end, self._answered)

    @property
    def has_gone_back(self) -> bool:
        """Whether etcd has gone back to an older revision."""
        return self._went_back is not None

    def check(self) -> None:
        """Raises WentBackError if etcd has gone back."""
        if self._went_back is not None:
            raise WentBackError(*self._went_back.revisions)

    def check_newest(self, revision: int, known: int) -> None:
        """Compares the revision of an answer with `known` as it was before the request.

        Only for answers that are never older than the request (etcd's linearizable ones). Raises
        WentBackError, and so does every later call.
        """
        self._answered = max(self._answered, revision)
        if revision < known and self._went_back is None:
            self._went_back = WentBackError(revision, known)
            log.critical(
                "etcd went back to an older revision", extra={"reason": self._went_back.message}
            )
            self._notify()
        self.check()

    def restart(self, revision: int, revisions: Mapping[str, Revisions]) -> None:
        """Drops all changes, and starts again at a revision at which the keys have these revisions."""
        self._revisions.clear()
        self.begin = self.end = revision
        self.revisions = dict(revisions)
        self._notify()

    def add(self, revisions: Iterable[tuple[int, list[Change]]]) -> None:
        """Appends the changes of a watch; drops those that are not newer than the last ones.

        A member that lags behind may return old changes again.
        """
        for revision, changes in revisions:
            if revision <= self.end:
                continue
            self.end = revision
            for change in changes:
                apply(change, self.revisions)
            if changes:
                self._revisions.append(changes)
            if len(self._revisions) > self._kept:
                self.begin = self._revisions.popleft()[0].revision
        self._notify()

    def close(self) -> None:
        """Ends the waits."""
        self._is_closed = True
        self._notify()

    def after(self, revision: int) -> list[Change]:
        """Returns the changes after a revision. Raises CompactedError and WentBackError."""
        self.check()
        if revision < self.begin:
            raise CompactedError(f"changes up to revision {self.begin} are forgotten")
        return [
            change
            for changes in self._revisions
            if changes[0].revision > revision
            for change in changes
        ]

    async def next_after(self, revision: int) -> list[Change] | None:
        """Waits for changes after a revision, and returns all there are; None when closed.

        Raises CompactedError and WentBackError.
        """
        while not self._is_closed:
            found = self.after(revision)
            if found:
                return found
            await self._changed.wait()
        return None

    async def wait_for(self, revision: int, within_s: float) -> bool:
        """Waits until the changes up to a revision are here; returns whether they are.

        Raises WentBackError.
        """
        try:
            async with timeout(within_s):
                while self.end < revision and not self._is_closed:
                    self.check()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return self.end >= revision

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
