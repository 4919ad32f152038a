"""The same frame by a fast path and by the ordinary path, on two nodes: the same answers, the same logs."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace

from tidelog.broker.boot import Services
from tidelog.broker.clock import ManualClock
from tidelog.broker.metadata.image import Image, Topic
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network import routes
from tidelog.broker.network.answers import CloseConnection, Pending
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.config import load, topic_config
from tidelog.protocol.message import read_request_header
from tidelog.storage.directory.store import LogStore

NOW_MS = 1_700_000_000_000

CONNECTION = SimpleNamespace(
    client_id=None,
    software="",
    is_over_limit=False,
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


@contextmanager
def node_with(directory, topics, settings=None, **more):
    """A node that leads topics, {name: (id, partitions)}, with settings for some of them."""
    config = load(None, {}, {"log.dirs": str(directory), **more})
    store = LogStore([directory], default_config=config.topic_defaults)
    store.open(NOW_MS)
    broker = config.cluster.node_id
    metadata = SimpleNamespace(image=image_of(broker, topics), node_id=broker)
    node = Services(config, ManualClock(NOW_MS), store, metadata, Metrics())
    for name, (topic_id, partitions) in topics.items():
        own = topic_config(config, (settings or {}).get(name, {}))
        for index in range(partitions):
            store.create_partition(name, topic_id, index, own, NOW_MS)
    yield node
    node.pools.stop()
    store.close()


def damaged(frame):
    """The body of a request cut anywhere, with each byte changed, and with more behind it."""
    start = read_request_header(frame).body_offset
    yield from (frame[:end] for end in range(start, len(frame)))
    for position in range(start, len(frame)):
        for value in (0, 1, 2, 127, 128, 255):
            yield frame[:position] + bytes((value,)) + frame[position + 1 :]
    yield frame + b"more"


def both(monkeypatch, module, short, ordinary, frame):
    """Return what both answer, and whether `short` took the shortcut of the module."""
    taken = []
    real = module.shortcut

    def shortcut(*arguments):
        taken.append(real(*arguments))
        return taken[-1]

    with monkeypatch.context() as patch:
        patch.setattr(module, "shortcut", shortcut)
        routes.wrap(None)  # routes are made anew
        first = answer(short, frame)
    try:
        routes.wrap(lambda route: route._replace(shortcut=None))
        second = answer(ordinary, frame)
    finally:
        routes.wrap(None)
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
    parts = dispatch(node, CONNECTION, frame)
    while isinstance(parts, Pending):
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
