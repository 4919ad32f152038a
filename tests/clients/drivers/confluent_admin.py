"""Administration with confluent-kafka's AdminClient: all of it through librdkafka."""

from __future__ import annotations

import sys

import lines
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

TIMEOUT_S = 60


def only(futures):
    """The result of the one thing that was asked for."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def create_topic(client, command):
    topic = NewTopic(command["topic"], command["partitions"], 1, config=command["configs"])
    only(client.create_topics([topic]))


def create_partitions(client, command):
    only(client.create_partitions([NewPartitions(command["topic"], command["partitions"])]))


def describe_configs(client, command):
    found = only(client.describe_configs([ConfigResource(ResourceType.TOPIC, command["topic"])]))
    return {"configs": {name: found[name].value for name in command["configs"]}}


def alter_configs(client, command):
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in command["configs"].items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, command["topic"], incremental_configs=entries)
    only(client.incremental_alter_configs([resource]))


def delete_records(client, command):
    place = TopicPartition(command["topic"], command["partition"], command["offset"])
    only(client.delete_records([place]))


def list_offsets(client, command):
    place = TopicPartition(command["topic"], command["partition"])
    special = {lines.START: OffsetSpec.earliest(), lines.END: OffsetSpec.latest()}
    specs = [special.get(t) or OffsetSpec.for_timestamp(t) for t in command["timestamps"]]
    return {"offsets": [only(client.list_offsets({place: spec})).offset for spec in specs]}


def list_groups(client, _command):
    found = client.list_consumer_groups().result(TIMEOUT_S)
    return {"groups": [group.group_id for group in found.valid]}


def describe_group(client, command):
    found = only(client.describe_consumer_groups([command["group"]]))
    return {"state": found.state.name.title(), "members": len(found.members)}


def delete_group(client, command):
    only(client.delete_consumer_groups([command["group"]]))


def delete_topic(client, command):
    only(client.delete_topics([command["topic"]]))


def run(command):
    """One command: the function above of that name."""
    client = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
    try:
        yield globals()[command["what"]](client, command) or {}
    except KafkaException as error:
        fault = error.args[0]
        yield {"error": lines.failure(fault.code(), fault.name(), fault.str())}
