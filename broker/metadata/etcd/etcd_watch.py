"""Watches etcd's keys: appends every change, once and in order, to the change log.

A watch that ends, for whatever reason, resumes at the next member, at the last revision that it returned.
If etcd has compacted the next changes, all keys are read and the log starts again. Once a minute, and after a
watch was resumed or before another session starts, all keys are compared with those that the watch has
returned, because etcd has had faults that lost events (etcd issue 17529); a difference starts the log again,
too. If etcd went back to an older revision, the watch ends.

All methods run in the loop of gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import grpc

from tidelog.broker.metadata.etcd.change_log import Revisions, apply
from tidelog.broker.metadata.etcd.members import HAS_LEADER
from tidelog.broker.metadata.etcd.reading import read_keys
from tidelog.broker.metadata.store import CompactedError
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from tidelog.broker.metadata.etcd.change_log import ChangeLog
    from tidelog.broker.metadata.etcd.login import Metadata
    from tidelog.broker.metadata.etcd.members import EtcdMember, EtcdMembers
    from tidelog.broker.metadata.etcd.wire import Keys
    from tidelog.broker.metadata.store import Snapshot

log = logging.getLogger("tidelog.etcd")

_CONNECT_S = 4.0
_AGAIN_S = 0.1
_COMPARE_S = 60.0
_REACH_S = 5.0
_REFUSED_AGAIN_S = 0.5


class EtcdWatch:
    """The watch of one store, from `start` until `stop`."""

    def __init__(self, members: EtcdMembers, keys: Keys, changes: ChangeLog) -> None:
        """Starts nothing yet."""
        self._members, self._keys, self._log = members, keys, changes
        self._watch: asyncio.Task[None] | None = None
        self._member: EtcdMember | None = None
        self._work: list[asyncio.Task[None]] = []
        self._watches = 0  # that members have begun
        self._is_watching = False  # a member has begun the present one
        self._resumed = asyncio.Event()
        self._has_lost = False  # changes that no later watch will return

    async def start(self) -> None:
        """Reads all keys, then watches them from that revision on. Raises KafkaStorageError."""
        self._restart(await self._read_keys())
        self._work = [asyncio.create_task(work) for work in (self._run(), self._compare_often())]

    async def stop(self) -> None:
        """Ends the watch."""
        for work in self._work:
            work.cancel()
        if self._work:
            await asyncio.wait(self._work)
        self._work = []

    def switch_member(self) -> None:
        """Ends the watch at a member that lags or has lost changes, and resumes it at another one."""
        if self._member is not None:
            self._members.failed(self._member)
        if self._watch is not None:
            self._watch.cancel()

    async def compare(self) -> bool:
        """Compares all keys with those that the watch has returned; returns whether they are the same.

        Returns True also if that cannot be known, as after many changes, and while no member has started
        the next watch, which may return the missing changes. Raises KafkaStorageError.
        """
        watches, is_watching = self._watches, self._is_watching
        found = await self._read_keys()
        revisions = _revisions_of(found)
        if not await self._has_received(found.revision):
            # The watch returns no revision of another cluster's keys: then the keys are the same.
            is_same_watch = is_watching and self._is_watching and watches == self._watches
            return not is_same_watch or revisions == self._log.revisions
        try:
            for change in self._log.after(found.revision):
                apply(change, revisions)
        except CompactedError:
            return True
        return revisions == self._log.revisions

    async def check_complete(self) -> None:
        """Starts to read all keys again if the watch has lost changes, and raises KafkaStorageError."""
        if not await self.compare():
            log.error("etcd watch lost changes, reading all keys again")
            self._has_lost = True
            self.switch_member()
            raise KafkaStorageError("the watch of etcd has lost changes")

    async def _has_received(self, revision: int) -> bool:
        """Waits until the watch has returned a revision; returns whether it has.

        Waits twice: if the process stood still during the first wait, changes that have arrived meanwhile
        are read in the second one.
        """
        for _ in range(2):
            if await self._log.wait_for(revision, _REACH_S / 2):
                return True
        return False

    async def _read_keys(self) -> Snapshot:
        """Returns all keys without their values. Raises KafkaStorageError, and WentBackError."""
        known = self._log.known
        found = await read_keys(self._members, self._keys, keys_only=True)
        self._log.check_newest(found.revision, known)
        return found

    def _restart(self, found: Snapshot) -> None:
        self._log.restart(found.revision, _revisions_of(found))

    async def _run(self) -> None:
        try:
            while not self._log.has_gone_back:
                self._watch = asyncio.create_task(self._next_watch())
                await asyncio.wait([self._watch])
                if not self._watch.cancelled():
                    self._log_end(self._watch.exception())
                await asyncio.sleep(_AGAIN_S)
        finally:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.wait([self._watch])

    def _log_end(self, error: BaseException | None) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            text = error.details() or error.code().name
        else:
            text = error.message if isinstance(error, KafkaStorageError) else repr(error)
        where = self._member.endpoint if self._member is not None else ""
        if error is not None:
            log.info(
                "etcd watch ended, resuming",
                extra={"member": where, "revision": self._log.end, "reason": text},
            )
        if self._member is not None:
            self._members.failed(self._member)

    async def _next_watch(self) -> None:
        if self._has_lost:
            await self._restart_at_new_revision()
        await self._one_watch()

    async def _one_watch(self) -> None:
        """Watches at one member until the watch ends.

        Raises AioRpcError, KafkaStorageError, and TimeoutError if the member does not start the watch.
        """
        deadline_s = asyncio.get_running_loop().time() + _CONNECT_S
        self._member = None
        self._member = member = await self._members.connected(deadline_s)
        token = await self._members.login.metadata(member)
        call = member.watch.Watch(metadata=HAS_LEADER + token)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await call.write(self._keys.watch(self._log.end))
                answer = await call.read()
            if answer is not grpc.aio.EOF and answer.created and not answer.canceled:
                self._has_begun()
            while answer is not grpc.aio.EOF:
                if answer.canceled:
                    self._is_watching = False  # no changes come while all keys are read again
                    await self._cancelled(token, answer)
                    return
                self._log.add(self._keys.revisions(answer.events))
                answer = await call.read()
        finally:
            self._is_watching = False
            call.cancel()

    def _has_begun(self) -> None:
        """Notes that a member returns the changes from now on."""
        self._watches += 1
        self._is_watching = True
        if self._watches > 1:
            self._resumed.set()

    async def _restart_at_new_revision(self) -> None:
        """Restarts the log at a new revision, so that its readers get CompactedError and read all keys."""
        await self._members.call(
            lambda member: member.kv.Put, self._keys.put_barrier(), is_repeatable=True
        )
        self._restart(await self._read_keys())
        self._has_lost = False

    async def _cancelled(self, token: Metadata, answer: Any) -> None:
        if not answer.compact_revision:
            if token:
                await self._refused(token, answer.cancel_reason)
            raise KafkaStorageError(f"etcd has refused the watch: {answer.cancel_reason}")
        log.warning(
            "etcd compacted changes before the watch returned them, reading all keys again",
            extra={"revision": self._log.end, "compacted": answer.compact_revision},
        )
        await (
            self._restart_at_new_revision()
        )  # the watch may have lost changes before those that are forgotten

    async def _refused(self, token: Metadata, reason: str) -> None:
        """Discards the token if the watch was refused for it, so that the next one logs in again."""
        if self._members.login.discard_token(reason, token):
            return
        # etcd 3.4 answers "permission denied" for an old token as well. A read finds the cause: it is
        # refused for the token, and sent again with a new one, or for the user.
        await asyncio.sleep(_REFUSED_AGAIN_S)
        request = self._keys.newest_revision()
        await self._members.call(lambda at: at.kv.Range, request, is_repeatable=True)

    async def _compare_often(self) -> None:
        """Compares every `_COMPARE_S`, and after a watch was resumed."""
        while not self._log.has_gone_back:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COMPARE_S):
                    await self._resumed.wait()
            self._resumed.clear()
            with contextlib.suppress(KafkaStorageError):
                await self.check_complete()


def _revisions_of(found: Snapshot) -> dict[str, Revisions]:
    return {pair.key: Revisions(pair.create_revision, pair.mod_revision) for pair in found.pairs}
