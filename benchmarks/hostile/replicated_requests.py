"""Records that followers have much to do with: rows of `neighbour.py`.

The broker that is asked leads every partition, and all others follow it. One broker alone is followed by
nobody.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

from prepared import frame_of, request_head

from tests.broker.asking import produce_fields
from tests.oracle import wire
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.layout import Compression, Record

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 120.0
_TOPIC = "t"
_TIMES = 10
_PARTITIONS = 1_000
_SMALL_BATCHES = 20_000
_UNPACKED_BYTES = 60_000_000
_VERSION = 7  # of Produce: the last whose header is not flexible


def _wide(connection: wire.Connection) -> str:
    """Produce of one record for each of 1,000 partitions, ten times, with acks=all."""
    _make(connection, _PARTITIONS)
    records = build([Record(0, 1_000, None, b"v")])
    given = [{"index": index, "records": records} for index in range(_PARTITIONS)]
    fields = produce_fields(_TOPIC, records)
    fields["topic_data"][0]["partition_data"] = given
    return _produced(connection, fields)


def _small_batches(connection: wire.Connection) -> str:
    """20,000 requests of one record each with acks=0, which followers fetch together."""
    _make(connection, 1)
    fields = produce_fields(_TOPIC, build([Record(0, 1_000, None, b"v")]), acks=0)
    key, _, body = wire.encode_request("Produce", _VERSION, fields)
    connection.send(frame_of(request_head(key, _VERSION) + body) * _SMALL_BATCHES)
    answer = connection.ask("ApiVersions", 0)  # is answered after all of them
    return "closed" if answer is None else "stored"


def _unpacked(connection: wire.Connection) -> str:
    """A batch of LZ4 with one record of 60 MB of zeros, ten times, with acks=all."""
    _make(connection, 1)
    record = Record(0, 1_000, None, bytes(_UNPACKED_BYTES))
    records = build([record], compression=Compression.LZ4)
    return _produced(connection, produce_fields(_TOPIC, records))


def _make(connection: wire.Connection, partitions: int) -> None:
    """Creates the topic with a replica on every broker; the one that is asked leads all partitions."""
    told = connection.ask("Metadata", 1, topics=[])
    brokers = {(each["host"], each["port"]): each["node_id"] for each in told["brokers"]}
    leader = brokers.pop(connection.address)
    replicas = [leader, *brokers.values()]
    wanted = [{"partition_index": at, "broker_ids": replicas} for at in range(partitions)]
    topic = {"name": _TOPIC, "num_partitions": -1, "replication_factor": -1, "configs": []}
    answer = connection.ask(
        "CreateTopics",
        4,
        topics=[{**topic, "assignments": wanted}],
        timeout_ms=int(_TIMEOUT_S * 1000),
        validate_only=False,
    )
    code = answer["topics"][0]["error_code"]
    if code:
        raise RuntimeError(f"the topic was not created: error {code}")


def _produced(connection: wire.Connection, fields: dict[str, Any]) -> str:
    """Produces again and again; returns how often all partitions stored it, and the last error."""
    stored, last = 0, 0
    for _ in range(_TIMES):
        answer = connection.ask("Produce", _VERSION, **fields)
        if answer is None:
            return "closed"
        codes = {each["error_code"] for each in answer["responses"][0]["partition_responses"]}
        stored += codes == {0}
        last = max(codes) or last
    return f"stored {stored} times" + (f", error {last}" if last else "")


def _row(ask: Callable[[wire.Connection], str]) -> Callable[[int], str]:
    def attack(port: int) -> str:
        with wire.Connection(f"127.0.0.1:{port}", _TIMEOUT_S) as connection:
            return ask(connection)

    return attack


ROWS = {
    "wide": _row(_wide),
    "small": _row(_small_batches),
    "unpacked": _row(_unpacked),
}
