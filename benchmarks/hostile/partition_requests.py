"""Requests that name each of 20,000 partitions that exist: rows of `neighbour.py`.

Each row makes the partitions first, 2,000 to a topic, which takes a while. It returns how many bytes the
answers have.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

from many_topics import Topics

from tests.oracle import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    Requests = list[tuple[str, int, dict[str, Any]]]  # API, version and fields

_TIMEOUT_S = 120.0
_TOPICS = Topics(10)


def _offsets(_connection: wire.Connection) -> Requests:
    commit = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": _TOPICS.committed(),
    }
    fetch = {"group_id": "g", "topics": _TOPICS.indexes("name", "partition_indexes")}
    delete = {"group_id": "g", "topics": _TOPICS.each("name", "partition_index")}
    return [("OffsetCommit", 7, commit), ("OffsetFetch", 5, fetch), ("OffsetDelete", 0, delete)]


def _transaction(connection: wire.Connection) -> Requests:
    given = connection.ask("InitProducerId", 1, transactional_id="x", transaction_timeout_ms=60_000)
    producer = {key: given[key] for key in ("producer_id", "producer_epoch")}
    of_group = {"transactional_id": "x", "group_id": "g", **producer}
    added = {
        "v3_and_below_transactional_id": "x",
        **{f"v3_and_below_{key}": value for key, value in producer.items()},
        "v3_and_below_topics": _TOPICS.indexes("name", "partitions"),
    }
    return [
        ("AddPartitionsToTxn", 1, added),
        ("AddOffsetsToTxn", 1, of_group),
        ("TxnOffsetCommit", 2, {**of_group, "topics": _TOPICS.committed()}),
        ("EndTxn", 1, {"transactional_id": "x", "committed": True, **producer}),
    ]


def _lookups(_connection: wire.Connection) -> Requests:
    listed = _TOPICS.each("name", "partition_index", current_leader_epoch=-1, timestamp=-1)
    epochs = _TOPICS.each("topic", "partition", current_leader_epoch=-1, leader_epoch=0)
    deleted = _TOPICS.each("name", "partition_index", offset=-1)
    return [
        ("ListOffsets", 4, {"replica_id": -1, "isolation_level": 0, "topics": listed}),
        ("OffsetForLeaderEpoch", 3, {"replica_id": -1, "topics": epochs}),
        ("DeleteRecords", 1, {"timeout_ms": int(_TIMEOUT_S * 1000), "topics": deleted}),
        ("DescribeProducers", 0, {"topics": _TOPICS.indexes("name", "partition_indexes")}),
        ("DescribeLogDirs", 1, {"topics": None}),
    ]


def _row(requests: Callable[[wire.Connection], Requests]) -> Callable[[int], str]:
    def attack(port: int) -> str:
        heard = []
        with wire.Connection(f"127.0.0.1:{port}", _TIMEOUT_S) as connection:
            _TOPICS.make(connection, int(_TIMEOUT_S * 1000))
            for api, version, fields in requests(connection):
                key, flexible, body = wire.encode_request(api, version, fields)
                answer = connection.ask_raw(key, version, body, flexible=flexible)
                heard.append("closed" if answer is None else f"{len(answer):,} B")
        return ", ".join(heard)

    return attack


ROWS = {
    "offsets": _row(_offsets),
    "transaction": _row(_transaction),
    "lookups": _row(_lookups),
}
