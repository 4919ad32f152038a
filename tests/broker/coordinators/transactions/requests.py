"""The requests of a transactional producer, as plain calls on a raw connection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.broker.asking import fetch, produce_fields, values
from tests.oracle import recordset

if TYPE_CHECKING:
    from tests.oracle import wire

NONE, LOADING = 0, 14
TRANSACTIONAL, MARKER = 0x10, 0x20  # of the attributes of a batch
COORDINATOR_IS_ABSENT = (LOADING, 15, 16)  # loading, not available, another one
COMMITTED = 1
DEADLINE_S = 60


class Given(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


UNKNOWN = Given(-1, -1)


class Transactional:
    """One transactional id on one connection; calls return error codes."""

    def __init__(self, connection: wire.Connection, transactional_id: str) -> None:
        self.connection = connection
        self.id: str | None = transactional_id
        self.given = UNKNOWN
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 4, *, known: Given = UNKNOWN, timeout_ms: int = 60_000) -> int:
        """Asks for an id and epoch, and takes what is given."""
        answer = self.connection.ask(
            "InitProducerId",
            version,
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )
        if not answer["error_code"]:
            self.given = Given(answer["producer_id"], answer["producer_epoch"])
            self.sequences.clear()
        return answer["error_code"]

    def first_init(self, *, timeout_ms: int = 60_000) -> None:
        """Asks for the first id and epoch, again while the coordinator is absent (Kafka just started)."""
        deadline = time.monotonic() + DEADLINE_S
        while (code := self.init(timeout_ms=timeout_ms)) in COORDINATOR_IS_ABSENT:
            assert time.monotonic() < deadline, code
            time.sleep(0.05)  # a foreign process can only be polled
        assert code == NONE, code

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """Adds partitions; the error of each."""
        answer = self.connection.ask(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.given.producer_id,
            v3_and_below_producer_epoch=self.given.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
        )
        (result,) = answer["results_by_topic_v3_and_below"]
        return [each["partition_error_code"] for each in result["results_by_partition"]]

    def verified(self, topic: str, *partitions: int, only: bool = True) -> list[int]:
        """Asks as a broker whether the transaction has partitions; the error of each."""
        answer = self.connection.ask(
            "AddPartitionsToTxn",
            5,
            transactions=[
                {
                    "transactional_id": self.id,
                    "producer_id": self.given.producer_id,
                    "producer_epoch": self.given.epoch,
                    "verify_only": only,
                    "topics": [{"name": topic, "partitions": list(partitions)}],
                }
            ],
        )
        assert answer["error_code"] == NONE
        (result,) = answer["results_by_transaction"][0]["topic_results"]
        return [each["partition_error_code"] for each in result["results_by_partition"]]

    def send(
        self, topic: str, text: str, *, partition: int = 0, version: int = 9, **lies: Any
    ) -> int:
        """Produces one record; its error."""
        name = (topic, partition)
        fields = {
            "attributes": TRANSACTIONAL,
            "producer_id": self.given.producer_id,
            "producer_epoch": self.given.epoch,
            "base_sequence": self.sequences.get(name, 0),
            **lies,
        }
        asked = produce_fields(
            topic,
            recordset.batch(values(text), **fields),
            partition=partition,
            transactional_id=self.id,
        )
        answer = self.connection.ask("Produce", version, **asked)
        answer = answer["responses"][0]["partition_responses"][0]
        if not answer["error_code"]:
            self.sequences[name] = self.sequences.get(name, 0) + 1
        return answer["error_code"]

    def add_group(self, group: str, version: int = 3) -> int:
        """Adds the offsets of a group to the transaction; the error."""
        return self.connection.ask(
            "AddOffsetsToTxn",
            version,
            transactional_id=self.id,
            producer_id=self.given.producer_id,
            producer_epoch=self.given.epoch,
            group_id=group,
        )["error_code"]

    def commit_offsets(
        self,
        group: str,
        topic: str,
        offsets: dict[int, int],
        *,
        version: int = 3,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
    ) -> list[int]:
        """Sends offsets by partition with the transaction; the error of each."""
        answer = self.connection.ask(
            "TxnOffsetCommit",
            version,
            transactional_id=self.id,
            group_id=group,
            producer_id=self.given.producer_id,
            producer_epoch=self.given.epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[sent_offsets(topic, offsets, metadata)],
        )
        return [each["error_code"] for each in answer["topics"][0]["partitions"]]

    def end(self, *, commit: bool, version: int = 4) -> int:
        """Commits or aborts; the error. From v5 on the next epoch is taken."""
        answer = self.connection.ask(
            "EndTxn",
            version,
            transactional_id=self.id,
            producer_id=self.given.producer_id,
            producer_epoch=self.given.epoch,
            committed=commit,
        )
        if version >= 5 and not answer["error_code"]:
            self.given = Given(answer["producer_id"], answer["producer_epoch"])
            self.sequences.clear()
        return answer["error_code"]

    def described(self) -> dict[str, Any]:
        """What DescribeTransactions says of the id."""
        answer = self.connection.ask("DescribeTransactions", 0, transactional_ids=[self.id])
        return answer["transaction_states"][0]

    @property
    def state(self) -> str:
        """The state, as the coordinator says it."""
        return self.described()["transaction_state"]


def sent_offsets(topic: str, offsets: dict[int, int], metadata: str = "") -> dict[str, Any]:
    """The offsets of a topic's partitions, as TxnOffsetCommit sends them."""
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        for partition, offset in offsets.items()
    ]
    return {"name": topic, "partitions": partitions}


def mark(
    connection: wire.Connection,
    topic: str,
    given: Given,
    *partitions: int,
    commit: bool,
    coordinator_epoch: int = 0,
) -> list[int]:
    """Writes markers as a coordinator does, or an operator; the error of each."""
    marker = {
        "producer_id": given.producer_id,
        "producer_epoch": given.epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        "coordinator_epoch": coordinator_epoch,
    }
    answer = connection.ask("WriteTxnMarkers", 1, markers=[marker])
    return [each["error_code"] for each in answer["markers"][0]["topics"][0]["partitions"]]


def offsets_of(
    connection: wire.Connection,
    group: str,
    topic: str | None,
    *partitions: int,
    stable: bool = False,
    version: int = 7,
) -> dict[int, int]:
    """The committed offsets of partitions, or of all; an error code below zero instead: -88.

    Empty while the group is being read.
    """
    topics = None if topic is None else [{"name": topic, "partition_indexes": list(partitions)}]
    if version < 8:
        asked: dict[str, Any] = {"group_id": group, "topics": topics}
    else:
        named = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        asked = {"groups": [named]}
    answer = connection.ask("OffsetFetch", version, **asked, require_stable=stable)
    if version >= 8:
        (answer,) = answer["groups"]
    if answer["error_code"] == LOADING:
        return {}
    assert answer["error_code"] == NONE
    return {
        each["partition_index"]: -each["error_code"] or each["committed_offset"]
        for found in answer["topics"]
        for each in found["partitions"]
    }


def visible(found: dict[str, Any], offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """What a consumer of committed data sees of a fetch, by the client's own rules.

    Offsets and values from `offset` on, and the offset behind what was fetched.
    """
    aborted = sorted(
        (each["first_offset"], each["producer_id"]) for each in found["aborted_transactions"] or ()
    )
    dropping: set[int] = set()
    asked = offset  # a batch that it is in the middle of comes whole
    seen: list[tuple[int, bytes]] = []
    for batch in recordset.parse(found["records"] or b"")[0]:
        offset = max(offset, batch["offset"] + batch["last_offset_delta"] + 1)
        while aborted and aborted[0][0] <= batch["offset"]:
            dropping.add(aborted.pop(0)[1])
        if batch["attributes"] & MARKER:
            dropping.discard(batch["producer_id"])
        elif not (batch["attributes"] & TRANSACTIONAL and batch["producer_id"] in dropping):
            records = [(record["offset"], record["value"]) for record in batch["records"]]
            seen += [each for each in records if each[0] >= asked]
    return seen, offset


def committed(connection: wire.Connection, topic: str, partition: int = 0) -> list[str]:
    """What a consumer with read_committed sees of a partition from its beginning on."""
    answer = fetch(connection, topic, 0, isolation_level=COMMITTED, partition=partition)
    assert answer["error_code"] == NONE
    return [value.decode() for _, value in visible(answer, 0)[0]]
