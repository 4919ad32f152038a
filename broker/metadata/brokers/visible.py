"""The brokers and leaders that clients of one listener can reach in a cluster.

A broker is visible if it has a session, is not fenced, and has the client's listener. For a leader that is
not visible the client gets LEADER_NOT_AVAILABLE or LISTENER_NOT_FOUND, and retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.image import Image, Topic

NO_PORT = -1


class VisibleBroker(NamedTuple):
    """A broker and the address of its listener. One without a session has no address."""

    broker: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class VisiblePartition(NamedTuple):
    """The leader that clients can reach, or NO_LEADER, and the replicas that cannot serve."""

    leader: int
    offline: list[int]


def visible_brokers(image: Image, listener: str) -> dict[int, VisibleBroker]:
    """Returns the brokers that clients of a listener can reach, by broker id, in ascending order."""
    return {
        each.broker: each for each in _with_address(image, listener).values() if not each.is_fenced
    }


def departed_brokers(gone: Iterable[LiveBroker], listener: str) -> list[VisibleBroker]:
    """Returns brokers that had this listener until their sessions ended, but for those that stopped."""
    return [
        _at(live.broker, live, endpoint)
        for live in gone
        if not live.record.is_stopping and not live.record.is_fenced
        for endpoint in live.record.endpoints
        if endpoint.listener == listener
    ]


def fenced_brokers(image: Image, listener: str) -> list[VisibleBroker]:
    """Returns the registered brokers that are fenced, also those without a session."""
    addressed = _with_address(image, listener)
    fenced = [each for each in addressed.values() if each.is_fenced]
    gone = image.registrations.keys() - image.brokers.keys()
    return fenced + [VisibleBroker(broker, "", NO_PORT, None, True) for broker in sorted(gone)]


def controller_of(image: Image, visible: Mapping[int, VisibleBroker], me: int) -> int:
    """Returns the broker to which clients send changes of the cluster; -1 if none is visible.

    Any broker can make such changes, so this one is returned while there is no controller.
    """
    found = me if image.controller is None else image.controller.broker
    if found not in visible:
        found = me
    return found if found in visible else NO_LEADER


def visible_partition(
    image: Image, visible: Mapping[int, VisibleBroker], topic: Topic, index: int
) -> VisiblePartition:
    """Returns the reachable leader and the offline replicas of a partition, also those with a failed log."""
    record = topic.assignments[index]
    failed = _failed(image, topic, index) if image.offline else ()
    return VisiblePartition(
        record.leader if record.leader in visible else NO_LEADER,
        [broker for broker in record.replicas if broker not in visible or broker in failed],
    )


def _failed(image: Image, topic: Topic, index: int) -> set[int]:
    """Returns the brokers whose logs of a partition have failed."""
    return {
        broker
        for broker, offline in image.offline.items()
        if index in offline.record.partitions.get(topic.topic_id, ())
    }


def _with_address(image: Image, listener: str) -> dict[int, VisibleBroker]:
    """Returns the brokers that have a session and this listener."""
    return {
        broker: _at(broker, live, endpoint)
        for broker, live in sorted(image.brokers.items())
        for endpoint in live.record.endpoints
        if endpoint.listener == listener
    }


def _at(broker: int, live: LiveBroker, endpoint: Endpoint) -> VisibleBroker:
    record = live.record
    return VisibleBroker(broker, endpoint.host, endpoint.port, record.rack, record.is_fenced)
