"""The file of an inventory: one object of JSON, which goes from a broker's machine to another one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.broker.adoption.errors import AdoptionError
from tidelog.broker.adoption.inventory import FoundLog, Inventory
from tidelog.broker.adoption.kafka_metadata import KafkaMetadata, KafkaPartition, KafkaTopic
from tidelog.broker.metadata.names import read_id, written_id

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = 2


def write_inventory(path: Path, inventory: Inventory) -> None:
    """Writes an inventory into a file. Raises OSError."""
    logs = [
        {
            "topic": topic,
            "partition": index,
            **log._asdict(),
            "topic_id": None if log.topic_id is None else written_id(log.topic_id),
        }
        for (topic, index), log in sorted(inventory.logs.items())
    ]
    metadata = None if inventory.metadata is None else _metadata_said(inventory.metadata)
    said = {"version": _VERSION, **inventory._asdict(), "logs": logs, "metadata": metadata}
    path.touch(0o600)
    path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def read_inventory(path: Path) -> Inventory:
    """Returns the inventory in a file. Raises OSError, and AdoptionError if it holds none."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said["version"] != _VERSION:
            raise AdoptionError(f"{path} is an inventory of another version: take it anew")
        return Inventory(
            str(said["cluster_id"]),
            int(said["broker"]),
            tuple(map(str, said["directories"])),
            {(each["topic"], int(each["partition"])): _log(each) for each in said["logs"]},
            None if said["metadata"] is None else _metadata(said["metadata"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise AdoptionError(
            f"{path} is no inventory of 'tidelog adopt inspect': {error!r}"
        ) from None


def _log(said: dict[str, Any]) -> FoundLog:
    return FoundLog(
        None if said["topic_id"] is None else read_id(said["topic_id"]),
        int(said["start_offset"]),
        int(said["end_offset"]),
        int(said["last_epoch"]),
        int(said["begun_epoch"]),
        int(said["high_watermark"]),
        bool(said["has_append_times"]),
    )


def _metadata_said(metadata: KafkaMetadata) -> dict[str, Any]:
    topics = [
        {
            "name": topic.name,
            "id": written_id(topic.topic_id),
            "configs": topic.configs,
            "partitions": {str(at): each._asdict() for at, each in topic.partitions.items()},
        }
        for topic in metadata.topics
    ]
    of_brokers = {name: dict(configs) for name, configs in metadata.broker_configs.items()}
    return {**metadata._asdict(), "topics": topics, "broker_configs": of_brokers}


def _metadata(said: dict[str, Any]) -> KafkaMetadata:
    topics = tuple(
        KafkaTopic(
            str(topic["name"]),
            read_id(topic["id"]),
            _configs(topic["configs"]),
            {int(at): _partition(each) for at, each in topic["partitions"].items()},
        )
        for topic in said["topics"]
    )
    return KafkaMetadata(
        int(said["epoch"]),
        int(said["end_offset"]),
        int(said["next_producer_id"]),
        topics,
        {str(name): _configs(configs) for name, configs in said["broker_configs"].items()},
    )


def _configs(said: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in said.items()}


def _partition(said: dict[str, Any]) -> KafkaPartition:
    return KafkaPartition(
        tuple(map(int, said["replicas"])),
        tuple(map(int, said["isr"])),
        tuple(map(int, said["elr"])),
        int(said["leader_epoch"]),
        int(said["partition_epoch"]),
        bool(said["is_moving"]),
    )
