"""The largest requests that each API takes: rows of `holds.py`.

Requests name each of 8,000 partitions that exist, or as much as the limits of a request allow
(`Api.request_elements`, `Api.request_bytes`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from many_topics import PARTITIONS, Topics

from tests.oracle import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Fields = dict[str, Any]

TIMEOUT_MS = 120_000
TOPICS = Topics(4)
_MOST = 49_000
_MOST_CONFIGS = 120_000
_MOST_PROTOCOLS = 100
_TOPIC, _BROKER = 2, 4
_GROUPS, _MEMBERS = 4_000, 400


class Request(NamedTuple):
    """One request, encoded before it is measured."""

    name: str
    encoded: tuple[int, int, bytes]
    flexible: bool


class Row(NamedTuple):
    """Requests that belong together; `requests` may ask others first, which are not measured."""

    names: tuple[str, ...]
    requests: Callable[[wire.Connection, int], Iterator[Request]]
    is_repeated: bool = True


def _request(api: str, version: int, fields: Fields, note: str = "") -> Request:
    key, flexible, body = wire.encode_request(api, version, fields)
    return Request(f"{api} {note}".strip(), (key, version, body), flexible)


def _plain(api: str, version: int, fields: Fields, note: str = "") -> Row:
    return Row((api,), lambda _connection, _number: iter([_request(api, version, fields, note)]))


# -- offsets, transactions, fetches -------------------------------------------------------------------


def _offsets(_connection: wire.Connection, _number: int) -> Iterator[Request]:
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    yield _request("OffsetCommit", 7, {"group_id": "g", **member, "topics": TOPICS.committed()})
    fetch = {"group_id": "g", "topics": TOPICS.indexes("name", "partition_indexes")}
    yield _request("OffsetFetch", 5, fetch)
    delete = {"group_id": "g", "topics": TOPICS.each("name", "partition_index")}
    yield _request("OffsetDelete", 0, delete)


def _transaction(connection: wire.Connection, number: int) -> Iterator[Request]:
    the_id = f"x{number}"
    given = connection.ask(
        "InitProducerId", 1, transactional_id=the_id, transaction_timeout_ms=600_000
    )
    producer = {key: given[key] for key in ("producer_id", "producer_epoch")}
    of_group = {"transactional_id": the_id, "group_id": "h", **producer}
    added = {
        "v3_and_below_transactional_id": the_id,
        **{f"v3_and_below_{key}": value for key, value in producer.items()},
        "v3_and_below_topics": TOPICS.indexes("name", "partitions"),
    }
    yield _request("AddPartitionsToTxn", 1, added)
    yield _request("AddOffsetsToTxn", 1, of_group)
    yield _request("TxnOffsetCommit", 2, {**of_group, "topics": TOPICS.committed()})
    yield _request("DescribeTransactions", 0, {"transactional_ids": [the_id]})
    end = {"transactional_id": the_id, "committed": True, **producer}
    yield _request("EndTxn", 1, end)


def _fetch(_connection: wire.Connection, _number: int) -> Iterator[Request]:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "log_start_offset": -1,
            "partition_max_bytes": 1_000,
        }
        for index in range(PARTITIONS)
    ]
    fields = {
        "replica_id": -1,
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": name, "partitions": partitions} for name in TOPICS.names],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    yield _request("Fetch", 11, fields, "without a session")
    yield _request("Fetch", 11, {**fields, "session_epoch": 0}, "that begins a session")


# -- topics and settings ------------------------------------------------------------------------------


def _topic(name: str, *, assigned: int = 0, **fields: Any) -> Fields:
    assignments = [{"partition_index": index, "broker_ids": [1]} for index in range(assigned)]
    told = {"num_partitions": 1, "replication_factor": 1, "configs": [], **fields}
    return {"name": name, "assignments": assignments, **told}


def _creations(_connection: wire.Connection, number: int) -> Iterator[Request]:
    rest = {"timeout_ms": TIMEOUT_MS, "validate_only": False}
    one = [_topic(f"one{number}", num_partitions=PARTITIONS)]
    yield _request("CreateTopics", 4, {"topics": one, **rest}, "2,000 partitions")
    many = [_topic(f"many{number}-{index}") for index in range(500)]
    yield _request("CreateTopics", 4, {"topics": many, **rest}, "500 topics")
    checked = [_topic(f"checked{index}") for index in range(_MOST)]
    only = {"timeout_ms": TIMEOUT_MS, "validate_only": True}
    yield _request("CreateTopics", 4, {"topics": checked, **only}, "49,000 topics, not made")
    configs = [{"name": f"c{index}", "value": "1"} for index in range(_MOST_CONFIGS)]
    yield _request(
        "CreateTopics", 4, {"topics": [_topic("c", configs=configs)], **only}, "120,000 settings"
    )
    assigned = _topic("a", assigned=100_000, num_partitions=-1, replication_factor=-1)
    yield _request("CreateTopics", 4, {"topics": [assigned], **only}, "100,000 assignments")
    names = [f"one{number}", *(f"many{number}-{index}" for index in range(500))]
    gone = {"topic_names": names, "timeout_ms": TIMEOUT_MS}
    yield _request("DeleteTopics", 3, gone, "501 topics")
    unknown = {"topic_names": [f"u{index}" for index in range(_MOST)], "timeout_ms": TIMEOUT_MS}
    yield _request("DeleteTopics", 3, unknown, "49,000 unknown ones")


def _growth(_connection: wire.Connection, _number: int) -> Iterator[Request]:
    assigned = [{"broker_ids": [1]} for _ in range(24_000)]
    grown = {"name": TOPICS.names[0], "count": PARTITIONS + 24_000, "assignments": assigned}
    only = {"timeout_ms": TIMEOUT_MS, "validate_only": True}
    yield _request("CreatePartitions", 1, {"topics": [grown], **only}, "24,000 assignments")
    unknown = [{"name": f"u{at}", "count": 2, "assignments": None} for at in range(_MOST)]
    yield _request("CreatePartitions", 1, {"topics": unknown, **only}, "49,000 unknown topics")


def _settings(_connection: wire.Connection, _number: int) -> Iterator[Request]:
    for api, more in (("AlterConfigs", {}), ("IncrementalAlterConfigs", {"config_operation": 0})):
        configs = [{"name": f"c{at}", "value": "1", **more} for at in range(_MOST_CONFIGS)]
        for kind, name, what in (
            (_TOPIC, TOPICS.names[0], "a topic"),
            (_BROKER, "1", "the broker"),
        ):
            resource = {"resource_type": kind, "resource_name": name, "configs": configs}
            fields = {"resources": [resource], "validate_only": True}
            yield _request(api, 1, fields, f"120,000 settings of {what}")
        each = [{"name": "retention.ms", "value": "1000000000", **more}]
        topics = [{"resource_type": _TOPIC, "configs": each}]
        unknown = [{**topics[0], "resource_name": f"u{index}"} for index in range(100_000)]
        yield _request(api, 1, {"resources": unknown, "validate_only": True}, "100,000 topics")
        known = [{**topics[0], "resource_name": name} for name in TOPICS.names]
        yield _request(api, 1, {"resources": known, "validate_only": False}, "done")


# -- groups -------------------------------------------------------------------------------------------


def _join(group: str, protocols: list[Fields], member_id: str = "") -> Fields:
    return {
        "group_id": group,
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


def _joins(_connection: wire.Connection, number: int) -> Iterator[Request]:
    many = [{"name": f"p{index}", "metadata": b"m"} for index in range(_MOST_PROTOCOLS)]
    yield _request("JoinGroup", 2, _join(f"many{number}", many), "100 protocols")
    large = [{"name": "range", "metadata": b"m" * (8 * 1024 * 1024 - 1_000)}]
    yield _request("JoinGroup", 2, _join(f"large{number}", large), "8 MiB of metadata")


def _full_group(connection: wire.Connection, group: str) -> Fields:
    """Lets many members join a group; returns the answer of its leader."""
    host, port = connection.address
    protocols = [{"name": "range", "metadata": b"m" * 1_000}]
    clients = [wire.Connection(f"{host}:{port}") for _ in range(_MEMBERS)]
    answers: list[Fields] = []

    def join(client: wire.Connection) -> None:
        answers.append(client.ask("JoinGroup", 2, **_join(group, protocols)))

    threads = [threading.Thread(target=join, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    return next(each for each in answers if each["member_id"] == each["leader"])


def _syncs(connection: wire.Connection, number: int) -> Iterator[Request]:
    group = f"full{number}"
    leader = _full_group(connection, group)
    assigned = [
        {"member_id": each["member_id"], "assignment": b"a" * 2_000} for each in leader["members"]
    ]
    strangers = [{"member_id": f"s{index}", "assignment": b"a"} for index in range(48_000)]
    base = {
        "group_id": group,
        "generation_id": leader["generation_id"],
        "member_id": leader["member_id"],
    }
    yield _request(
        "SyncGroup", 2, {**base, "assignments": assigned + strangers}, "48,000 assignments"
    )
    yield _request("DescribeGroups", 2, {"groups": [group]}, "of 400 members")
    yield _request("DescribeGroups", 2, {"groups": [group] * 100}, "of 400 members, 100 times")


def _groups(connection: wire.Connection, number: int) -> Iterator[Request]:
    names = [f"group{number}-{index}" for index in range(_GROUPS)]
    offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    topics = [{"name": TOPICS.names[0], "partitions": [{**offset, "committed_leader_epoch": -1}]}]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    for name in names:
        connection.ask("OffsetCommit", 7, group_id=name, **member, topics=topics)
    yield _request("ListGroups", 4, {"states_filter": []}, f"{_GROUPS:,} groups")
    filters = {"states_filter": [f"s{index}" for index in range(_MOST)]}
    yield _request("ListGroups", 4, filters, "49,000 states")
    yield _request("DescribeGroups", 2, {"groups": names}, f"{_GROUPS:,} groups")
    unknown = [f"u{index}" for index in range(_MOST)]
    yield _request("DescribeGroups", 2, {"groups": unknown}, "49,000 unknown ones")
    yield _request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": unknown}, "49,000")
    yield _request("DeleteGroups", 1, {"groups_names": names}, f"{_GROUPS:,} groups")
    yield _request("DeleteGroups", 1, {"groups_names": unknown}, "49,000 unknown ones")


def _of_transactions(connection: wire.Connection, number: int) -> Iterator[Request]:
    for index in range(2_000):
        connection.ask(
            "InitProducerId",
            1,
            transactional_id=f"l{number}-{index}",
            transaction_timeout_ms=60_000,
        )
    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    yield _request("ListTransactions", 1, fields, "2,000 or more ids")
    wanted = {**fields, "producer_id_filters": list(range(10**6, 10**6 + _MOST))}
    yield _request("ListTransactions", 1, wanted, "49,000 producers")
    unknown = [f"u{index}" for index in range(_MOST)]
    yield _request("DescribeTransactions", 0, {"transactional_ids": unknown}, "49,000 unknown ones")


def _markers() -> Fields:
    marker = {"producer_id": 5, "producer_epoch": 0, "transaction_result": False}
    topics = TOPICS.indexes("name", "partition_indexes")
    return {"markers": [{**marker, "topics": topics, "coordinator_epoch": 0}]}


_QUOTAS = {
    "entries": [
        {
            "entity": [{"entity_type": "user", "entity_name": f"u{index}"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
        }
        for index in range(16_000)
    ],
    "validate_only": True,
}
_LISTED = TOPICS.each("name", "partition_index", current_leader_epoch=-1, timestamp=-1)
_EPOCHS = TOPICS.each("topic", "partition", current_leader_epoch=-1, leader_epoch=0)
_DELETED = TOPICS.each("name", "partition_index", offset=-1)

ROWS = (
    _plain("Metadata", 1, {"topics": None}),
    _plain("ListOffsets", 4, {"replica_id": -1, "isolation_level": 0, "topics": _LISTED}),
    _plain("OffsetForLeaderEpoch", 3, {"replica_id": -1, "topics": _EPOCHS}),
    Row(("OffsetCommit", "OffsetFetch", "OffsetDelete"), _offsets),
    Row(
        (
            "AddPartitionsToTxn",
            "AddOffsetsToTxn",
            "TxnOffsetCommit",
            "DescribeTransactions",
            "EndTxn",
        ),
        _transaction,
    ),
    Row(("Fetch",), _fetch),
    _plain("DescribeLogDirs", 1, {"topics": TOPICS.indexes("topic", "partitions")}, "named"),
    _plain("DescribeLogDirs", 1, {"topics": None}),
    _plain("DescribeProducers", 0, {"topics": TOPICS.indexes("name", "partition_indexes")}),
    _plain(
        "DescribeTopicPartitions",
        0,
        {"topics": [], "response_partition_limit": 2_000, "cursor": None},
    ),
    _plain(
        "ElectLeaders",
        1,
        {
            "election_type": 0,
            "topic_partitions": TOPICS.indexes("topic", "partitions"),
            "timeout_ms": TIMEOUT_MS,
        },
    ),
    _plain(
        "ElectLeaders",
        1,
        {"election_type": 0, "topic_partitions": None, "timeout_ms": TIMEOUT_MS},
        "all",
    ),
    _plain("WriteTxnMarkers", 1, _markers()),
    _plain("AlterClientQuotas", 0, _QUOTAS),
    _plain("DeleteRecords", 1, {"timeout_ms": TIMEOUT_MS, "topics": _DELETED}),
    Row(("CreatePartitions",), _growth),
    Row(("AlterConfigs", "IncrementalAlterConfigs"), _settings),
    Row(("JoinGroup",), _joins),
    Row(("SyncGroup", "DescribeGroups"), _syncs),
    Row(("ListGroups", "DescribeGroups", "DeleteGroups", "FindCoordinator"), _groups),
    Row(("ListTransactions", "DescribeTransactions"), _of_transactions),
    Row(("CreateTopics", "DeleteTopics"), _creations),
)
