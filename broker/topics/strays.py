"""Logs of topics that are not there: they are renamed to `-stray`, as Kafka does, and never deleted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.storage.directory.store import LogStore

log = logging.getLogger("tidelog.topics")


def set_aside(store: LogStore, name: str, index: int) -> None:
    """Renames a log that names another topic to `-stray`, and logs it. Raises KafkaStorageError."""
    away = store.set_aside(name, index)
    log.error(
        "stray log renamed",
        extra={"log": f"{name}-{index}", "directory": str(away)},
    )


def set_aside_unknown(store: LogStore, image: Image) -> None:
    """Sets aside the logs whose topic id no topic has, in a thread.

    For a broker of several: what it finds may be a topic that was deleted while it was away, or a
    copy from elsewhere. A log that waits for its deletion, or names no topic, stays where it is. So
    does one that cannot be read or renamed now.
    """
    for name, index in store.names():
        try:
            topic_id = store.topic_id(name, index)
            if topic_id is None or topic_id in image.deletions:
                continue
            topic = image.topics_by_id.get(topic_id)
            if topic is None or topic.name != name:
                set_aside(store, name, index)
        except KafkaStorageError as error:
            log.error(
                "stray log not renamed",
                extra={"log": f"{name}-{index}", "reason": error.message},
            )
