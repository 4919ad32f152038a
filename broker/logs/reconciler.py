"""Makes the local logs match the metadata, whichever broker changed it, and retries failures.

A pass applies the newest image: it deletes the logs of deleted topics, creates missing logs, and
applies settings. A pass stores no progress on disk: after a crash the first pass of the next
start finds the same differences again. A failure (a disk, too few descriptors) is recorded by
topic, and later passes try again. No new log is served before all logs of its topic are there: what a
failed creation removes holds no record that was acknowledged. A log on which something still works, as
one that is being opened after a crash, is left for a later pass, and so is a topic of its name.

A log belongs to the topic whose id is in it, never to the name of its directory. A log without a
topic id gets that of the topic of its name, as the last step, so that a creation that fails has
changed no data. A log with the id of another topic is renamed to `-stray`: it is in the way, and must
not be deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.broker.logs.applied_settings import AppliedSettings
from tidelog.broker.logs.strays import rename_to_stray
from tidelog.broker.metadata.image import changed_topics
from tidelog.protocol.errors import BrokerError, KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from uuid import UUID

    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.pools import Pool
    from tidelog.broker.settings import Settings
    from tidelog.config import TopicConfig
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.topics")

_RETRY_S = 5.0
_AT_ONCE = 100  # partitions
_SOON_S = 1.0  # how long a pass waits in all for what works on logs that go


class DeletedTopic(NamedTuple):
    """A deleted topic, and the partitions of it that were open. Logs may be left if a disk fails."""

    name: str
    partitions: list[Partition]


class ReplicaRoles(Protocol):
    """The leaders and followers of this broker's logs; a partition is a topic id and an index."""

    async def apply(self, image: Image) -> None:
        """Makes each log the leader or a follower, as an image names them."""

    def mine(self, topic: Topic) -> list[int]:
        """Returns the partitions of a topic whose logs belong here."""

    def foreign(self, topic: Topic, here: Iterable[int]) -> list[int]:
        """Returns those of the logs of a topic that are here, and belong to other brokers."""

    async def lead(self, topic: Topic) -> None:
        """Begins the leader epochs of a topic at once, unless `apply` begins them."""

    def here(self) -> Collection[tuple[UUID, int]]:
        """Returns the partitions that lead or follow here, or are about to."""

    def leaving(self) -> Collection[tuple[UUID, int]]:
        """Returns the partitions that have been released, but whose logs a task still uses."""

    def release(self, names: Collection[tuple[UUID, int]]) -> list[asyncio.Task[None]]:
        """Ends the roles of partitions whose logs will be deleted; returns the tasks that still use them."""


class Reconciler:
    """The only object that creates and deletes local logs and applies their settings."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        store: LogStore,
        settings: Settings,
        pool: Pool,
        now_ms: Callable[[], int],
        deletion_ms: Callable[[], int],
        roles: ReplicaRoles,
        *,
        removed: Callable[[DeletedTopic], None],
        leader_changed: Callable[[Partition], None],
    ) -> None:
        """Works on files in `pool`; both callbacks are called on the event loop.

        Calls `removed` for each deleted topic, when its logs are deleted or could not all be deleted at
        the first attempt, and `leader_changed` for each open partition whose leader or leader epoch has
        changed.
        """
        self._metadata = metadata
        self._store = store
        self._settings = settings
        self._pool = pool
        self._now_ms = now_ms
        self._removed = removed
        self._leader_changed = leader_changed
        self._applied: Image | None = None
        self._configs = AppliedSettings(store, settings, pool, deletion_ms)
        self._failures: dict[UUID, BrokerError] = {}
        self._paused_topics: set[UUID] = set()  # topics whose missing logs are not created now
        self._deleted_topics: dict[
            UUID, Topic
        ] = {}  # deleted ones that were served, and still have logs
        self._postponed: set[UUID] = set()  # topics that a pass has left for a later one
        self._waits_until_s = 0.0
        self._again = asyncio.Event()  # something has ended for which a pass did not wait
        self.roles = roles
        self.deleted: list[str] = []  # deleted topics that others must still forget
        self._pass: asyncio.Task[None] | None = None

    async def reconcile(self) -> None:
        """Returns when the image that was newest at the call is applied, except for failures.

        A cancelled caller does not interrupt the work.
        """
        revision = self._metadata.image.revision
        while self._applied is None or self._applied.revision < revision:
            await self.one_pass()

    @property
    def served(self) -> Mapping[str, Topic]:
        """The topics whose settings are in force here, by name, with every change that returned."""
        return {} if self._applied is None else self._applied.topics

    def failure(self, topic_id: UUID) -> BrokerError | None:
        """Returns the error of a topic in the last pass, or None."""
        return self._failures.get(topic_id)

    def is_whole(self, topic_id: UUID) -> bool:
        """Returns whether every log of a topic is there; False before the pass that creates it."""
        applied = self._applied
        return (
            applied is not None
            and topic_id in applied.topics_by_id
            and topic_id not in self._failures
        )

    @contextlib.asynccontextmanager
    async def paused_creation(self, topic_id: UUID) -> AsyncIterator[bool]:
        """Creates no logs of a topic meanwhile, so that its creation can be rolled back safely.

        Waits for a pass in progress, which may still complete the topic. Yields whether a log is
        missing. For one caller at a time.
        """
        self._paused_topics.add(topic_id)
        try:
            await self.finish()
            yield topic_id in self._failures
        finally:
            self._paused_topics.discard(topic_id)

    async def run(self, after: Callable[[], Awaitable[None]]) -> None:
        """Applies every change as it comes, and retries failures, until cancelled.

        `after` is awaited after every pass.
        """
        while True:
            applied = 0 if self._applied is None else self._applied.revision
            try:
                async with asyncio.timeout(_RETRY_S if self._failures else None):
                    await self._newer_or_again(applied)
            except TimeoutError:
                pass  # failures are tried again
            try:
                await self.one_pass()
                await after()
            except Exception:
                log.exception("reconciliation of logs with metadata failed")
                await asyncio.sleep(_RETRY_S)

    async def _newer_or_again(self, applied: int) -> None:
        """Waits for a newer image, or until a task ends for which a pass did not wait."""
        loop = asyncio.get_running_loop()
        waits = [
            loop.create_task(self._metadata.newer_image(applied)),
            loop.create_task(self._again.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def finish(self) -> None:
        """Waits for the pass in progress, if there is one."""
        if self._pass is not None:
            await asyncio.wait([self._pass])

    async def one_pass(self) -> None:
        """Makes one pass over all differences, or waits for the pass in progress."""
        # Waiting for a pass that has ended would return at once: the caller would never yield.
        if self._pass is None or self._pass.done():
            self._pass = asyncio.get_running_loop().create_task(self._work())
        await asyncio.shield(self._pass)

    async def _work(self) -> None:
        image, before = self._metadata.image, self._applied
        failed = dict(self._failures)  # each stays recorded until it has been tried again
        self._again.clear()
        self._waits_until_s = asyncio.get_running_loop().time() + _SOON_S
        self._settings.use(image)
        in_use = await self._release_gone(image)
        for topic_id, name in image.deletions.items():
            if not self._metadata.must_delete(topic_id):
                continue
            # If the topic was never complete, a log that names no topic is not the topic's.
            served = None if before is None or topic_id in failed else before.topics_by_id
            topic_before = served.get(topic_id) if served else None
            if topic_id in in_use:
                if topic_before is not None:
                    self._deleted_topics[topic_id] = topic_before
                continue
            await self._delete(topic_id, name, self._deleted_topics.pop(topic_id, topic_before))
        differing = changed_topics(image, before)
        await self._configs.apply(image, before, differing)
        topics = {topic.topic_id: topic for topic in differing}
        for topic_id in (*failed, *self._postponed):
            if topic_id in image.topics_by_id:
                topics[topic_id] = image.topics_by_id[topic_id]
        for topic in topics.values():
            if in_use and not in_use.isdisjoint(self._owners(topic.name)):
                self._failures[topic.topic_id] = KafkaStorageError(
                    f"the logs of another topic {topic.name}, which was deleted, are still in use"
                )
                continue
            known = None if before is None else before.topics_by_id.get(topic.topic_id)
            changed = known is None or known.assignments != topic.assignments
            changed |= topic.topic_id in self._postponed
            if changed or topic.topic_id in failed:
                await self._delete_unassigned(topic)
                if topic.topic_id not in self._paused_topics and (
                    known is None
                    or topic.topic_id in failed
                    or self.roles.mine(known) != self.roles.mine(topic)
                ):
                    await self._ensure_logs(topic)
                await self._start_leader_epochs(topic, () if known is None else known.assignments)
        for topic_id in failed:
            if topic_id not in image.topics_by_id and topic_id not in image.deletions:
                self._failures.pop(topic_id, None)
        self._postponed = {each for each in self._postponed if each in image.topics_by_id}
        await self.roles.apply(image)
        self._applied = image

    async def _delete_unassigned(self, topic: Topic) -> None:
        """Deletes the logs of partitions that are not assigned to this broker any more."""
        self._postponed.discard(topic.topic_id)
        try:
            for index in self.roles.foreign(topic, self._store.indexes(topic.name)):
                if self._store.topic_id(topic.name, index) == topic.topic_id:
                    if not await self._wait_briefly(self.roles.release([(topic.topic_id, index)])):
                        self._postponed.add(topic.topic_id)
                        continue
                    await self._pool.run(self._store.delete_partition, topic.name, index)
                    log.info("replica deleted", extra={"log": f"{topic.name}-{index}"})
        except BrokerError as error:
            fields = {"topic": topic.name, "reason": error.message}
            log.error("replica deletion failed", extra=fields)

    # -- deletion -------------------------------------------------------------------------------

    async def _release_gone(self, image: Image) -> set[UUID]:
        """Ends the roles of partitions of deleted topics, before new topics get their names.

        Returns the topics whose logs a task still uses: a later pass deletes them.
        """
        roles = self.roles
        # Thousands of partitions share few ids, as the same objects: hashing each would be slow.
        ids = {id(name[0]): name[0] for name in (*roles.here(), *roles.leaving())}
        if not ids:
            return set()
        if not image.topics_by_id.keys() >= set(ids.values()):
            known = {*roles.here(), *roles.leaving()}
            gone = [one for one in known if one[0] not in image.topics_by_id]
            work: list[asyncio.Task[None]] = []
            for at in range(0, len(gone), _AT_ONCE):
                work += roles.release(gone[at : at + _AT_ONCE])
                await asyncio.sleep(0)
            # A session that has begun meanwhile has taken the roles of the image before.
            again = [one for one in roles.here() if one[0] not in image.topics_by_id]
            await self._wait_briefly([*work, *roles.release(again)])
        return {topic_id for topic_id, _ in roles.leaving()} - image.topics_by_id.keys()

    def _owners(self, name: str) -> Iterator[UUID | None]:
        """Returns the topic ids of the logs here whose directories have a topic's name."""
        return (self._store.topic_id(name, index) for index in self._store.indexes(name))

    async def _wait_briefly(self, work: Collection[asyncio.Task[None]]) -> bool:
        """Waits for tasks that use logs, at most `_SOON_S` in a pass; returns whether all have ended.

        The end of one that has not starts another pass.
        """
        if not work:
            return True
        left_s = max(self._waits_until_s - asyncio.get_running_loop().time(), 0)
        _, pending = await asyncio.wait(work, timeout=left_s)
        for each in pending:
            each.add_done_callback(lambda _: self._again.set())
        return not pending

    async def _delete(self, topic_id: UUID, name: str, served: Topic | None) -> None:
        """Removes the logs of a deleted topic, then removes its deletion from the metadata.

        `served` is the topic, if it was served here until now.
        """
        opened = list(self._open_partitions(topic_id, name))
        try:
            try:
                await self._pool.run(self._delete_logs, topic_id, name, served)
            finally:
                # Whatever fails, the topic is gone for clients, and later attempts find none open.
                if opened or topic_id not in self._failures:
                    self._removed(DeletedTopic(name, opened))
            await _free_gradually(opened)
            await self._metadata.deletion_done(topic_id)
        except BrokerError as error:
            self._failed(topic_id, name, error, "topic deletion failed")
            return
        self._failures.pop(topic_id, None)
        # What groups have committed since for another topic of the name is that topic's.
        if name not in self._metadata.image.topics:
            self.deleted.append(name)

    def _open_partitions(self, topic_id: UUID, name: str) -> Iterator[Partition]:
        for index in self._store.indexes(name):
            partition = self._store.opened_partition(name, index)
            if partition is not None and partition.topic_id == topic_id:
                yield partition

    def _delete_logs(self, topic_id: UUID, name: str, served: Topic | None) -> None:
        """Deletes logs, in a thread. Logs of a served topic are its own even if they name none."""
        for index in sorted(self._store.indexes(name)):
            ours = served is not None and index < served.partitions
            named = self._store.topic_id(name, index)
            if named == topic_id or (ours and named is None):
                if served is None:
                    log.warning("log of deleted topic deleted", extra={"log": f"{name}-{index}"})
                self._store.delete_partition(name, index)

    # -- creation -------------------------------------------------------------------------------

    async def _ensure_logs(self, topic: Topic) -> None:
        """Creates the missing logs of a topic, or records the failure."""
        try:
            await self._pool.run(self._create_logs, topic, self._configs.of(topic.name))
        except BrokerError as error:
            self._failed(topic.topic_id, topic.name, error, "log creation failed")
        else:
            self._failures.pop(topic.topic_id, None)

    def _failed(self, topic_id: UUID, name: str, error: BrokerError, event: str) -> None:
        """Records a failure; logs it only if it differs from the last one, for passes retry it."""
        before = self._failures.get(topic_id)
        self._failures[topic_id] = error
        if before is None or before.message != error.message:
            log.error(event, extra={"topic": name, "reason": error.message})

    def _create_logs(self, topic: Topic, config: TopicConfig) -> None:
        """Creates missing logs, in a thread, then writes the topic id into logs without one.

        Serves the new ones when all are there. Raises KafkaStorageError; then everything that was
        created is removed again.
        """
        here = self._store.indexes(topic.name)
        unnamed: list[int] = []
        made: list[int] = []
        try:
            for index in self.roles.mine(topic):
                if index in here:
                    named = self._store.topic_id(topic.name, index)
                    if named == topic.topic_id:
                        continue
                    if named is None:
                        unnamed.append(index)
                        continue
                    rename_to_stray(self._store, topic.name, index)
                self._store.create_partition(
                    topic.name, topic.topic_id, index, config, self._now_ms(), is_served=False
                )
                made.append(index)
        except KafkaStorageError:
            for index in made:
                self._store.delete_partition(topic.name, index)
            raise
        self._store.serve_partitions(topic.name)
        for index in unnamed:
            self._write_topic_id(topic, index)

    def _write_topic_id(self, topic: Topic, index: int) -> None:
        where = {"log": f"{topic.name}-{index}"}
        try:
            self._store.assign_topic_id(topic.name, index, topic.topic_id)
        except BrokerError as error:  # the topic is served all the same
            log.warning("topic id not written to log", extra=where | {"reason": error.message})
        else:
            log.warning("topic id written to log without one", extra=where)

    # -- leaders --------------------------------------------------------------------------------

    async def _start_leader_epochs(self, topic: Topic, before: Sequence[PartitionRecord]) -> None:
        """Starts the leader epochs of the image, unless the roles start them when they are applied.

        Wakes requests that wait for an open partition whose leader or leader epoch has changed.
        """
        await self.roles.lead(topic)
        for index, (record, old) in enumerate(zip(topic.assignments, before, strict=False)):
            if (record.leader, record.leader_epoch) != (old.leader, old.leader_epoch):
                partition = self._store.opened_partition(topic.name, index)
                if partition is not None:
                    self._leader_changed(partition)


async def _free_gradually(partitions: list[Partition]) -> None:
    """Frees the memory of deleted partitions, some at a time: 2,000 take 20 ms."""
    while partitions:
        del partitions[-_AT_ONCE:]
        await asyncio.sleep(0)
