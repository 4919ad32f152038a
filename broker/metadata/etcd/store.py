"""The metadata store in etcd: transactions, leases and changes as the contract has them.

A transaction is etcd's own. Its revision is that of the whole etcd, which may hold more than the
keys of one cluster: revisions are not dense, and a new store has one above 0.

A transaction without an answer in time may have been applied, or may be later: after KafkaStorageError its
outcome is unknown, as in the contract. Reads, and calls that may be repeated, are tried at another member.

A watch returns every change of the cluster's keys, from the moment the store is opened. `changes` reads
etcd's newest revision, and waits until the watch has returned it. If keys of other users of etcd have that
revision, the watch never returns it; then the barrier key is put, which the watch does return.

A restored etcd may have an older revision than before. The revision of every answer to a transaction or to
`changes` is compared with the newest one before it, and all keys are compared when a watch resumes. If etcd
went back, this store raises WentBackError from then on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

import grpc
from aetcd import rpc

from tidelog.broker.metadata.etcd.change_log import ChangeLog
from tidelog.broker.metadata.etcd.etcd_watch import EtcdWatch
from tidelog.broker.metadata.etcd.login import LoginError
from tidelog.broker.metadata.etcd.loop_thread import grpc_loop
from tidelog.broker.metadata.etcd.members import EtcdMember, EtcdMembers, RefusedError, alarm_of
from tidelog.broker.metadata.etcd.reading import read_keys
from tidelog.broker.metadata.etcd.wire import Keys
from tidelog.broker.metadata.store import (
    KEPT_REVISIONS,
    LeaseEndedError,
    MetadataError,
    WentBackError,
    check_span,
    check_transaction,
)
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.broker.metadata.etcd.login import EtcdUser, Metadata
    from tidelog.broker.metadata.etcd.members import EtcdTls
    from tidelog.broker.metadata.store import Change, Compare, Operation, Snapshot
    from tidelog.config.broker.etcd_address import EtcdAddress

log = logging.getLogger("tidelog.etcd")

_KEEP_ALIVE_S = 1.0  # etcd answers for a lease that is over only when it has ended it
_BARRIER_AFTER_S = 0.1
_REACH_S = 3.0
_OPEN_S = 30.0


class EtcdStore:
    """A KeyValueStore in etcd."""

    def __init__(
        self,
        address: EtcdAddress,
        tls: EtcdTls | None = None,
        *,
        user: EtcdUser | None = None,
        kept_revisions: int = KEPT_REVISIONS,
        barrier_after_s: float = _BARRIER_AFTER_S,
        wait_s: float = _OPEN_S,
    ) -> None:
        """Connects to nothing yet. `open` waits at most `wait_s` for an etcd that does not answer yet.

        `kept_revisions` with changes are kept for `changes` and `watch`. `barrier_after_s` is how
        long the watch may take to return the newest revision, before the barrier key is put.
        """
        self._address, self._tls, self._user = address, tls, user
        self._barrier_after_s, self._wait_s = barrier_after_s, wait_s
        self._keys = Keys(address.name)
        self._log = ChangeLog(kept_revisions)
        self._members: EtcdMembers | None = None
        self._etcd_watch: EtcdWatch | None = None
        self._has_granted = False  # a lease: what came since the start may have been lost
        self._writing = 0  # transactions in progress
        self._written = asyncio.Event()  # set when there are none

    async def open(self) -> None:
        """See `KeyValueStore`. Raises MetadataError also if no member answers."""
        try:
            await grpc_loop.run(self._open())
        except KafkaStorageError as error:
            await self.close()
            raise MetadataError(f"the metadata cannot be read: {error.message}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `KeyValueStore`."""
        await grpc_loop.run(self._close())

    async def read(self, prefix: str = "") -> Snapshot:
        """See `KeyValueStore`."""
        return await grpc_loop.run(self._read(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """See `KeyValueStore`."""
        check_transaction(compares, operations)
        return await grpc_loop.run(self._transact(tuple(compares), tuple(operations)))

    async def changes(self, after: int) -> list[Change]:
        """See `KeyValueStore`."""
        return await grpc_loop.run(self._changes(after))

    async def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """See `KeyValueStore`."""
        while True:
            found = await grpc_loop.run(self._log.next_after(after))
            if found is None:
                return
            after = found[-1].revision
            yield found

    async def check_complete(self) -> None:
        """See `KeyValueStore`."""
        await grpc_loop.run(self._check_complete())

    async def grant(self, ttl_ms: int) -> int:
        """See `KeyValueStore`. Rounds up to whole seconds, the unit of etcd's leases."""
        check_span(ttl_ms)
        return await grpc_loop.run(self._grant(-(-ttl_ms // 1000)))

    async def keep_alive(self, lease: int) -> bool:
        """See `KeyValueStore`."""
        return await grpc_loop.run(self._keep_alive(lease))

    async def why_no_writes(self) -> str | None:
        """See `KeyValueStore`. Reads etcd's alarms, of which a call that writes nothing returns no error."""
        return await grpc_loop.run(self._why_no_writes())

    async def revoke(self, lease: int) -> None:
        """See `KeyValueStore`."""
        await grpc_loop.run(self._revoke(lease))

    # -- in the loop of gRPC --------------------------------------------------------------------

    async def _open(self) -> None:
        self._members = members = EtcdMembers(self._address.endpoints, self._tls, self._user)
        await members.open()
        self._etcd_watch = EtcdWatch(members, self._keys, self._log)
        loop = asyncio.get_running_loop()
        give_up_s, is_logged = loop.time() + self._wait_s, False
        while True:
            try:
                return await self._etcd_watch.start()
            except KafkaStorageError as error:  # machines start in any order
                if isinstance(error, LoginError) or loop.time() > give_up_s:
                    raise
                if not is_logged:
                    log.warning("waiting for etcd", extra={"reason": error.message})
                    is_logged = True

    async def _close(self) -> None:
        self._log.close()
        while self._writing:
            self._written.clear()
            await self._written.wait()
        if self._etcd_watch is not None:
            await self._etcd_watch.stop()
        if self._members is not None:
            await self._members.close()
            self._members = None

    async def _read(self, prefix: str) -> Snapshot:
        self._log.check()
        return await read_keys(self._open_members, self._keys, prefix)

    async def _transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        request = self._keys.transaction(compares, operations)
        is_read = not operations
        self._log.check()
        known = self._log.known
        self._writing += 1
        try:
            answer = await self._call(lambda at: at.kv.Txn, request, is_repeatable=is_read)
        except RefusedError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                raise LeaseEndedError(f"a lease of the transaction has ended: {error}") from None
            raise KafkaStorageError(f"etcd has refused a transaction: {error}") from None
        finally:
            self._writing -= 1
            if not self._writing:
                self._written.set()
        self._log.check_newest(answer.header.revision, known)
        return answer.header.revision if answer.succeeded else None

    async def _changes(self, after: int) -> list[Change]:
        self._log.check()
        known = self._log.known
        newest = await self._call(
            lambda at: at.kv.Range, self._keys.newest_revision(), is_repeatable=True
        )
        self._log.check_newest(newest.header.revision, known)
        await self._wait_for_watch(newest.header.revision)
        return self._log.after(after)

    async def _wait_for_watch(self, revision: int) -> None:
        """Waits until the watch has returned all changes up to a revision. Raises KafkaStorageError."""
        if await self._log.wait_for(revision, self._barrier_after_s):
            return
        barrier = await self._call(
            lambda at: at.kv.Put, self._keys.put_barrier(), is_repeatable=True
        )
        if not await self._log.wait_for(barrier.header.revision, _REACH_S):
            assert self._etcd_watch is not None
            self._etcd_watch.switch_member()
            raise KafkaStorageError("the watch of etcd lags behind")

    async def _check_complete(self) -> None:
        self._log.check()
        if self._has_granted:
            assert self._etcd_watch is not None
            await self._etcd_watch.check_complete()

    async def _grant(self, ttl_s: int) -> int:
        self._log.check()
        lease = 1 + secrets.randbelow(2**63 - 1)
        request = rpc.LeaseGrantRequest(TTL=ttl_s, ID=lease)
        try:
            await self._call(lambda at: at.lease.LeaseGrant, request, is_repeatable=True)
        except RefusedError as error:
            # An attempt whose answer was lost has granted it: nobody else chooses this number.
            if error.code is not grpc.StatusCode.FAILED_PRECONDITION:
                raise KafkaStorageError(f"etcd has refused a lease: {error}") from None
        self._has_granted = True
        return lease

    async def _keep_alive(self, lease: int) -> bool:
        async def ask(member: EtcdMember, metadata: Metadata) -> bool:
            call = member.lease.LeaseKeepAlive(timeout=_KEEP_ALIVE_S, metadata=metadata)
            try:
                await call.write(rpc.LeaseKeepAliveRequest(ID=lease))
                answer = await call.read()
                if answer is grpc.aio.EOF:
                    raise KafkaStorageError(f"etcd at {member.endpoint} has not renewed a lease")
                return bool(answer.TTL > 0)
            finally:
                call.cancel()

        return bool(await self._open_members.try_each(ask, is_repeatable=True))

    async def _why_no_writes(self) -> str | None:
        try:
            self._log.check()
        except WentBackError as error:
            return error.message
        request = rpc.StatusRequest()
        members = self._open_members
        try:
            status = await members.call(
                lambda at: at.maintenance.Status, request, is_repeatable=False
            )
        except RefusedError as error:
            raise KafkaStorageError(f"etcd does not tell its status: {error}") from None
        return alarm_of(status.errors)

    async def _revoke(self, lease: int) -> None:
        request = rpc.LeaseRevokeRequest(ID=lease)
        try:
            await self._call(lambda at: at.lease.LeaseRevoke, request, is_repeatable=True)
        except RefusedError as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise KafkaStorageError(f"etcd has not ended a lease: {error}") from None

    async def _call(
        self, method: Callable[[EtcdMember], Any], request: Any, *, is_repeatable: bool
    ) -> Any:
        return await self._open_members.call(method, request, is_repeatable=is_repeatable)

    @property
    def _open_members(self) -> EtcdMembers:
        if self._members is None:
            raise KafkaStorageError("the metadata store is closed")
        return self._members
