"""Administration with aiokafka: what its AIOKafkaAdminClient has."""

from __future__ import annotations

import sys

import lines
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code


async def create_topic(client, command):
    topic = NewTopic(command["topic"], command["partitions"], 1, topic_configs=command["configs"])
    answer = await client.create_topics([topic])
    refused(answer.topic_errors)


async def create_partitions(client, command):
    answer = await client.create_partitions(
        {command["topic"]: NewPartitions(command["partitions"])}
    )
    refused(answer.topic_errors)


async def describe_configs(client, command):
    resource = ConfigResource(ConfigResourceType.TOPIC, command["topic"])
    values = {}
    for answer in await client.describe_configs([resource]):
        for _code, _message, _kind, _name, entries in answer.resources:
            values |= {entry[0]: entry[1] for entry in entries}
    return {"configs": {name: values[name] for name in command["configs"]}}


async def alter_configs(client, command):
    resource = ConfigResource(ConfigResourceType.TOPIC, command["topic"], command["configs"])
    for answer in await client.alter_configs([resource]):
        refused((name, code) for code, _message, _kind, name in answer.resources)


async def delete_records(client, command):
    place = TopicPartition(command["topic"], command["partition"])
    await client.delete_records({place: RecordsToDelete(before_offset=command["offset"])})


async def list_groups(client, _command):
    return {"groups": [name for name, _kind in await client.list_consumer_groups()]}


async def describe_group(client, command):
    (answer,) = await client.describe_consumer_groups([command["group"]])
    _code, _group, state, _kind, _protocol, members, *_ = answer.groups[0]
    return {"state": state, "members": len(members)}


async def delete_topic(client, command):
    answer = await client.delete_topics([command["topic"]])
    refused(answer.topic_error_codes)


def refused(results):
    """Raise the first error there is; rows of a name and a code."""
    for _name, code, *_ in results:
        if code:
            raise for_code(code)


async def run(command):
    """One command: the function above of that name."""
    client = AIOKafkaAdminClient(bootstrap_servers=sys.argv[1])
    await client.start()
    try:
        return [await globals()[command["what"]](client, command) or {}]
    except KafkaError as error:
        return [{"error": lines.failure(error.errno, type(error).__name__, error)}]
    finally:
        await client.close()
