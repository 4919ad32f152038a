"""A client's knowledge of a cluster: brokers, leaders, coordinators. It does no I/O.

It learns from answers, and may be out of date. After a failure call `forget`; then the next lookup
asks the cluster again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.errors import RequestError, raise_for_code
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

GROUP: Final = 0
TRANSACTION: Final = 1

Address = tuple[str, int]  # host and port


class PartitionInfo(NamedTuple):
    """The leader of a partition (-1: none), and the number of replicas."""

    leader: int
    leader_epoch: int
    replica_count: int


class TopicInfo(NamedTuple):
    """A topic and its partitions, in order; `topic_id` is empty if the broker has no ids."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    topic_id: str = ""


class ClusterState:
    """The known state of the cluster of the `bootstrap` addresses."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self.bootstrap = tuple(bootstrap)
        self.nodes: dict[int, Address] = {}
        self.controller = -1
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._doubts: dict[Address, int] = {}
        self._last_heard: Address | None = None
        self._told_by: Address | None = None

    def heard(self, address: Address) -> None:
        """Records who sends the answer that is read next."""
        self._last_heard = address

    def doubt(self, address: Address) -> None:
        """Puts a broker behind all others for questions that any broker can answer."""
        self._doubts[address] = max(self._doubts.values(), default=0) + 1

    def by_standing(
        self, addresses: Iterable[Address], is_open: Callable[[Address], bool]
    ) -> list[Address]:
        """Returns the order to try brokers in: those never doubted, then by the last doubt.

        Among brokers never doubted, the ones with an open connection come first.
        """
        return sorted(addresses, key=lambda one: (self._doubts.get(one, 0), not is_open(one)))

    def forget(self) -> None:
        """Forgets leaders, coordinators and the controller; the addresses of brokers stay.

        The broker that named them is doubted: one that is cut off from the metadata names the old
        leaders again and again, and another broker should be asked.
        """
        if self._told_by is not None:
            self.doubt(self._told_by)
            self._told_by = None
        self._topics.clear()
        self._coordinators.clear()
        self.controller = -1

    def any_addresses(self) -> tuple[Address, ...]:
        """Returns every address that may answer, best first, each once."""
        return tuple(dict.fromkeys((*self.nodes.values(), *self.bootstrap)))

    def knows(self, topic: str) -> bool:
        """Returns whether the partitions of a topic are known."""
        return topic in self._topics

    def learn_metadata(self, answer: Any) -> dict[str, TopicInfo]:
        """Stores a Metadata answer; returns its topics. Raises RequestError for a refused topic."""
        self._told_by = self._last_heard
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
        """Returns the leader of a partition of a known topic.

        Raises RequestError for a partition that does not exist, or that has no known leader. In the
        second case it also forgets the leaders that it knows.
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
        """Returns the coordinator of a group or a transactional id, if it is known."""
        return self._coordinators.get((kind, key))

    def learn_coordinator(self, kind: int, key: str, answer: Any) -> Address:
        """Stores a FindCoordinator answer; returns the address. Raises RequestError."""
        self._told_by = self._last_heard
        what = "transactional id" if kind == TRANSACTION else "group"
        raise_for_code(answer.error_code, f"coordinator of {what} {key}", answer.error_message)
        address = self._coordinators[kind, key] = (answer.host, answer.port)
        return address


def address_of(text: str) -> Address:
    """Returns `host:port` as a pair. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not a broker: write host:port")
    return host.strip("[]"), int(port)


def addresses_of(brokers: str | Sequence[str]) -> tuple[Address, ...]:
    """Returns `host:port,host:port`, or a sequence of such, as pairs. Raises ValueError."""
    return tuple(map(address_of, brokers.split(",") if isinstance(brokers, str) else brokers))
