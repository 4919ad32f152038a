"""The brokers of one run: how they begin, and how they end whatever state they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.nemesis.history import Failed
from tidelog.cluster import BrokerCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


class Unhealthy(Exception):
    """The brokers did not become healthy in time; the text says what is not well."""


def started(
    directory: Path,
    brokers: int,
    settings: Mapping[str, object],
    topics: Mapping[str, dict[str, str]],
    partitions: int,
    **given: Any,
) -> BrokerCluster:
    """Starts brokers and creates topics, with a replica on each; `given` is what BrokerCluster takes.

    The clocks of the brokers run with the machine's until a fault moves them.
    """
    cluster = BrokerCluster(directory, brokers, settings, clock="manual", **given)
    try:
        for broker in range(1, brokers + 1):
            cluster.clock(broker).run(1)
        create_topics(
            cluster.bootstrap,
            (NewTopic(name, partitions, brokers, config=own) for name, own in topics.items()),
        )
    except BaseException:
        cluster.close()
        raise
    return cluster


def create_topics(bootstrap: str, topics: Iterable[NewTopic]) -> None:
    """Creates topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(list(topics)).values():
        created.result(30)


def stop(cluster: BrokerCluster) -> Iterator[Failed]:
    """Stops the brokers; yields what is wrong with how they ended, and with what they logged."""
    for number, broker in reversed(list(enumerate(cluster, 1))):
        status = broker.stop()
        if status:
            yield Failed(f"broker {number}", f"it stopped with status {status}")
    for what in _complaints(cluster):
        yield Failed("log", what)


def end(cluster: BrokerCluster, *, is_broken: bool) -> None:
    """Ends the brokers and frees what they used; if anything `is_broken`, they are killed."""
    for broker in cluster:
        if is_broken:  # it may be in any state
            broker.kill()
    cluster.close()


def _complaints(cluster: BrokerCluster) -> Iterator[str]:
    """Yields what no broker may log, whatever goes wrong around it."""
    for number, broker in enumerate(cluster, 1):
        lines = broker.log().splitlines()
        for position, line in enumerate(lines):
            if "Traceback" in line or "acknowledged records lost" in line:
                yield f"broker {number}: " + " | ".join(lines[max(position - 1, 0) : position + 30])
