"""The client side of transactions (KIP-98), and progress that is committed with the records.

The progress of a partition of a run is a record of the compacted topic `__pipeline_progress`. It is
written in the same transaction as the records it counts, and says how many there are and where they
went. Its key is the run's name for the partition, which is also the transactional id. So a task
that begins with that id fences the earlier ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tidelog.client import EARLIEST, Client, Fenced, RequestError
from tidelog.client.appender import Appender
from tidelog.client.calls import producers
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.replay.offset_map import OffsetRange
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.protocol.records.column_batches import EncodedBatch
from tidelog.protocol.records.layout import Compression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.calls.producers import ProducerIdAndEpoch
    from tidelog.client.flow import Call

PROGRESS_TOPIC: Final = "__pipeline_progress"
TIMEOUT_MS: Final = 300_000
_COMMIT: Final = 1
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


def ensure_progress_topic(client: Client) -> None:
    """Creates the topic for progress unless it exists."""
    if client.has_topic(PROGRESS_TOPIC):
        return
    try:
        client.create_topic(PROGRESS_TOPIC, 1, {"cleanup.policy": "compact", "retention.ms": "-1"})
    except RequestError as error:  # somebody else may have created it just now
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


class Transactions:
    """The transactions of one producer on one partition, one after the other."""

    def __init__(self, client: Client, transactional_id: str, topic: str, partition: int) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._topic = topic
        self._partition = partition
        self._producer = (-1, -1)
        self._next = 0  # the sequence of the next progress record
        self._progress = Appender(
            client, PROGRESS_TOPIC, 0, transactional_id=transactional_id, in_flight=1
        )

    def begin(self) -> ProducerIdAndEpoch:
        """Takes the transactional id over; returns producer id and epoch.

        An open transaction is aborted.
        """
        self._producer = self._client.init_producer_id(
            self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        self._next = 0
        return self._producer

    def progress(self) -> tuple[int, tuple[OffsetRange, ...]]:
        """Returns how many records are committed, and where they went.

        Other transactions may be open in the topic, so it is read to its end, and the markers
        decide.
        """
        pending: dict[int, bytes] = {}
        committed = b'{"count": 0, "runs": []}'
        key = self.transactional_id.encode()
        offset = self._client.list_offsets(PROGRESS_TOPIC, {0: EARLIEST})[0].offset
        end = self._client.end_offset(PROGRESS_TOPIC, 0)
        while offset < end:
            data = self._client.fetch(PROGRESS_TOPIC, 0, offset).records
            heads = scan(data)
            if not heads:
                raise PipelineError(f"{PROGRESS_TOPIC} cannot be read at offset {offset}")
            for head in heads:
                offset = max(offset, head.last_offset + 1)
                for record in records(data, head):
                    if head.is_control:
                        value = pending.pop(head.producer_id, None)
                        if value is not None and _is_commit(record.key):
                            committed = value
                    elif record.key == key and record.value is not None:
                        pending[head.producer_id] = record.value
        stored = json.loads(committed)
        return stored["count"], tuple(OffsetRange(*run) for run in stored["runs"])

    def open(self) -> None:
        """Adds both partitions to a new transaction. Raises Fenced."""
        topics: dict[str, list[int]] = {PROGRESS_TOPIC: [0]}
        topics.setdefault(self._topic, []).append(self._partition)
        self._unless_fenced(producers.add_partitions(self.transactional_id, self._producer, topics))

    def commit(self, count: int, runs: Sequence[OffsetRange]) -> None:
        """Writes the progress and commits.

        Raises Fenced; then nothing of the transaction takes effect.
        """
        value = json.dumps({"count": count, "runs": runs}, separators=(",", ":")).encode()
        data = build(
            [Record(0, -1, self.transactional_id.encode(), value)],
            compression=Compression.GZIP,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._next,
            is_transactional=True,
        )
        self._progress.send(EncodedBatch(data, 0, 1, self._next))
        for _ in self._progress.flush():
            pass
        self._next += 1
        self.end(commit=True)

    def end(self, *, commit: bool) -> None:
        """Ends the transaction. Raises Fenced."""
        self._unless_fenced(producers.end(self.transactional_id, self._producer, commit=commit))

    def _unless_fenced(self, call: Call[None]) -> None:
        try:
            self._client.perform(call)
        except RequestError as error:
            if error.code in _FENCED:
                raise Fenced(f"a newer task of this run has taken over ({error})") from error
            raise


def _is_commit(key: bytes | None) -> bool:
    """Returns whether the key of a marker says commit: a version, then the kind, both int16."""
    return key is not None and int.from_bytes(key[2:4], "big") == _COMMIT
