"""The only broker of a cluster: nobody else uses the file of its metadata.

Promises what `cluster.py` promises of one of several. The lock of the log directories proves that the
broker lives, so its session has no lease: nothing is renewed, and no pause ends it. The session and the
controller are written in one transaction at the start, with the registration if there is none, and deleted
in one at the end; no partition is written.

The broker claims no partition of which another broker has a replica. Where its log directories were those
of one of several brokers, a later start in that cluster knows whether logs have lost something meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

from tidelog.broker.clock import machine_boot_id
from tidelog.broker.lifecycle.directories import Directories, delete_lost_stores
from tidelog.broker.lifecycle.leadership import claim_partitions
from tidelog.broker.logs.found_logs import adopt_logs
from tidelog.broker.metadata import topic_writes
from tidelog.broker.metadata.brokers import records
from tidelog.broker.metadata.brokers.keys import CONTROLLER
from tidelog.broker.metadata.names import new_id, written_id
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.metadata.store import NO_LEASE, Delete, MetadataError, absent
from tidelog.protocol.errors import BrokerError
from tidelog.storage.directory.registration_file import OWN_STORE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tidelog.broker.logs.services import Services
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.store import Operation
    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.config import BrokerConfig
    from tidelog.storage.directory.store import LogStore

log = logging.getLogger("tidelog.cluster")

_NO_SESSION: Final = -1
_SECRET_BYTES = 16
_RETRY_S = 1.0


class SoleMember:
    """The broker, its session, and its log directories."""

    why_not_serving = None
    metadata_error = None

    def __init__(self, config: BrokerConfig, metadata: ClusterMetadata, store: LogStore) -> None:
        """Begins without a session."""
        self._config, self._metadata, self._store = config, metadata, store
        self._me = config.cluster.node_id
        self._directories: Directories | None = None
        self.epoch = _NO_SESSION
        """The broker epoch of the session, -1 while there is none."""
        self.unwritable: Mapping[Path, str] = {}
        self._registering: asyncio.Task[None] | None = None  # where it could not at the start

    def enter(self) -> None:
        """Checks the log directories, and notes in those of one of several brokers that logs change.

        The logs count as the only replicas from now on. Raises MetadataError if other brokers have replicas,
        LogDirectoryError if a directory belongs to another broker, and OSError.
        """
        image, paths = self._metadata.image, self._store.log_dirs
        check_sole(image, self._me)
        self._store.count_as_only_replicas()
        delete_lost_stores(paths, image.cluster_id)
        self._directories = Directories(
            paths, machine_boot_id(), image.cluster_id, self._me, OWN_STORE
        )
        self._directories.note_use()

    async def take_over(self, services: Services) -> None:
        """Ends unfinished creations, and leads every partition: no broker with another id is left.

        The ids that partitions and deletions name were those of this broker, or of brokers that had no
        replica when `enter` checked it. Raises KafkaStorageError.
        """
        await topic_writes.abandon_creations(self._metadata)
        await topic_writes.inherit_deletions(self._metadata)
        await claim_partitions(self._metadata, self._store, services.pools.reads)

    async def adopt_logs(self, services: Services) -> None:
        """Creates topics of logs without one: the metadata know every deletion, so these are copies."""
        await adopt_logs(services)

    async def start(self, listeners: Iterable[Listener]) -> None:
        """Begins the session, and becomes the controller.

        Where the metadata cannot be changed now (the disk is full, something else has locked the file), only
        the image gets both: the broker serves what it has, and a task writes them as soon as it can. Raises
        MetadataError.
        """
        endpoints = tuple(records.Endpoint(at.name, *at.advertised) for at in listeners)
        secret = records.Secret(os.urandom(_SECRET_BYTES).hex())
        begun = [
            records.put_live(
                self._me,
                records.LiveBrokerRecord(
                    written_id(new_id()),
                    endpoints,
                    self._config.cluster.broker_rack,
                    is_fenced=False,
                    secret=secret,
                ),
                NO_LEASE,
            ),
            records.put_controller(self._me, NO_LEASE),
            *self._registrations(),
        ]
        try:
            await self._register(begun)
        except BrokerError as error:
            log.warning("broker not registered yet", extra={"reason": error.message})
            self._metadata.assume([*_left(self._metadata.image), *begun])
            self._registering = asyncio.create_task(self._register_later(begun))

    def _registrations(self) -> list[Operation]:
        """Returns the operations after which this broker is registered, and no earlier id of it.

        The registration of one of several brokers stays, with its log directories. A new one names no
        directory: a cluster that the broker joins later has lost nothing with them.
        """
        image, protocol = self._metadata.image, self._config.cluster.inter_broker_protocol_version
        known = image.registrations.get(self._me)
        record = (
            records.RegistrationRecord(written_id(new_id()), is_clean=True, protocol=protocol)
            if known is None
            else known.record._replace(protocol=protocol)
        )
        operations: list[Operation] = [
            Delete(records.registration_key(broker))
            for broker, other in image.registrations.items()
            if broker != self._me and not other.record.directories
        ]
        if known is None or record != known.record:
            operations.append(records.put_registration(self._me, record))
        return operations

    async def _register_later(self, begun: Sequence[Operation]) -> None:
        while True:
            await asyncio.sleep(_RETRY_S)
            with contextlib.suppress(BrokerError):
                if self.epoch == _NO_SESSION:
                    await self._register(begun)
                return await self._metadata.read_again()

    async def _register(self, begun: Sequence[Operation]) -> None:
        """Raises KafkaStorageError, and MetadataError if another process has begun a session."""
        await self._metadata.catch_up()  # an attempt before may have been stored
        left = _left(self._metadata.image)
        if left:  # by a process that was killed, or by brokers that shared the file before
            await self._metadata.transact((), left)
        epoch = await self._metadata.transact(absent(records.live_key(self._me)), begun)
        if epoch is None:
            raise MetadataError(f"another process is broker {self._me} in the same metadata file")
        self.epoch = epoch
        log.info("broker registered", extra={"epoch": epoch})

    async def hand_over(self) -> None:
        """Returns at once: nobody else can lead."""

    async def leave(self, *, is_flushed: bool, failed: Iterable[Path]) -> None:
        """Ends the session, and records how the process ends; see `Cluster.leave`. Raises OSError."""
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait([self._registering])
        epoch, self.epoch = self.epoch, _NO_SESSION
        if self._directories is not None:
            self._directories.note_end(is_flushed=is_flushed, failed=failed)
        if epoch != _NO_SESSION:
            try:
                await self._metadata.store.transact((), _left(self._metadata.image))
            except BrokerError as error:
                log.warning("broker session not ended", extra={"reason": error.message})

    def restore_reserves(self) -> None:
        """Makes reserves again where a disk has room, and lets its logs take appends; for a thread."""
        self._store.restore_reserves(forgets_full=True)

    def for_placing(self, image: Image) -> Image:
        """Returns an image in which this broker alone is registered: former ones take no replicas."""
        own = {me: known for me, known in image.registrations.items() if me == self._me}
        return image._replace(members=image.members._replace(registrations=own))

    async def catch_up(self) -> None:
        """Returns at once: the image has every change, for nobody else makes any."""


def _left(image: Image) -> list[Operation]:
    """Returns the operations that delete all sessions, and the controller."""
    operations: list[Operation] = [Delete(records.live_key(broker)) for broker in image.brokers]
    operations += [Delete(records.seen_key(broker)) for broker in image.members.seen]
    if image.controller is not None:
        operations.append(Delete(CONTROLLER))
    return operations


def check_sole(image: Image, broker: int) -> None:
    """Raises MetadataError if other brokers have replicas of partitions, or lead them."""
    if not any(other.record.directories for other in image.registrations.values()):
        return  # none was one of several brokers: the others are earlier ids of this one
    others: set[int] = set()
    partitions = 0
    for topic in image.topics.values():
        for record in topic.assignments:
            found = {*record.replicas, record.leader} - {broker, NO_LEADER}
            others |= found
            partitions += bool(found)
    if not others:
        return
    named = " and ".join(map(str, sorted(others)))
    who = f"brokers {named} have" if len(others) > 1 else f"broker {named} has"
    count = f"{partitions} partition{'s' if partitions > 1 else ''}"
    raise MetadataError(
        f"broker {broker} cannot be alone: {who} replicas of {count}; "
        f"start all of them with --brokers {max(broker, *others)}, and to be alone then, move what "
        f"they have with 'tidelog broker remove ID'"
    )
