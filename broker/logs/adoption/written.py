"""The file of an inventory: one JSON object, which is copied from a broker's machine to another one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.logs.adoption.inventory import FoundLog, Inventory
from tidelog.broker.logs.adoption.kafka_metadata import KafkaMetadata, KafkaPartition, KafkaTopic
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
    metadata = None if inventory.metadata is None else _metadata_fields(inventory.metadata)
    fields = {"version": _VERSION, **inventory._asdict(), "logs": logs, "metadata": metadata}
    path.touch(0o600)
    path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def read_inventory(path: Path) -> Inventory:
    """Returns the inventory in a file. Raises OSError, and AdoptionError if it holds none."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["version"] != _VERSION:
            raise AdoptionError(f"{path} is an inventory of another version: take it anew")
        return Inventory(
            str(fields["cluster_id"]),
            int(fields["broker"]),
            tuple(map(str, fields["directories"])),
            {(each["topic"], int(each["partition"])): _log(each) for each in fields["logs"]},
            None if fields["metadata"] is None else _metadata(fields["metadata"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise AdoptionError(
            f"{path} is no inventory of 'tidelog adopt inspect': {error!r}"
        ) from None


def _log(fields: dict[str, Any]) -> FoundLog:
    return FoundLog(
        None if fields["topic_id"] is None else read_id(fields["topic_id"]),
        int(fields["start_offset"]),
        int(fields["end_offset"]),
        int(fields["last_epoch"]),
        int(fields["begun_epoch"]),
        int(fields["high_watermark"]),
        bool(fields["has_append_times"]),
    )


def _metadata_fields(metadata: KafkaMetadata) -> dict[str, Any]:
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


def _metadata(fields: dict[str, Any]) -> KafkaMetadata:
    topics = tuple(
        KafkaTopic(
            str(topic["name"]),
            read_id(topic["id"]),
            _configs(topic["configs"]),
            {int(at): _partition(each) for at, each in topic["partitions"].items()},
        )
        for topic in fields["topics"]
    )
    return KafkaMetadata(
        int(fields["epoch"]),
        int(fields["end_offset"]),
        int(fields["next_producer_id"]),
        topics,
        {str(name): _configs(configs) for name, configs in fields["broker_configs"].items()},
    )


def _configs(fields: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.items()}


def _partition(fields: dict[str, Any]) -> KafkaPartition:
    return KafkaPartition(
        tuple(map(int, fields["replicas"])),
        tuple(map(int, fields["isr"])),
        tuple(map(int, fields["elr"])),
        int(fields["leader_epoch"]),
        int(fields["partition_epoch"]),
        bool(fields["is_moving"]),
    )
