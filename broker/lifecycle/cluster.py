"""The membership of a broker in a cluster of several: one session after another.

A broker registers, serves until its lease is lost, ends every role, and registers anew. `session.py` has
what one session writes.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.clock import machine_boot_id
from tidelog.broker.lifecycle.controlled_shutdown import may_stop
from tidelog.broker.lifecycle.directories import Directories
from tidelog.broker.lifecycle.keep_alive import KeepAlive
from tidelog.broker.lifecycle.leadership import claim_partitions
from tidelog.broker.lifecycle.session import Session, SessionLostError
from tidelog.broker.logs.disks import Disks
from tidelog.broker.logs.strays import rename_unknown_logs
from tidelog.broker.metadata.brokers.records import Endpoint
from tidelog.broker.metadata.local import are_beside_logs
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tidelog.broker.lifecycle.keep_alive import Renewals
    from tidelog.broker.lifecycle.lease import Lease
    from tidelog.broker.lifecycle.services import Services
    from tidelog.broker.logs.services import Services as LogServices
    from tidelog.broker.metadata.eligible_leaders import TopicRules
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.network.accepting.listener import Listener

log = logging.getLogger("tidelog.cluster")

NO_SESSION = -1
_RETRY_S = 1.0
_DISKS_S = 1.0
_TICKS = 4  # in each lease: how often the loop checks whether it was paused


class Cluster:
    """The membership of this broker in its cluster; all methods run on the event loop."""

    def __init__(
        self,
        services: Services,
        rules: Callable[[Topic], TopicRules],
        *,
        boot_id: str | None = None,
        keep_alive: Callable[..., Renewals] = KeepAlive,
    ) -> None:
        """Reads the registration files.

        `rules` returns the settings of a topic that elections obey. `boot_id` names this start of the
        machine, as the system does by default; `keep_alive` begins the renewals of a session's lease. Raises
        OSError, and LogDirectoryError if a directory belongs to another broker.
        """
        config = services.config
        self.me = config.cluster.node_id
        self.epoch = NO_SESSION
        """The broker epoch of the session (KIP-903), -1 while there is none."""
        self._services, self._metadata = services, services.metadata
        self._tick_s = config.cluster.broker_session_timeout_ms / 1000 / _TICKS
        cluster_id = services.metadata.image.cluster_id
        self._directories = Directories(
            services.store.log_dirs,
            machine_boot_id() if boot_id is None else boot_id,
            cluster_id,
            config.cluster.node_id,
            config.cluster.metadata_store,
        )
        self._new_session = partial(Session, services, self._directories, self.now_ms, keep_alive)
        self._session = self._new_session()
        self._disks = Disks(services, self._directories, self.now_ms)
        self._endpoints: tuple[Endpoint, ...] = ()
        self._rules = rules
        self._news = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._is_stopping = False
        self._lost_for: str | None = None  # why the last session ended, until the next one begins
        self._handed_over = asyncio.Event()
        self._session_changes = 0
        self._session_changed = asyncio.Event()  # replaced with each change
        self._work: list[asyncio.Task[None]] = []

    # -- state ----------------------------------------------------------------------------------

    @property
    def lease(self) -> Lease:
        """The lease of the session; it is lost when the session is over."""
        return self._session.lease

    @property
    def lease_id(self) -> int:
        """The lease in the metadata store to which the keys of this session belong."""
        return self._session.lease_id

    @property
    def is_serving(self) -> bool:
        """Whether this broker is registered, and not fenced in its own image."""
        live = self._metadata.image.brokers.get(self.me)
        return live is not None and live.epoch == self.epoch and not live.record.is_fenced

    @property
    def why_not_serving(self) -> str | None:
        """What keeps this broker from serving, as a sentence; None while it serves."""
        if self.is_serving:
            return None
        if self._lost_for is not None:
            return f"the session in the cluster is lost: {self._lost_for}"
        if self.epoch == NO_SESSION:
            return "not registered in the cluster yet"
        return "fenced since it registered: it catches up first"

    @property
    def metadata_error(self) -> str | None:
        """Why the metadata cannot be changed now, as a sentence; None if they can.

        It is known by the renewals of the session, several in each `broker.session.timeout.ms`.
        """
        return self._session.store_error

    @property
    def unwritable(self) -> Mapping[Path, str]:
        """Why nothing can be written to log directories, as the last check of the disks has found."""
        return self._disks.unwritable

    def now_ms(self) -> int:
        """Returns milliseconds of the monotonic clock by which the lease is measured."""
        return int(self._services.clock.monotonic_s() * 1000)

    async def session_changed(self, since: int) -> int:
        """Returns how often a session has begun or ended, once that is not `since`.

        The image shows the session of `epoch`. Nothing is safe only because this returns soon: the lease
        of a session is lost before its end is counted, and leaders check it before each answer.
        """
        while self._session_changes == since:
            await self._session_changed.wait()
        return self._session_changes

    def session_ended(self) -> None:
        """Ends the session, because the store has ended its lease: the broker registers anew."""
        self.lease.on_lost()
        self._news.set()

    # -- start and stop -------------------------------------------------------------------------

    def enter(self) -> None:
        """Logs which log directories are missing, before logs are made anew."""
        self._directories.log_missing(self._metadata.image)

    async def take_over(self, services: LogServices) -> None:
        """Renames logs whose topic is unknown: another broker may have deleted it meanwhile.

        Leads partitions without a leader epoch if the metadata lie beside the logs: an only broker wrote
        both before others joined. Raises KafkaStorageError.
        """
        image, store, pools = self._metadata.image, services.store, services.pools
        await pools.topics.run(rename_unknown_logs, store, image)
        if are_beside_logs(services.config):
            await claim_partitions(self._metadata, store, pools.reads, unknown_only=True)

    async def adopt_logs(self, services: LogServices) -> None:
        """Adopts none: a log without a topic may be of one that another broker has deleted."""

    async def start(self, listeners: Iterable[Listener]) -> None:
        """Registers, and returns when this broker is unfenced in its own image."""
        wanted = self._services.config.inter_broker_listener_name
        # Brokers connect to the first one.
        ordered = sorted(listeners, key=lambda at: at.name != wanted)
        self._endpoints = tuple(Endpoint(at.name, *at.advertised) for at in ordered)
        loop = asyncio.get_running_loop()
        self._work = [
            loop.create_task(work)
            for work in (
                self._run_sessions(),
                self._follow_images(),
                self._watch_lease(),
                self._watch_disks(),
            )
        ]
        waiting = loop.create_task(self._unfenced.wait())
        try:
            done, _ = await asyncio.wait(
                (*self._work, waiting), return_when=asyncio.FIRST_COMPLETED
            )
            for each in done - {waiting}:
                each.result()  # raises: it should never end
        finally:
            waiting.cancel()

    async def hand_over(self) -> None:
        """Waits until other brokers lead what this one leads (KIP-841), or until the time for it is over."""
        config = self._services.config
        if not config.cluster.controlled_shutdown_enable or self.epoch == NO_SESSION:
            return
        if self._metadata.went_back is not None:
            log.warning(
                "controlled shutdown not possible", extra={"reason": self._metadata.went_back}
            )
            return
        begun_s = self._services.clock.monotonic_s()
        log.info("controlled shutdown started")
        self._is_stopping = True
        self._news.set()
        try:
            async with asyncio.timeout(config.cluster.controlled_shutdown_max_wait_ms / 1000):
                await self._handed_over.wait()
        except TimeoutError:
            log.warning("controlled shutdown not completed in time")
        else:
            if self.epoch == NO_SESSION:
                log.warning("controlled shutdown ended, session lost")
                return
            after_s = round(self._services.clock.monotonic_s() - begun_s, 3)
            log.info("controlled shutdown succeeded", extra={"after_s": after_s})

    async def leave(self, *, is_flushed: bool, failed: Iterable[Path]) -> None:
        """Ends the session. Nothing may be served any more.

        `is_flushed` says that all logs are closed, and have lost nothing; `failed` are the directories
        in which a log has failed.
        """
        for work in self._work:
            work.cancel()
        if self._work:
            await asyncio.wait(self._work)
        epoch, self.epoch = self.epoch, NO_SESSION
        try:
            self._directories.note_end(is_flushed=is_flushed, failed=failed)
            if epoch != NO_SESSION:
                await self._session.leave(epoch)
        except (OSError, SessionLostError, BrokerError) as error:
            log.warning("broker session not ended", extra={"reason": error})
        finally:
            self._session.end()
            self._session.join()

    def restore_reserves(self) -> None:
        """Makes reserves again where a disk has room; `disks.py` says when logs are full no more."""
        self._services.store.restore_reserves(forgets_full=False)

    def for_placing(self, image: Image) -> Image:
        """Returns the image: every broker that is registered may take replicas."""
        return image

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now. Raises KafkaStorageError."""
        await self._metadata.catch_up()

    # -- the sessions ---------------------------------------------------------------------------

    async def _run_sessions(self) -> None:
        """Begins one session after another, until the broker stops."""
        is_fenced = True  # a process that registers again has followed the metadata all the time
        while not self._is_stopping:
            try:
                await self._disks.check(self.now_ms())  # a log may have failed since the last check
                epoch = await self._session.begin(
                    self._endpoints, self._rules, self._news.set, is_fenced=is_fenced
                )
                is_fenced = False
                self._registered(epoch)
                await self._follow(epoch)
            except SessionLostError as error:
                self._step_down(str(error))
            except Exception as error:
                if is_fenced:
                    raise  # the start has failed
                log.exception("broker session failed")
                self._step_down(str(error))
                await asyncio.sleep(_RETRY_S)
        self._handed_over.set()

    def _registered(self, epoch: int) -> None:
        self.epoch = epoch
        self._lost_for = None
        log.info("broker registered", extra={"is_clean": self._session.is_clean})
        self._count_session_change()

    async def _follow(self, epoch: int) -> None:
        """Stores what each new image requires of the session. Raises SessionLostError."""
        while True:
            self._news.clear()
            self._session.check()
            image = self._metadata.image
            transaction = self._session.next_of(
                image, epoch, self._disks.offline, is_stopping=self._is_stopping
            )
            if transaction is not None:
                await self._session.store(transaction)
                continue
            if self.is_serving and not self._unfenced.is_set():
                log.info("broker unfenced")
                self._unfenced.set()
            if self._is_stopping and may_stop(image, self.me, image.members.seen):
                self._handed_over.set()
            await self._news.wait()

    async def _follow_images(self) -> None:
        """Wakes the session for each new image."""
        while True:
            await self._metadata.newer_image(self._metadata.image.revision)
            self._news.set()

    async def _watch_lease(self) -> None:
        """Checks the lease, which shows that the loop runs, and wakes the session when the lease is lost."""
        while True:
            await asyncio.sleep(self._tick_s)
            if self.lease.is_lost(self.now_ms()):
                self._news.set()

    async def _watch_disks(self) -> None:
        """Wakes the session when a log has failed, or a disk is full or slow, or is so no more."""
        while True:
            try:
                if await self._disks.check(self.now_ms()):
                    self._news.set()
            except Exception:
                log.exception("log directories not checked")
            await asyncio.sleep(_DISKS_S)

    def _step_down(self, why: str) -> None:
        had_begun = self.epoch != NO_SESSION
        self.epoch = NO_SESSION
        self._lost_for = why
        self._session.end()
        self._session = self._new_session()
        log.warning("broker session lost", extra={"reason": why})
        if had_begun:
            self._count_session_change()

    def _count_session_change(self) -> None:
        self._session_changes += 1
        changed, self._session_changed = self._session_changed, asyncio.Event()
        changed.set()
