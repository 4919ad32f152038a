"""Administration with kafka-python's KafkaAdminClient, 1.4 to 3.x; its methods were renamed in 3.0."""

from __future__ import annotations

import sys

import lines
from kafka import TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.errors import KafkaError, for_code

RENAMED = hasattr(KafkaAdminClient, "describe_groups")
# In 2.3 half of it is how long a broker may be silent when it is asked what it serves.
SILENCE = "api_version_auto_timeout_ms"
PATIENT = {SILENCE: 120_000} if SILENCE in KafkaAdminClient.DEFAULT_CONFIG else {}


def refused(results):
    """Raise the first error there is; rows of a name and a code, or objects that have one."""
    for one in results:
        code = one[1] if isinstance(one, tuple) else one.error_code
        if code:
            raise for_code(code)


def create_topic(client, command):
    topic = NewTopic(command["topic"], command["partitions"], 1, topic_configs=command["configs"])
    client.create_topics([topic])


def create_partitions(client, command):
    client.create_partitions({command["topic"]: NewPartitions(command["partitions"])})


def describe_configs(client, command):
    resource = ConfigResource(ConfigResourceType.TOPIC, command["topic"])
    if RENAMED:
        found = client.describe_configs([resource], config_filter="all")
        values = {name: one["value"] for name, one in found["topic"][command["topic"]].items()}
    else:
        answers = client.describe_configs([resource])
        answers = answers if isinstance(answers, list) else [answers]  # 1.4: one
        rows = [row for answer in answers for row in answer.resources]
        refused((row[3], row[0]) for row in rows)
        values = {entry[0]: entry[1] for row in rows for entry in row[4]}
    return {"configs": {name: values[name] for name in command["configs"]}}


def alter_configs(client, command):
    resource = ConfigResource(ConfigResourceType.TOPIC, command["topic"], command["configs"])
    answer = client.alter_configs([resource])
    if not RENAMED:
        refused((row[3], row[0]) for row in answer.resources)


def delete_records(client, command):
    place = TopicPartition(command["topic"], command["partition"])
    client.delete_records({place: command["offset"]})


def list_offsets(client, command):
    place = TopicPartition(command["topic"], command["partition"])
    found = [client.list_partition_offsets({place: time})[place] for time in command["timestamps"]]
    return {"offsets": [one.offset for one in found]}


def list_groups(client, _command):
    if RENAMED:
        return {"groups": [one["group_id"] for one in client.list_groups()]}
    return {"groups": [name for name, _kind in client.list_consumer_groups()]}


def describe_group(client, command):
    group = command["group"]
    if RENAMED:
        found = client.describe_groups([group])[group]
        return {"state": found["group_state"], "members": len(found["members"])}
    (found,) = client.describe_consumer_groups([group])
    if not hasattr(found, "state"):  # 1.4: a row of the answer
        _error, _group, state, _kind, _protocol, members, *_ = found
        return {"state": state, "members": len(members)}
    return {"state": found.state, "members": len(found.members)}


def delete_group(client, command):
    delete = client.delete_groups if RENAMED else client.delete_consumer_groups
    answer = delete([command["group"]])
    for outcome in answer.values() if isinstance(answer, dict) else [one[1] for one in answer]:
        if isinstance(outcome, KafkaError):
            raise outcome
        if isinstance(outcome, type) and outcome.errno:
            raise outcome


def delete_topic(client, command):
    client.delete_topics([command["topic"]])


def run(command):
    """One command: the function above of that name."""
    client = KafkaAdminClient(bootstrap_servers=sys.argv[1], **PATIENT)
    try:
        yield globals()[command["what"]](client, command) or {}
    except KafkaError as error:
        yield {"error": lines.failure(error.errno, type(error).__name__, error)}
    finally:
        client.close()
