"""The start of the topics: settings, logs and metadata, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.adoption import adopt_logs
from broker.topics.leadership import claim_partitions

if TYPE_CHECKING:
    from broker.node import Node


async def open_topics(node: Node) -> None:
    """Opens the log store, makes the logs match the metadata, and adopts logs without metadata.

    The metadata must be open, and the log directories locked if another process might use them.
    Raises InvalidConfig if the broker's settings are inconsistent, LogDirectoryError, and
    KafkaStorageError. The caller closes the store in any case.
    """
    await node.topics.keep_basis()
    image = node.metadata.image
    node.settings.use(image)
    node.store.default_config = node.config.topic_defaults
    node.store.open(node.clock.now_ms(), node.settings.served_topics(image))
    if node.cluster is not None:  # others have a say in who leads, and in what is a topic
        await node.topics.start()
        return
    await claim_partitions(node.metadata, node.store, node.pools.reads)
    await node.topics.start()
    await adopt_logs(node)
