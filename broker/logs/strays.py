"""Renames logs of topics that do not exist to `-stray`, as Kafka does; they are never deleted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.storage.directory.store import LogStore

log = logging.getLogger("tidelog.topics")


def rename_to_stray(store: LogStore, name: str, index: int) -> None:
    """Renames a log that names another topic to `-stray`, and logs it. Raises KafkaStorageError."""
    away = store.set_aside(name, index)
    log.error(
        "stray log renamed",
        extra={"log": f"{name}-{index}", "directory": str(away)},
    )


def rename_unknown_logs(store: LogStore, image: Image) -> None:
    """Renames the logs whose topic id no topic has to `-stray`, in a thread.

    Used where brokers share the metadata: such a log may be of a topic that was deleted while this
    broker was down, or a copy from elsewhere. A log that is about to be deleted, or has no topic id, is not
    renamed. A log that cannot be read or renamed now is logged and stays.
    """
    for name, index in store.names():
        try:
            topic_id = store.topic_id(name, index)
            if topic_id is None or topic_id in image.deletions:
                continue
            topic = image.topics_by_id.get(topic_id)
            if topic is None or topic.name != name:
                rename_to_stray(store, name, index)
        except KafkaStorageError as error:
            log.error(
                "log not checked or renamed as stray",
                extra={"log": f"{name}-{index}", "reason": error.message},
            )
