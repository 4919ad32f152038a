"""The same frame by a fast path and by the ordinary path, on two nodes: the same answers, the same logs."""

from __future__ import annotations

import asyncio
from types import MappingProxyType, SimpleNamespace

from tidelog.broker.metadata.image import Image, Topic
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.network import dispatch as dispatching
from tidelog.broker.network.context import CloseConnection, Later
from tidelog.broker.security.session import ANONYMOUS, Session

CONNECTION = SimpleNamespace(
    client_id=None,
    software="",
    is_guest=False,
    session=Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT"),
)


def image_of(node_id, topics):
    """The metadata of topics, {name: (id, partitions)}, that one broker leads."""
    known = {
        name: Topic(name, topic_id, (PartitionRecord.led_by(node_id),) * partitions, {})
        for name, (topic_id, partitions) in topics.items()
    }
    by_id = {topic.topic_id: topic for topic in known.values()}
    return Image(1, "c", MappingProxyType(known), MappingProxyType(by_id), {}, 0, {})


def both(monkeypatch, module, short, ordinary, frame):
    """Return what both answer, and whether `short` took the shortcut of the module."""
    taken = []
    with monkeypatch.context() as patch:
        real = module.shortcut

        def shortcut(*arguments):
            taken.append(real(*arguments))
            return taken[-1]

        patch.setattr(dispatching, "_routes", {})
        patch.setattr(module, "shortcut", shortcut)
        first = answer(short, frame)
    with monkeypatch.context() as patch:
        patch.setattr(dispatching, "_routes", {})
        patch.setattr(dispatching, "_SHORTCUTS", {})
        second = answer(ordinary, frame)
    assert first == second
    assert logs(short) == logs(ordinary)
    assert counters(short) == counters(ordinary)
    return first, bool(taken) and taken[0] is not None


def answer(node, frame):
    """What goes back over the wire (None: nothing), or why the connection is closed."""
    try:
        parts = asyncio.run(dispatched(node, frame))
    except CloseConnection as reason:
        return str(reason)
    return None if parts is None else b"".join(parts)


async def dispatched(node, frame):
    parts = dispatching.dispatch(node, CONNECTION, frame)
    while isinstance(parts, Later):
        await parts.happened
        parts = parts.finish()
    return parts if parts is None or isinstance(parts, list) else await parts


def logs(node):
    return {
        (partition.topic, partition.index): [
            segment.path.read_bytes() for segment in partition.segments
        ]
        for partition in node.store.partitions()
    }


def counters(node):
    metrics = node.metrics
    topics = {
        name: (counts.messages_in, counts.bytes_in, counts.duplicates)
        for name, counts in metrics.topics.items()
    }
    return topics, dict(metrics.requests), dict(metrics.failed_produces), metrics.unexpected_errors
