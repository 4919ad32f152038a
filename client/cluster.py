"""What a client knows of a cluster: brokers, leaders, coordinators. Pure: it learns from answers.

What is known may be stale: after a failure `forget` it, and the next question asks the cluster again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client.errors import RequestError, raise_for_code
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP: Final = 0
TRANSACTION: Final = 1

Address = tuple[str, int]  # host and port


class PartitionInfo(NamedTuple):
    """Who leads a partition (-1: nobody), and how many replicas there are."""

    leader: int
    leader_epoch: int
    replica_count: int


class TopicInfo(NamedTuple):
    """A topic and its partitions, in order; `topic_id` is empty where the broker has no ids."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    topic_id: str = ""


class ClusterState:
    """The cluster that the `bootstrap` addresses belong to."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self.bootstrap = tuple(bootstrap)
        self.nodes: dict[int, Address] = {}
        self.controller = -1
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def forget(self) -> None:
        """Forget leaders, coordinators and the controller; the brokers' addresses stay."""
        self._topics.clear()
        self._coordinators.clear()
        self.controller = -1

    def any_addresses(self) -> tuple[Address, ...]:
        """Every address that may answer, best first, each once."""
        return tuple(dict.fromkeys((*self.nodes.values(), *self.bootstrap)))

    def knows(self, topic: str) -> bool:
        """Whether the partitions of a topic are known."""
        return topic in self._topics

    def learn_metadata(self, answer: Any) -> dict[str, TopicInfo]:
        """Learn from a Metadata answer; returns its topics. Raises RequestError for a refused one."""
        self.nodes = {one.node_id: (one.host, one.port) for one in answer.brokers}
        self.controller = answer.controller_id
        found = {}
        for topic in answer.topics:
            raise_for_code(topic.error_code, f"topic {topic.name}")
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

    def leader(self, topic: str, partition: int) -> Address:
        """The leader of a partition of a known topic.

        Raises RequestError for a partition that does not exist or has no leader; what is known is
        forgotten then.
        """
        known = self._topics[topic]
        if not 0 <= partition < len(known.partitions):
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic}-{partition}",
                f"topic {topic} has {len(known.partitions)} partitions",
            )
        address = self.nodes.get(known.partitions[partition].leader)
        if address is None:
            self.forget()
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return address

    def coordinator(self, kind: int, key: str) -> Address | None:
        """The coordinator of a group or a transactional id, if it is known."""
        return self._coordinators.get((kind, key))

    def learn_coordinator(self, kind: int, key: str, answer: Any) -> Address:
        """Learn from a FindCoordinator answer. Raises RequestError."""
        what = "transactional id" if kind == TRANSACTION else "group"
        raise_for_code(answer.error_code, f"coordinator of {what} {key}", answer.error_message)
        address = self._coordinators[kind, key] = (answer.host, answer.port)
        return address


def address_of(text: str) -> Address:
    """`host:port` as a pair. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no broker: write host:port")
    return host.strip("[]"), int(port)


def addresses_of(brokers: str | Sequence[str]) -> tuple[Address, ...]:
    """`host:port,host:port`, or a sequence of such, as pairs. Raises ValueError."""
    return tuple(map(address_of, brokers.split(",") if isinstance(brokers, str) else brokers))
