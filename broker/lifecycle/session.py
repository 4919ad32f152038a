"""One session of a broker: how it begins, and what its broker writes while it lasts.

`registration.py` and `controlled_shutdown.py` decide what comes next; this stores it, one transaction at
a time. Before a session begins, the registration files are durable (`directories.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from tidelog.broker.lifecycle import clean_start, controlled_shutdown, registration
from tidelog.broker.lifecycle.keep_alive import KeepAlive
from tidelog.broker.lifecycle.lease import Lease
from tidelog.broker.lifecycle.registration import DuplicateBrokerError, Start
from tidelog.broker.metadata.brokers.keys import CONTROLLER, LIVE_PREFIX
from tidelog.broker.metadata.brokers.records import Secret, live_key
from tidelog.broker.metadata.local import shared_path
from tidelog.broker.metadata.names import new_id, written_id
from tidelog.broker.metadata.store import (
    NO_LEASE,
    Compare,
    Delete,
    LeaseEndedError,
    MetadataError,
)
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.lifecycle.directories import Directories
    from tidelog.broker.lifecycle.keep_alive import Renewals
    from tidelog.broker.lifecycle.services import Services
    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.brokers.records import Endpoint, OfflineRecord
    from tidelog.broker.metadata.eligible_leaders import TopicRules
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.transactions import Transaction

log = logging.getLogger("tidelog.cluster")

_RETRY_S = 0.3
_SECRET_BYTES = 16
_SLACK_MS = 5_000  # etcd ends a lease up to some seconds after its time


class SessionLostError(Exception):
    """The session has ended, or never began; the text says why."""


class Session:
    """A session from its lease on; each has another incarnation, and another secret."""

    def __init__(
        self,
        services: Services,
        directories: Directories,
        now_ms: Callable[[], int],
        keep_alive: Callable[..., Renewals] = KeepAlive,
    ) -> None:
        """`keep_alive` begins the renewals of a lease, with the arguments of `Renewals`."""
        config = services.config
        self._services, self._metadata = services, services.metadata
        self._me, self._rack = config.cluster.node_id, config.cluster.broker_rack
        self._lease_ms = config.cluster.broker_session_timeout_ms
        self._directories = directories
        self._now_ms = now_ms
        self._begin_renewals = keep_alive
        self._keep_alive: Renewals | None = None
        self.incarnation = written_id(new_id())
        self._secret = Secret(secrets.token_hex(_SECRET_BYTES))
        self.lease = Lease(self._lease_ms, now_ms())
        self.lease.on_lost()  # none is granted yet
        self.lease_id = 0
        self._error: str | None = None  # of the last call that was not a renewal
        self.is_clean = True
        # Brokers of one machine hold a lock on their id: an earlier process of it has ended.
        self._is_id_locked = shared_path(config) is not None

    async def begin(
        self,
        endpoints: tuple[Endpoint, ...],
        rules: Callable[[Topic], TopicRules],
        ended: Callable[[], None],
        *,
        is_fenced: bool,
    ) -> int:
        """Registers the broker; returns the broker epoch, which the image has then.

        `ended` is called when the store says that the lease is over. Raises SessionLostError if that
        is so before the broker is registered, and MetadataError if another process is this broker.
        """
        await self._grant()
        self._keep_alive = self._begin_renewals(
            self._metadata.store, self.lease_id, self.lease, self._lease_ms, self._now_ms, ended
        )
        if self._is_id_locked:
            await self._end_sessions_without_lease()
        give_up_ms = self._now_ms() + 2 * self._lease_ms + _SLACK_MS
        while True:
            self.check()
            image = self._metadata.image
            live = image.brokers.get(self._me)
            if live is not None and live.record.incarnation == self.incarnation:
                return live.epoch
            start = self._start(image, endpoints, is_fenced=is_fenced)
            try:
                found = registration.next_transactions(
                    image, start, rules, has_ended=self._has_ended(live)
                )
            except DuplicateBrokerError as error:
                # The session may be that of a process that has died, until its lease ends.
                if self._now_ms() > give_up_ms:
                    raise MetadataError(str(error)) from None
                await asyncio.sleep(_RETRY_S)
                continue
            for transaction in found:
                if registration.begins_session(transaction):
                    await self._write_files(image)
                if await self.store(transaction) is None:
                    break

    @property
    def store_error(self) -> str | None:
        """Why the metadata store does not work now, as a sentence; None if it does."""
        renewals = self._keep_alive
        return self._error or (None if renewals is None else renewals.error or renewals.refusal)

    def check(self) -> None:
        """Raises SessionLostError if the lease is over. Each call shows that the loop runs."""
        if self.lease.is_lost(self._now_ms()):
            raise SessionLostError("its lease has ended")

    def next_of(
        self, image: Image, epoch: int, offline: OfflineRecord, *, is_stopping: bool
    ) -> Transaction | None:
        """Returns what this broker should write next in its session; None if nothing.

        `offline` is what it cannot lead. Raises SessionLostError if the image shows that the session
        has ended.
        """
        live = image.brokers.get(self._me)
        if live is None or live.epoch != epoch:
            raise SessionLostError("the metadata have another session of this broker, or none")
        me, lease_id = self._me, self.lease_id
        if is_stopping:
            first = controlled_shutdown.begin(image, me, epoch, lease_id)
        else:
            first = registration.unfence(image, me, epoch, lease_id)
        return (
            first
            or controlled_shutdown.confirm(image, me, epoch, lease_id)
            or registration.report_offline(image, me, epoch, offline)
        )

    async def store(self, transaction: Transaction) -> int | None:
        """Stores a transaction; returns its revision, None if it is to be decided again.

        Raises SessionLostError.
        """
        try:
            stored = await self._metadata.transact(transaction.compares, transaction.operations)
        except LeaseEndedError:
            self.lease.on_lost()
            raise SessionLostError("its lease has ended") from None
        except BrokerError as error:
            self._failed(
                "outcome of broker session change unknown, trying again", error, why=transaction.why
            )
            await asyncio.sleep(_RETRY_S)
            return None
        self._error = None
        return stored

    async def leave(self, epoch: int) -> None:
        """Ends the session in the metadata. Raises SessionLostError."""
        ending = controlled_shutdown.end(self._metadata.image, self._me, epoch)
        await self.store(ending)
        await self._metadata.store.revoke(self.lease_id)

    def end(self) -> None:
        """Ends the renewals; the lease is over for this broker."""
        self.lease.on_lost()
        if self._keep_alive is not None:
            self._keep_alive.end()

    def join(self) -> None:
        """Waits, after `end`, for a renewal that is under way."""
        if self._keep_alive is not None:
            self._keep_alive.join()

    def _has_ended(self, live: LiveBroker | None) -> bool:
        """Returns whether a session of this id is known to be over, though its lease may not be."""
        if self._is_id_locked or live is None:
            return True
        return self._directories.has_used(live.record.incarnation)

    async def _end_sessions_without_lease(self) -> None:
        """Deletes the session and controller that a killed only broker has left: no lease ends them.

        Raises SessionLostError.
        """
        store = self._metadata.store
        while True:
            self.check()
            try:
                read = [await store.read(key) for key in (LIVE_PREFIX, CONTROLLER)]
                left = [
                    pair
                    for snapshot in read
                    for pair in snapshot.pairs
                    if pair.lease == NO_LEASE and pair.key != live_key(self._me)
                ]
                compares = [Compare(pair.key, "mod", "=", pair.mod_revision) for pair in left]
                deletes = [Delete(pair.key) for pair in left]
                if not left or await self._metadata.transact(compares, deletes) is not None:
                    return
            except BrokerError as error:
                self._failed("session of a killed broker not deleted", error)
                await asyncio.sleep(_RETRY_S)

    async def _grant(self) -> None:
        while True:
            try:
                await self._metadata.store.check_complete()
                asked_ms = self._now_ms()
                self.lease_id = await self._metadata.store.grant(self._lease_ms)
            except BrokerError as error:
                self._failed("broker session has no lease yet", error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._error = None
                self.lease = Lease(self._lease_ms, asked_ms)
                return

    def _failed(self, event: str, error: BrokerError, **fields: str) -> None:
        """Logs what the store has not done, once for as long as the reason is the same."""
        if error.message != self._error:
            log.warning(event, extra={**fields, "reason": error.message})
        self._error = error.message

    def _start(self, image: Image, endpoints: tuple[Endpoint, ...], *, is_fenced: bool) -> Start:
        directories = self._directories
        self.is_clean = clean_start.is_clean(
            image, self._me, directories.states, directories.boot_id
        )
        return Start(
            self._me,
            self.incarnation,
            self.lease_id,
            tuple(directories.by_path.values()),
            self.is_clean,
            is_fenced,
            endpoints,
            self._rack,
            self._services.config.cluster.inter_broker_protocol_version,
            self._secret,
        )

    async def _write_files(self, image: Image) -> None:
        registered = image.registrations.get(self._me)
        before = registered.record.incarnation if registered and self.is_clean else ""
        await self._services.pools.topics.run(self._directories.begin, self.incarnation, before)
