"""One fetch session (KIP-227), as a pure state machine: its partitions, and what of them is new.

A session knows what a client asks for, partition by partition, and what was last sent to it. Each fetch names
only what the client changes. Its answer carries the partitions that have records, another high
watermark or log start than was last sent, an error, or a replica to read from instead.

A partition that has been answered, and has no more to read, is *quiet*: it is not read again until it
is marked as `changed`. So a fetch costs what has changed, however many partitions there are.

Partitions are read in turn. One whose records were sent goes behind all others, so that the limit of
an answer starves none.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelog.broker.partitions.fetch.session_epochs import next_epoch
from tidelog.protocol.api.fetch import FetchTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, PartitionData


Key: TypeAlias = "str | int"  # a topic's name, or the number that its id is

_place = attrgetter("place")


class Log(Protocol):
    """The log of a partition."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is complete."""


class Delayed(Protocol):
    """A fetch of the session that waits."""

    def wake(self) -> None:
        """Wakes the fetch, which reads again."""

    def took(self, size: int) -> None:
        """Counts bytes that the fetch may read."""


class Cached:
    """One partition of a session.

    `last_sent` is the high watermark and the log start that the client knows; -1 after an error.
    `last_sent_error` is the code of the error that was answered last, 0 if there was none: the same
    error ends no other wait. `log` is the log that is watched, and `seen` its state when the partition became
    quiet.
    """

    __slots__ = (
        "last_sent",
        "last_sent_error",
        "log",
        "place",
        "seen",
        "session",
        "topic",
        "wanted",
    )

    def __init__(
        self, session: FetchSession, topic: CachedTopic, wanted: FetchPartition, place: int
    ) -> None:
        self.session, self.topic, self.wanted, self.place = session, topic, wanted, place
        self.last_sent = (-1, -1)
        self.last_sent_error = 0
        self.log: Log | None = None
        self.seen: tuple[object, object] = (None, None)

    def arrived(self, log: Log, size: int, _read_to: int | None) -> bool:
        """Notes that `size` more bytes of the log may be read.

        Returns whether the partition still waits: a fetch counts the next bytes, too. How much a fetch of
        committed data can read is not known by the size, so such a fetch is woken by whatever is stable.
        """
        session = self.session
        session.changed[self] = None
        delayed_fetch = session.delayed_fetch
        if delayed_fetch is None:
            self.log = None
            return False
        if not session.is_committed:
            delayed_fetch.took(size)
        elif log.last_stable_offset != self.wanted.fetch_offset:
            delayed_fetch.wake()
        return True

    def invalidated(self) -> bool:
        """Notes that something else has happened to the log; returns False: the partition waits no more."""
        self.log = None
        session = self.session
        session.changed[self] = None
        if session.delayed_fetch is not None:
            session.delayed_fetch.wake()
        return False


class CachedTopic:
    """The partitions of one topic in a session, and the topic in the metadata when they were read."""

    __slots__ = ("known", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, known: object) -> None:
        """`name` is empty while nobody knows which topic has the id."""
        self.name, self.topic_id, self.known = name, topic_id, known
        self.partitions: dict[int, Cached] = {}


class FetchSession:
    """The partitions that one client fetches from this broker."""

    __slots__ = (
        "by_id",
        "changed",
        "created_s",
        "delayed_fetch",
        "epoch",
        "id",
        "image",
        "is_closed",
        "is_committed",
        "last_used_s",
        "looked_s",
        "next_place",
        "size",
        "topics",
    )

    def __init__(self, session_id: int, now_s: float, *, by_id: bool) -> None:
        """`by_id`: topics are named by ids."""
        self.id, self.by_id = session_id, by_id
        self.created_s = self.last_used_s = self.looked_s = now_s
        self.epoch = 1  # which the next fetch must have
        self.topics: dict[Key, CachedTopic] = {}
        self.size = 0
        self.next_place = 0
        self.changed: dict[Cached, None] = {}  # the partitions to read with the next fetch
        self.is_committed = False
        self.is_closed = False
        self.delayed_fetch: Delayed | None = None
        self.image: object = None  # the metadata to which `CachedTopic.known` belongs

    def __iter__(self) -> Iterator[Cached]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def key_of(self, name: str, topic_id: UUID) -> Key:
        """Returns by what the session knows a topic."""
        return topic_id.int if self.by_id else name

    # --- what is asked for ------------------------------------------------------------------------

    def take(self, request: FetchRequest) -> Sequence[Cached]:
        """Applies what a fetch changes, and returns the partitions that the client has forgotten."""
        self.epoch = next_epoch(self.epoch)
        is_committed = request.isolation_level == 1
        if is_committed != self.is_committed:  # another offset is where it has all
            self.is_committed = is_committed
            self.changed.update(dict.fromkeys(self))
        topics, changed = self.topics, self.changed
        for topic in request.topics:
            known = topics.get(topic.topic_id.int if self.by_id else topic.topic)
            if known is None:
                known = self.topic(topic.topic, topic.topic_id, None)
            partitions = known.partitions
            for wanted in topic.partitions:
                cached = partitions.get(wanted.partition)
                if cached is None:
                    cached = self.add(known, wanted)
                else:
                    if cached.last_sent_error and cached.wanted != wanted:
                        cached.last_sent_error = 0  # another question
                    cached.wanted = wanted
                changed[cached] = None
        return self._forget(request) if request.forgotten_topics_data else ()

    def topic(self, name: str, topic_id: UUID, known: object) -> CachedTopic:
        """Returns a topic of the session, which it gets if it has none of this name or id."""
        key = topic_id.int if self.by_id else name
        found = self.topics.get(key)
        if found is None:
            found = self.topics[key] = CachedTopic(name, topic_id, known)
        return found

    def add(self, topic: CachedTopic, wanted: FetchPartition) -> Cached:
        """Adds a partition behind all others; it is to be read."""
        cached = Cached(self, topic, wanted, self.next_place)
        topic.partitions[wanted.partition] = cached
        self.next_place += 1
        self.size += 1
        self.changed[cached] = None
        return cached

    def _forget(self, request: FetchRequest) -> list[Cached]:
        gone = []
        for each in request.forgotten_topics_data:
            key = self.key_of(each.topic, each.topic_id)
            topic = self.topics.get(key)
            if topic is None:
                continue
            for index in each.partitions:
                cached = topic.partitions.pop(index, None)
                if cached is not None:
                    self.changed.pop(cached, None)
                    gone.append(cached)
            if not topic.partitions:
                del self.topics[key]
        self.size -= len(gone)
        return gone

    # --- what is read -----------------------------------------------------------------------------

    def learn(self, image: object, topics: Mapping[str, object]) -> None:
        """Marks the partitions of topics that new metadata have changed."""
        self.image = image
        for topic in self.topics.values():
            known = topics.get(topic.name)
            if known is not topic.known:
                topic.known = known
                self.changed.update(dict.fromkeys(topic.partitions.values()))

    def to_read(self) -> list[Cached]:
        """Returns the partitions that a fetch has to read, in their turn."""
        changed = self.changed
        return list(changed) if len(changed) < 2 else sorted(changed, key=_place)

    # --- what is answered -------------------------------------------------------------------------

    def sent(self, cached: Cached, data: PartitionData) -> bool:
        """Notes what was read of a partition; returns whether the answer has to carry it."""
        before, cached.last_sent = cached.last_sent, (data.high_watermark, data.log_start_offset)
        cached.last_sent_error = data.error_code
        if data.records:
            cached.place = self.next_place
            self.next_place += 1
            return True
        return (
            cached.last_sent != before or data.error_code != 0 or data.preferred_read_replica >= 0
        )


def as_topics(asked: Iterable[Cached]) -> list[FetchTopic]:
    """Returns partitions as a request names them: those of a topic that follow each other, together."""
    topics: list[FetchTopic] = []
    last: CachedTopic | None = None
    for cached in asked:
        topic = cached.topic
        if topic is last:
            topics[-1].partitions.append(cached.wanted)
        else:
            last = topic
            topics.append(
                FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[cached.wanted])
            )
    return topics
