"""Requests that the broker's tests send again and again, as plain calls on a raw connection.

Each gives back the part of the answer a test is about, as the wire client of the oracle tests decodes
it (with kafka-python's schemas, not the broker's). Batches come from the oracle tests' own builder,
which can lie about every field.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any

from tests.oracle import recordset
from tests.oracle.cases.admin_apis import ACL, ACL_FILTER
from tests.oracle.recordset import Rec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracle import wire

NO_ID = str(uuid.UUID(int=0))
TOPIC, BROKER = 2, 4

# API -> highest version served; the lowest is 0 for all of them.
VERSIONS = {
    "Produce": 13,
    "Fetch": 18,
    "ListOffsets": 11,
    "Metadata": 13,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 4,
    "EndTxn": 5,
    "WriteTxnMarkers": 1,
    "TxnOffsetCommit": 5,
    "FindCoordinator": 6,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "DescribeGroups": 6,
    "DeleteGroups": 2,
    "OffsetDelete": 0,
    "ListGroups": 5,
    "SaslHandshake": 1,
    "ApiVersions": 4,
    "CreateTopics": 7,
    "DeleteTopics": 6,
    "DeleteRecords": 2,
    "InitProducerId": 5,
    "OffsetForLeaderEpoch": 4,
    "DescribeConfigs": 4,
    "IncrementalAlterConfigs": 1,
    "AlterConfigs": 2,
    "CreatePartitions": 3,
    "DescribeAcls": 3,
    "CreateAcls": 3,
    "DeleteAcls": 3,
    "AlterReplicaLogDirs": 2,
    "DescribeLogDirs": 4,
    "SaslAuthenticate": 2,
    "ElectLeaders": 2,
    "AlterPartitionReassignments": 0,
    "ListPartitionReassignments": 0,
    "DescribeClientQuotas": 1,
    "AlterClientQuotas": 1,
    "DescribeUserScramCredentials": 0,
    "AlterUserScramCredentials": 0,
    "DescribeQuorum": 2,
    "UpdateFeatures": 2,
    "DescribeCluster": 2,
    "DescribeProducers": 0,
    "UnregisterBroker": 0,
    "DescribeTransactions": 0,
    "ListTransactions": 2,
    "DescribeTopicPartitions": 0,
}
_names = itertools.count(1)


BODY_OF_LIST_OFFSETS = {
    "replica_id": -1,
    "isolation_level": 0,
    "timeout_ms": 1,
    "topics": [
        {
            "name": "some-topic",
            "partitions": [{"partition_index": 0, "timestamp": -1, "max_num_offsets": 1}],
        }
    ],
}


def new_name(prefix: str = "t") -> str:
    """A topic name no other test of this process uses."""
    return f"{prefix}-{next(_names)}"


def values(*texts: str | bytes, timestamp: int = 1_000) -> list[Rec]:
    """Records with these values, a millisecond apart."""
    return [
        Rec(timestamp + i, text.encode() if isinstance(text, str) else text)
        for i, text in enumerate(texts)
    ]


def records_for(version: int, *texts: str) -> bytes:
    """An honest record set of the newest format that a Produce version carries."""
    if version >= 3:
        return recordset.batch(values(*texts))
    return recordset.plain_set(1 if version == 2 else 0, values(*texts))


def create(connection: wire.Connection, name: str, partitions: int = 1, **configs: str) -> str:
    """Make a topic; returns its id. Settings are given with underscores for dots."""
    answer = try_to_create(connection, name, partitions, **configs)
    assert answer["error_code"] == 0, answer
    return answer["topic_id"]


def try_to_create(
    connection: wire.Connection,
    name: str,
    partitions: int = 1,
    *,
    factor: int = 1,
    placed: Sequence[int] = (),
    version: int = 7,
    validate_only: bool = False,
    **configs: str,
) -> Any:
    """CreateTopics of one topic; its part of the answer. Its only partition may be placed on brokers."""
    asked = {
        "name": name,
        "num_partitions": -1 if placed else partitions,
        "replication_factor": -1 if placed else factor,
        "assignments": [{"partition_index": 0, "broker_ids": list(placed)}] if placed else [],
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }
    return connection.ask(
        "CreateTopics",
        version,
        topics=[asked],
        timeout_ms=60_000,  # a busy machine delays Kafka
        validate_only=validate_only,
    )["topics"][0]


def new_topic(connection: wire.Connection, partitions: int = 1, **configs: str) -> str:
    """The name of a topic that is made for one test."""
    name = new_name()
    create(connection, name, partitions, **configs)
    return name


def produce(
    connection: wire.Connection,
    topic: str,
    records: bytes | None,
    *,
    version: int = 9,
    acks: int = -1,
    partition: int = 0,
) -> Any:
    """Produce to one partition; its part of the answer, or None if the broker closed."""
    answer = connection.ask(
        "Produce",
        version,
        answered=acks != 0,
        **produce_fields(topic, records, acks=acks, partition=partition),
    )
    if not answer:
        return answer
    return answer["responses"][0]["partition_responses"][0]


def produce_fields(
    topic: str,
    records: bytes | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    """The body of a Produce request for one partition; the topic is a name or an id."""
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": 5_000,
        "topic_data": [
            {
                **_named(topic, "name"),
                "partition_data": [{"index": partition, "records": records}],
            }
        ],
    }


def fetch_fields(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    **more: Any,
) -> dict[str, Any]:
    """The body of a Fetch request for one partition; the topic is a name or an id."""
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                **_named(topic, "topic"),
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": epoch,
                        "fetch_offset": offset,
                        "partition_max_bytes": partition_max_bytes,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
        **more,
    }


def fetch(
    connection: wire.Connection, topic: str, offset: int = 0, *, version: int = 12, **more: Any
) -> Any:
    """Fetch from one partition; its part of the answer."""
    answer = connection.ask("Fetch", version, **fetch_fields(topic, offset, **more))
    if answer is None:
        return None
    if not answer["responses"]:
        return answer
    return answer["responses"][0]["partitions"][0]


def read_values(connection: wire.Connection, topic: str, **more: Any) -> list[bytes]:
    """The values of every record from the start of a partition, fetched until nothing comes."""
    found: list[bytes] = []
    while True:
        got = fetch(connection, topic, len(found), **more)
        assert got["error_code"] == 0, got
        batches, _ = recordset.parse(got["records"] or b"")
        new = [
            record["value"]
            for batch in batches
            for record in batch["records"]
            if record["offset"] >= len(found)
        ]
        if not new:
            return found
        found += new


def list_offset(
    connection: wire.Connection, topic: str, timestamp: int, *, version: int = 7, **more: Any
) -> Any:
    """ListOffsets for one partition; its part of the answer."""
    wanted = {
        "partition_index": more.pop("partition", 0),
        "current_leader_epoch": more.pop("epoch", -1),
        "timestamp": timestamp,
        "max_num_offsets": more.pop("max_num_offsets", 100),
    }
    fields = {"replica_id": -1, "isolation_level": 0, "timeout_ms": 1_000, **more}
    answer = connection.ask(
        "ListOffsets", version, topics=[{"name": topic, "partitions": [wanted]}], **fields
    )
    return answer["topics"][0]["partitions"][0]


def alter(
    connection: wire.Connection,
    resource_type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """IncrementalAlterConfigs of one resource: (setting, operation, value) ...; its error."""
    answer = connection.ask(
        "IncrementalAlterConfigs",
        version,
        resources=[
            {
                "resource_type": resource_type,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": operation, "value": value}
                    for key, operation, value in changes
                ],
            }
        ],
        validate_only=validate_only,
    )["responses"][0]
    return answer["error_code"], answer["error_message"]


def own(
    connection: wire.Connection, name: str, kind: int = TOPIC, source: int = 1
) -> dict[str, str | None]:
    """The settings of a resource that somebody set on it."""
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = connection.ask("DescribeConfigs", 1, resources=[asked], include_synonyms=False)
    return {
        each["name"]: each["value"]
        for each in answer["results"][0]["configs"]
        if each["config_source"] == source
    }


def delete_records(
    connection: wire.Connection, topic: str, offset: int, *, version: int = 2, partition: int = 0
) -> tuple[int, int]:
    """Delete before an offset; (error code, low watermark)."""
    wanted = [{"partition_index": partition, "offset": offset}]
    answer = connection.ask(
        "DeleteRecords",
        version,
        topics=[{"name": topic, "partitions": wanted}],
        timeout_ms=60_000,
    )["topics"]
    assert [each["name"] for each in answer] == [topic]
    (got,) = answer[0]["partitions"]
    assert got["partition_index"] == partition
    return got["error_code"], got["low_watermark"]


def topic_id_of(connection: wire.Connection, name: str) -> str:
    """The id of a topic."""
    answer = connection.ask(
        "Metadata", 10, topics=[{"name": name}], allow_auto_topic_creation=False
    )
    return answer["topics"][0]["topic_id"]


def named(connection: wire.Connection, topic: str, version: int) -> str:
    """How a version of Produce or Fetch names a topic: by its id or its name."""
    return topic_id_of(connection, topic) if version >= 13 else topic


def codes_in(answer: dict[str, Any]) -> list[int]:
    """Every error code of an answer, wherever it is."""
    found = []
    for name, value in answer.items():
        if name.endswith("error_code"):
            found.append(value)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                found += codes_in(item)
    return found


def _named(topic: str, key: str) -> dict[str, str]:
    """A topic by name for versions that name it, by id for those that number it."""
    return {key: topic, "topic_id": topic if len(topic) == 36 else NO_ID}


def batch_of(*texts: str, **lies: Any) -> bytes:
    """A batch of format 2; keywords lie."""
    return recordset.batch(values(*texts), **lies)


def all_versions(api: str) -> Sequence[int]:
    """Every version served of an API."""
    return range(VERSIONS[api] + 1)


# One request of every API that every version can be made of; none of them changes anything.
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}
_PARTITIONS = [{"name": "some-topic", "partitions": [0]}]
_INDEXES = [{"name": "some-topic", "partition_indexes": [0]}]
_NUMBERED = [{"name": "some-topic", "partitions": [{"partition_index": 0}]}]
_SETTINGS_OF = {"resource_type": TOPIC, "resource_name": "some-topic"}
_PRODUCER = {"producer_id": 1, "producer_epoch": 0}
_TRANSACTION = {"transactional_id": "no-id", **_PRODUCER}
_MEMBER = {
    "group_id": "no-group",
    "generation_id": 1,
    "member_id": "nobody",
    "group_instance_id": None,
}
_OFFSET = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}
BODIES = {
    "Produce": produce_fields("some-topic", b""),
    "Fetch": fetch_fields("some-topic"),
    "ListOffsets": BODY_OF_LIST_OFFSETS,
    "Metadata": {"topics": [{"name": "some-topic"}], "allow_auto_topic_creation": False},
    "AddPartitionsToTxn": {
        "transactions": [{**_TRANSACTION, "verify_only": True, "topics": _PARTITIONS}],
        **{f"v3_and_below_{name}": value for name, value in _TRANSACTION.items()},
        "v3_and_below_topics": _PARTITIONS,
    },
    "EndTxn": {**_TRANSACTION, "committed": True},
    "WriteTxnMarkers": {
        "markers": [
            {
                **_PRODUCER,
                "transaction_result": True,
                "topics": _INDEXES,
                "coordinator_epoch": 0,
            }
        ]
    },
    "AddOffsetsToTxn": {**_TRANSACTION, "group_id": "no-group"},
    "TxnOffsetCommit": {
        **_TRANSACTION,
        **_MEMBER,
        "generation_id": -1,
        "member_id": "",
        "topics": [{"name": "some-topic", "partitions": [_OFFSET]}],
    },
    "FindCoordinator": {"key": "group", "key_type": 0, "coordinator_keys": ["group"]},
    "OffsetCommit": {
        "group_id": "no-group",
        "generation_id_or_member_epoch": 1,
        "member_id": "nobody",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{"name": "some-topic", "partitions": [{**_OFFSET, "commit_timestamp": -1}]}],
    },
    "OffsetFetch": {
        "group_id": "no-group",
        "topics": _INDEXES,
        "groups": [
            {"group_id": "no-group", "member_id": None, "member_epoch": -1, "topics": _INDEXES}
        ],
        "require_stable": False,
    },
    "JoinGroup": {
        "group_id": "no-group",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "nobody",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    },
    "Heartbeat": _MEMBER,
    "LeaveGroup": {
        "group_id": "no-group",
        "member_id": "nobody",
        "members": [{"member_id": "nobody", "group_instance_id": None, "reason": None}],
    },
    "SyncGroup": {
        **_MEMBER,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    },
    "DescribeGroups": {"groups": ["no-group"], "include_authorized_operations": False},
    "DeleteGroups": {"groups_names": ["no-group"]},
    "OffsetDelete": {"group_id": "no-group", "topics": _NUMBERED},
    "ListGroups": {"states_filter": ["Stable"], "types_filter": ["classic"]},
    "SaslHandshake": {"mechanism": "PLAIN"},
    "SaslAuthenticate": {"auth_bytes": b"\0somebody\0secret"},
    "ApiVersions": SOFTWARE,
    "CreateTopics": {
        "topics": [{"name": "bad/name", "num_partitions": 1, "replication_factor": 1}],
        "timeout_ms": 1,
        "validate_only": True,
    },
    "DeleteTopics": {
        "topics": [{"name": "some-topic"}],
        "topic_names": ["some-topic"],
        "timeout_ms": 1,
    },
    "DeleteRecords": {
        "topics": [{"name": "some-topic", "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout_ms": 1,
    },
    "InitProducerId": {"transactional_id": "some-id", "transaction_timeout_ms": 1},
    "OffsetForLeaderEpoch": {
        "replica_id": -1,
        "topics": [{"topic": "some-topic", "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    },
    "DescribeConfigs": {
        "resources": [{**_SETTINGS_OF, "configuration_keys": None}],
        "include_synonyms": False,
        "include_documentation": False,
    },
    "IncrementalAlterConfigs": {
        "resources": [
            {
                **_SETTINGS_OF,
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
            }
        ],
        "validate_only": True,
    },
    "AlterConfigs": {
        "resources": [{**_SETTINGS_OF, "configs": [{"name": "retention.ms", "value": "1"}]}],
        "validate_only": True,
    },
    "CreatePartitions": {
        "topics": [{"name": "some-topic", "count": 2, "assignments": None}],
        "timeout_ms": 1,
        "validate_only": True,
    },
    "DescribeAcls": ACL_FILTER,
    "CreateAcls": {"creations": [ACL]},
    "DeleteAcls": {"filters": [ACL_FILTER]},
    "AlterReplicaLogDirs": {"dirs": [{"path": "/nowhere", "topics": _PARTITIONS}]},
    "DescribeLogDirs": {"topics": [{"topic": "some-topic", "partitions": [0]}]},
    "ElectLeaders": {
        "election_type": 0,
        "topic_partitions": [{"topic": "some-topic", "partitions": [0]}],
        "timeout_ms": 1,
    },
    "AlterPartitionReassignments": {
        "timeout_ms": 1,
        "topics": [
            {"name": "some-topic", "partitions": [{"partition_index": 0, "replicas": None}]}
        ],
    },
    "ListPartitionReassignments": {"timeout_ms": 1, "topics": None},
    "DescribeClientQuotas": {"components": [], "strict": False},
    "AlterClientQuotas": {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": "somebody"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
            }
        ],
        "validate_only": True,
    },
    "DescribeUserScramCredentials": {"users": [{"name": "somebody"}]},
    "AlterUserScramCredentials": {
        "deletions": [{"name": "somebody", "mechanism": 1}],
        "upsertions": [
            {
                "name": "another",
                "mechanism": 2,
                "iterations": 4096,
                "salt": b"salt",
                "salted_password": b"s3cret",
            }
        ],
    },
    "DescribeQuorum": {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    },
    "UpdateFeatures": {
        "timeout_ms": 1,
        "feature_updates": [
            {
                "feature": "transaction.version",
                "max_version_level": 2,
                "allow_downgrade": False,
                "upgrade_type": 1,
            }
        ],
        "validate_only": True,
    },
    "DescribeCluster": {
        "include_cluster_authorized_operations": True,
        "endpoint_type": 1,
        "include_fenced_brokers": True,
    },
    "DescribeProducers": {"topics": _INDEXES},
    "UnregisterBroker": {"broker_id": 77},
    "DescribeTransactions": {"transactional_ids": ["some-id"]},
    "ListTransactions": {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    },
    "DescribeTopicPartitions": {
        "topics": [{"name": "some-topic"}],
        "response_partition_limit": 10,
        "cursor": None,
    },
}
