"""How a client finds its way in a cluster: brokers, leaders, coordinators, and trying again.

`Cluster` keeps one connection to each broker it needs and knows who leads what. What passes by itself (a
leader that moved, a broker that restarts, a coordinator that loads) is tried again with growing pauses until
`timeout_s` has gone by; anything else is raised at once. What a broker refuses is `RequestError`, with the
code of `protocol.errors`; a cluster nobody can reach is `ClusterUnreachable`.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pipeline import connection as wire
from pipeline.connection import Connection, ConnectionBroken, VersionMismatch
from pipeline.errors import PipelineError
from protocol.api import find_coordinator, metadata
from protocol.errors import ERRORS, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    Answer = TypeVar("Answer")

TIMEOUT_S: Final = 60.0
REQUEST_TIMEOUT_S: Final = 30.0
GROUP: Final = 0
TRANSACTION: Final = 1
_UNKNOWN_S: Final = 3.0  # a topic that was just made may not be known everywhere yet
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
# Not retriable in Kafka's table, but gone once the metadata are fresh.
_MOVED: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH})
_UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ClientError(PipelineError):
    """What a client raises; the message is a sentence for the user."""


class ClusterUnreachable(ClientError):  # noqa: N818 - named for what has happened
    """No broker could be reached, or the one needed, until time was up."""


class UnsupportedByBroker(ClientError):  # noqa: N818 - as above
    """The broker does not serve what is needed."""


class RequestError(ClientError):
    """A broker refused; `code` says why."""

    def __init__(self, code: int, doing: str, message: str | None = None) -> None:
        known = ERRORS.get(code)
        self.code = known.code if known is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        name = known.name if known is not None else f"error {code}"
        said = message or (known.sentence if known is not None else "")
        self.retriable = known is not None and (known.retriable or known.code in _MOVED)
        super().__init__(f"{doing}: {name}" + (f": {said}" if said else ""))


class PartitionInfo(NamedTuple):
    """Who leads a partition (-1: nobody), and how many replicas there are."""

    leader: int
    leader_epoch: int
    replica_count: int


class TopicInfo(NamedTuple):
    """A topic and its partitions, in order; `topic_id` is empty where the broker tells none."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    topic_id: str = ""


class Cluster:
    """The cluster that `brokers` (`host:port,host:port`) belong to, and the connections to it."""

    def __init__(
        self,
        brokers: str | Sequence[str],
        *,
        client_id: str = "tidelog-pipeline",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        given = brokers.split(",") if isinstance(brokers, str) else brokers
        self.bootstrap = tuple(address_of(one) for one in given)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._controller = -1
        self._open: dict[tuple[str, int], Connection] = {}
        self._random = random.Random()  # noqa: S311 - spreads retries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and forget who leads what."""
        for one in self._open.values():
            one.close()
        self._open.clear()
        self.forget()

    # --- topics ----------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """The topics of these names, or all there are. Raises RequestError for one that is missing."""

        def once() -> dict[str, TopicInfo]:
            return self._refresh(None if names is None else sorted(set(names)))

        return self.until_done(once)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. Raises RequestError where there is no such topic."""
        return len(self.topics([topic])[topic].partitions)

    def has_topic(self, name: str) -> bool:
        """Whether the topic exists."""
        return name in self.topics()

    # --- connections -----------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the leader of a partition, as far as it is known.

        Raises RequestError or ConnectionBroken. `forget` what failed before asking again.
        """
        leader = self._leader(topic, partition)  # first: it may bring other nodes
        return self._connect(self._nodes[leader])

    def forget(self) -> None:
        """Ask anew next time who leads and who coordinates."""
        self._topics.clear()
        self._coordinators.clear()
        self._controller = -1

    def _leader(self, topic: str, partition: int) -> int:
        known = self._topics.get(topic)
        if known is None:
            known = self._refresh([topic])[topic]
        if not 0 <= partition < len(known.partitions):
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic}-{partition}",
                f"topic {topic} has {len(known.partitions)} partitions",
            )
        leader = known.partitions[partition].leader
        if leader not in self._nodes:
            self.forget()
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return leader

    def _refresh(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        """Ask one broker for metadata, once."""
        asked = (
            None if names is None else [metadata.MetadataRequestTopic(name=one) for one in names]
        )
        answer = self.any().ask(
            metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False), wire.METADATA
        )
        self._nodes = {one.node_id: (one.host, one.port) for one in answer.brokers}
        self._controller = answer.controller_id
        found = {}
        for topic in answer.topics:
            refuse(topic.error_code, f"topic {topic.name}")
            partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
            found[topic.name] = TopicInfo(
                topic.name,
                topic.is_internal,
                tuple(
                    PartitionInfo(one.leader_id, one.leader_epoch, len(one.replica_nodes))
                    for one in partitions
                ),
                str(topic.topic_id) if topic.topic_id.int else "",
            )
        self._topics.update(found)
        return found

    def controller(self) -> Connection:
        """A connection to the broker that makes topics, or to any where none is named."""
        if self._controller not in self._nodes:
            self._refresh([])
        node = self._nodes.get(self._controller)
        return self.any() if node is None else self._connect(node)

    def any(self) -> Connection:
        """A connection to any broker: one that is open, else the first that can be reached."""
        for one in self._open.values():
            return one
        trouble = []
        for address in dict.fromkeys((*self._nodes.values(), *self.bootstrap)):
            try:
                return self._connect(address)
            except ConnectionBroken as error:
                trouble.append(str(error))
        raise ConnectionBroken("; ".join(trouble))

    def _connect(self, address: tuple[str, int]) -> Connection:
        known = self._open.get(address)
        if known is None:
            timeout_s = min(self.timeout_s, REQUEST_TIMEOUT_S)
            known = Connection(*address, self.client_id, timeout_s)
            self._open[address] = known
        return known

    def coordinator(self, key: str, kind: int) -> Connection:
        """A connection to the coordinator of a group or a transactional id. Raises as `leader` does."""
        node = self._coordinators.get((kind, key))
        if node is None:
            request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
            answer = self.any().ask(request, wire.FIND_COORDINATOR)
            what = "transactional id" if kind == TRANSACTION else "group"
            refuse(answer.error_code, f"coordinator of {what} {key}", answer.error_message)
            node = self._coordinators[kind, key] = (answer.host, answer.port)
        return self._connect(node)

    # --- trying again ----------------------------------------------------------------------------

    def until_done(self, once: Callable[[], Answer]) -> Answer:
        """Do it again while what is wrong may pass, with growing pauses, until time is up.

        Raises RequestError, ClusterUnreachable or UnsupportedByBroker.
        """
        began = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return once()
            except VersionMismatch as error:
                raise UnsupportedByBroker(str(error)) from error
            except ConnectionBroken as error:
                self.close()
                if time.monotonic() + pause_s > began + self.timeout_s:
                    raise ClusterUnreachable(str(error)) from error
            except RequestError as error:
                self.forget()
                patience_s = _UNKNOWN_S if error.code is _UNKNOWN_TOPIC else self.timeout_s
                if not error.retriable or time.monotonic() + pause_s > began + patience_s:
                    raise
            time.sleep(pause_s * (0.5 + self._random.random() / 2))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def address_of(text: str) -> tuple[str, int]:
    """`host:port` as a pair. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no broker: write host:port")
    return host.strip("[]"), int(port)


def refuse(code: int, doing: str, message: str | None = None) -> None:
    """Raise RequestError unless the code says that all is well."""
    if code:
        raise RequestError(code, doing, message)
