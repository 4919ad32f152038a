"""Fetches with a session: how it begins, and what each fetch of it reads and answers (KIP-227).

A quiet partition of a session waits with its log, as a fetch does (`broker/partitions/purgatory.py`), and
is not read until that has more. Logs are checked once a second for what brings no data, such as the
deletion of old segments, or a disk that fails. New metadata are compared topic by topic. A session
watches a log no more once that has notified it, until its client fetches again: a session whose client
is gone costs nothing.

Rights are checked when a partition is read. Nothing is sent of a partition that is not read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tidelog.broker.network.per_partition import FEW
from tidelog.broker.network.scheduler import checkpoint
from tidelog.broker.partitions.fetch.delayed_fetch import DelayedFetch, wait_for_bytes
from tidelog.broker.partitions.fetch.fetch_read import TOPIC_IDS_SINCE, WAITING_ERRORS
from tidelog.broker.partitions.fetch.session import as_topics
from tidelog.protocol.api.fetch import FetchResponse
from tidelog.protocol.errors import ErrorCode, FetchSessionIdNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.fetch.fetch_read import FetchRead
    from tidelog.broker.partitions.fetch.session import Cached, CachedTopic, FetchSession
    from tidelog.broker.partitions.services import Services
    from tidelog.protocol.api.fetch import FetchRequest, FetchTopic, PartitionData
    from tidelog.storage.log.partition import Partition

_LOOK_S = 1.0  # how often logs are checked that have woken nobody


class WholeFetch:
    """A fetch that names all that it asks for, and may get a session."""

    is_part = False

    def __init__(self, services: Services, request: FetchRequest, context: Context) -> None:
        self._services, self.request, self.context = services, request, context
        self._unsettled: list[tuple[Cached, PartitionData]] = []
        self._at_end = 0

    def topics(self) -> list[FetchTopic]:
        """Returns what the request names."""
        return self.request.topics

    def has_urgent_error(self, read: FetchRead) -> bool:
        """Returns whether reading a partition has failed."""
        return read.has_urgent_error()

    async def wait(self, read: FetchRead, timeout_s: float) -> bool:
        """Waits for the bytes that are missing."""
        request = self.request
        return await wait_for_bytes(
            self._services.purgatory,
            read.partitions,
            request.min_bytes - read.size_bytes,
            timeout_s,
            read.upper_offsets if request.isolation_level == 1 else None,
        )

    def respond(self, read: FetchRead) -> FetchResponse:
        """Returns all that was read, and the id of a session if one was asked for and has room."""
        response = read.answer()
        if self.request.session_epoch == 0:
            self._unsettled = begin(self._services, self.request, self.context, read)
            self._at_end = read.at_end
        return response

    async def settle(self) -> None:
        """Marks the quiet partitions of a new session."""
        for cached, data in self._unsettled:
            _settle_first(self._services, cached, data, self._at_end)
            await checkpoint()

    def hold_back(self) -> FetchResponse:
        """Returns nothing, and no session."""
        return FetchResponse()


class IncrementalFetch:
    """One fetch of a session."""

    is_part = True

    def __init__(
        self, services: Services, session: FetchSession, request: FetchRequest, context: Context
    ) -> None:
        self._services, self._session = services, session
        self.request, self.context = request, context
        self._epoch = session.epoch  # another one later on: the client has sent the next fetch
        self._read: list[Cached] = []
        if session.delayed_fetch is not None:
            session.delayed_fetch.wake()

    def topics(self) -> list[FetchTopic]:
        """Returns the partitions that may have something new."""
        session, services = self._session, self._services
        image = services.metadata.image
        if session.image is not image:
            session.learn(image, image.topics)
        read = self._read = session.to_read()
        for cached in read:
            if cached.topic.known is None:
                self._recognize(cached.topic)
        named = self.request.topics
        if len(read) == len(named) == 1 and named[0].partitions == [read[0].wanted]:
            named[0].topic = read[0].topic.name  # the usual request of one partition: used as it is
            return named
        return as_topics(read)

    def _recognize(self, topic: CachedTopic) -> None:
        """Sets the name of a topic that was named by its id, and what the metadata have of it."""
        image = self._services.metadata.image
        if not topic.name:
            topic.name = image.topic_name(topic.topic_id) or ""
        topic.known = image.topics.get(topic.name)

    def has_urgent_error(self, read: FetchRead) -> bool:
        """Returns whether there is an error that the client was not sent.

        Such an error waits like others of its kind if the session has partitions without errors.
        """
        answered = (data for topic in read.response.responses for data in topic.partitions)
        unsent = [
            data.error_code
            for cached, data in zip(self._read, answered, strict=True)
            if data.error_code and data.error_code != cached.last_sent_error
        ]
        if len(read.errors) == self._session.size:
            return bool(unsent)
        return not WAITING_ERRORS.issuperset(unsent)

    async def wait(self, read: FetchRead, timeout_s: float) -> bool:
        """Waits for the bytes that are missing, of any partition of the session."""
        session = self._session
        if session.is_closed or session.epoch != self._epoch:
            return False
        if len(session.changed) > len(self._read):  # others changed while the read was in a thread
            return True
        for cached in self._read:
            watch(self._services, cached)
        missing = self.request.min_bytes - read.size_bytes
        delayed_fetch = session.delayed_fetch = DelayedFetch(
            missing, asyncio.get_running_loop().create_future()
        )
        try:
            return await delayed_fetch.wait(timeout_s)
        finally:
            if session.delayed_fetch is delayed_fetch:
                session.delayed_fetch = None

    def respond(self, read: FetchRead) -> FetchResponse:
        """Returns the partitions of which there is something new.

        A session whose client has sent the next fetch meanwhile has another epoch, as in Kafka.
        """
        session, response = self._session, read.answer()
        response.session_id = session.id
        if session.epoch != self._epoch:
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            response.responses = []
            return response
        services, at_end, sent = self._services, read.at_end, session.sent
        has_silent = False
        order = iter(self._read)
        for topic in response.responses:
            kept = []
            for data in topic.partitions:
                cached = next(order)
                if sent(cached, data):
                    kept.append(data)
                if not data.records:
                    settle(services, cached, data, at_end)
            topic.partitions = kept
            has_silent |= not kept
        if has_silent:
            response.responses = [topic for topic in response.responses if topic.partitions]
        return response

    async def settle(self) -> None:
        """Does nothing: `respond` has done it."""

    def hold_back(self) -> FetchResponse:
        """Returns nothing of the session, whose partitions stay as they are."""
        session = self._session
        response = FetchResponse(session_id=session.id)
        if session.epoch != self._epoch:
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return response


def next_of_session(
    services: Services, request: FetchRequest, context: Context
) -> IncrementalFetch | WholeFetch:
    """Returns a fetch of a session.

    Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch and FetchSessionTopicIdError.
    """
    sessions, now_s = services.fetch_sessions, services.clock.monotonic_s()
    session, gone = sessions.take(request, now_s, context.header.api_version >= TOPIC_IDS_SINCE)
    if gone:
        unwatch(services, gone)
    if session is None:  # nothing is left: the answer has no session, as in Kafka
        request.session_epoch = -1
        return WholeFetch(services, request, context)
    if sessions.are_too_large:
        for each in sessions.outgrown(session, now_s):
            _leave(services, each)
        if session.is_closed:
            raise FetchSessionIdNotFound("there is no room for so many partitions in sessions")
    if now_s - session.looked_s >= _LOOK_S:
        session.looked_s = now_s
        _look(session)
    return IncrementalFetch(services, session, request, context)


def begin(
    services: Services, request: FetchRequest, context: Context, read: FetchRead
) -> list[tuple[Cached, PartitionData]]:
    """Begins a session with all that a fetch has read, if there is room, and puts its id in the answer.

    Returns the partitions that may still have to be quiet, if they are many.
    """
    response, image = read.response, read.image
    by_id = context.version >= TOPIC_IDS_SINCE
    session, evicted = services.fetch_sessions.begin(
        sum(len(topic.partitions) for topic in request.topics),
        services.clock.monotonic_s(),
        by_id=by_id,
    )
    for each in evicted:
        _leave(services, each)
    if session is None:
        return []
    session.is_committed = request.isolation_level == 1
    session.image = image
    added: list[tuple[Cached, PartitionData]] = []
    for asked, answered in zip(request.topics, response.responses, strict=True):
        name = (image.topic_name(asked.topic_id) or "") if by_id else asked.topic
        topic = session.topic(name, asked.topic_id, image.topics.get(name))
        for wanted, data in zip(asked.partitions, answered.partitions, strict=True):
            added.append((session.add(topic, wanted), data))
    services.fetch_sessions.count(session)
    response.session_id = session.id
    if len(added) > FEW:
        return added  # the session is whole: others may have their turn, and may even close it
    for cached, data in added:
        _settle_first(services, cached, data, read.at_end)
    return []


def _settle_first(services: Services, cached: Cached, data: PartitionData, at_end: int) -> None:
    """Notes what the first answer of a session has of a partition, which may be quiet then."""
    cached.last_sent = (data.high_watermark, data.log_start_offset)
    cached.last_sent_error = data.error_code
    if not data.records:
        settle(services, cached, data, at_end)


def close(services: Services, session_id: int) -> None:
    """Closes the session that a fetch names that wants a new one, or none."""
    session = services.fetch_sessions.close(session_id)
    if session is not None:
        _leave(services, session)


def _leave(services: Services, session: FetchSession) -> None:
    """Stops watching for a session that was closed; its fetch waits no longer."""
    unwatch(services, session)
    if session.delayed_fetch is not None:
        session.delayed_fetch.wake()


def settle(services: Services, cached: Cached, data: PartitionData, at_end: int) -> None:
    """Marks a partition as quiet if the client has all of it, and knows its offsets.

    `at_end` is the place in a log's `Ends` of the offset up to which the client reads.
    """
    session = cached.session
    if data.error_code or data.preferred_read_replica >= 0 or session.is_closed:
        return
    log = watch(services, cached)
    if log is None:
        return
    state = log.state
    ends, version = state.ends, state.version
    if (
        ends[at_end] == cached.wanted.fetch_offset
        and (ends.high_watermark, version.log_start_offset) == cached.last_sent
        and not state.is_stopped
    ):
        cached.seen = (ends, version)
        session.changed.pop(cached, None)


def watch(services: Services, cached: Cached) -> Partition | None:
    """Watches the log of a partition, and returns it; None if there is none that is open."""
    log = services.store.opened_partition(cached.topic.name, cached.wanted.partition)
    if cached.log is not log:
        unwatch(services, (cached,))
        if log is not None:
            services.purgatory.enter(log, cached)
        cached.log = log
    return log


def unwatch(services: Services, gone: Iterable[Cached]) -> None:
    """Stops watching the logs of partitions."""
    for cached in gone:
        if cached.log is not None:
            services.purgatory.leave(cast("Partition", cached.log), cached)
            cached.log = None


def _look(session: FetchSession) -> None:
    """Marks the partitions whose logs are not what they were when they became quiet."""
    for cached in session:
        if cached.log is not None:
            state = cast("Partition", cached.log).state
            if (
                state.ends is not cached.seen[0]
                or state.version is not cached.seen[1]
                or state.is_stopped
            ):
                session.changed[cached] = None
