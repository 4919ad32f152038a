"""Topics of the matrix on the broker's side: made, changed, asked for their ends, looked at on disk.

The client used for it is confluent-kafka's administration; nothing here is under test itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.clients.clients import ALL_CODECS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.clients.expectations import Rules, Topic

PROBE_PARTITION = len(ALL_CODECS)  # beside one partition per codec
END_OFFSETS_TIMEOUT_S = 60.0
CREATED_AT_ONCE = 20
CREATE_TIMEOUT_S = 100.0
REPLICAS = -1  # what the brokers give by default: one, and three where there are three brokers


def settings_of(topic: Topic, broker: Rules) -> dict[str, str]:
    """The topic's configuration."""
    settings = {"message.timestamp.type": topic.timestamp_type}
    if (version := broker.format_versions[topic.magic]) is not None:
        settings["message.format.version"] = version
    return settings


def create_topics(server: str, topics: Iterable[Topic], broker: Rules) -> None:
    """Create the topics through CreateTopics with their configuration."""
    wanted = [
        NewTopic(
            topic.name,
            PROBE_PARTITION + 1,
            REPLICAS,
            config={**settings_of(topic, broker), "retention.ms": "-1"},
        )
        for topic in topics
    ]
    create(server, wanted)


def create(server: str, wanted: Sequence[NewTopic]) -> None:
    """Create topics, some at a time: each is a number of files, for which a busy machine takes its time."""
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    within_s = CREATE_TIMEOUT_S
    for first in range(0, len(wanted), CREATED_AT_ONCE):
        some = list(wanted[first : first + CREATED_AT_ONCE])
        answers = admin.create_topics(some, operation_timeout=within_s, request_timeout=within_s)
        for future in answers.values():
            future.result(2 * within_s)


def change_topic(server: str, topic: Topic, broker: Rules) -> None:
    """Give the topic the settings of its next stage, through IncrementalAlterConfigs."""
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings_of(topic, broker).items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource], request_timeout=60).values():
        future.result(80)
    time.sleep(broker.settle_s)  # 0 for a broker that answers when it is done


def probe_ends(server: str, topics: Sequence[Topic]) -> dict[str, int]:
    """The end offset of every topic's probe partition."""
    client = Consumer({"bootstrap.servers": server, "group.id": "matrix-ends", "log_level": 0})
    ends: dict[str, int] = {}
    deadline = time.monotonic() + END_OFFSETS_TIMEOUT_S
    try:
        for topic in topics:
            while topic.name not in ends:
                place = TopicPartition(topic.name, PROBE_PARTITION)
                try:
                    ends[topic.name] = client.get_watermark_offsets(place, timeout=30)[1]
                except KafkaException:
                    # A new partition's leader may not have taken it over yet.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
    finally:
        client.close()
    return ends


def stored_formats(log_dir: Path, topics: Iterable[str]) -> dict[str, set[int]]:
    """The message formats found on disk per topic, read from the segment files themselves.

    Every batch or message begins with an offset of 8 bytes and a size of 4; the byte of the format
    is the 17th in all of them.
    """
    found: dict[str, set[int]] = {topic: set() for topic in topics}
    for segment in log_dir.rglob("*.log"):
        topic = segment.parent.name.rpartition("-")[0]
        if topic not in found:
            continue
        data = segment.read_bytes()
        position = 0
        while position + 17 <= len(data):
            found[topic].add(data[position + 16])
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found
