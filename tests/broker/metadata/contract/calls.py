"""Calls to a store as values, and a watch that remembers what it was told."""

from __future__ import annotations

import asyncio
import itertools

from tests.broker.metadata.contract.model import ENDED, FORGOTTEN
from tidelog.broker.metadata.store import CompactedError, LeaseEndedError, Snapshot


async def perform(store, call):
    """The answer of a store to a call, as the model writes it."""
    name, *arguments = call
    try:
        answer = await getattr(store, name)(*arguments)
    except LeaseEndedError:
        return ENDED
    except CompactedError:
        return FORGOTTEN
    if isinstance(answer, Snapshot):
        return (answer.revision, tuple(answer.pairs))
    return tuple(answer) if isinstance(answer, list) else answer


class Follower:
    """A watch from a revision on."""

    def __init__(self, store, after):
        self.after = after
        self.lists = []
        self.is_forgotten = False
        self._task = asyncio.create_task(self._follow(store))

    def told(self):
        """What it was told: the revision it began after, lists of changes, whether it was too late."""
        return (self.after, tuple(map(tuple, self.lists)), self.is_forgotten)

    async def stop(self):
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self, store):
        try:
            async for changes in store.watch(self.after):
                self.lists.append(changes)
        except CompactedError:
            self.is_forgotten = True


def position(told):
    """The revision up to which a watch was told everything."""
    after, lists, _ = told
    return lists[-1][-1].revision if lists else after


def explains(state, told, may_forget=False):
    """Whether a watch was told each change once, in order, and whole revisions at a time.

    `may_forget` says that the store may have forgotten changes that a client could ask for.
    """
    after, lists, is_forgotten = told
    if is_forgotten and not may_forget and position(told) >= state.compacted:
        return False
    if any(one[-1].revision >= two[0].revision for one, two in itertools.pairwise(lists)):
        return False
    heard = [change for changes in lists for change in changes]
    return heard == [each for each in state.history if after < each.revision <= position(told)]
