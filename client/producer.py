"""Writes records to brokers in batches, one batch at a time: for tools, not for throughput.

With acks=all every batch is written once: it has a producer id and sequences, and is sent again
unchanged after failures that may pass. With acks=1 a batch that is sent again may be written twice.
With acks=0 the result is unknown. A batch that is too large for the broker is cut in half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.calls import records as calls
from tidelog.client.errors import ClusterUnreachable, RequestError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.layout import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.client.calls.producers import ProducerIdAndEpoch
    from tidelog.client.sync_client import Client
    from tidelog.protocol.records.layout import Record
    from tidelog.protocol.topic_partition import TopicPartition

ACKS_ALL: Final = -1
_SEQUENCES: Final = 2**31
_WIDEST_BATCH_MS: Final = 2**62  # a batch stores times as differences from its first


class Refused(Exception):
    """Records that were not written: how many, and why."""

    def __init__(self, count: int, error: RequestError | ClusterUnreachable) -> None:
        super().__init__(str(error))
        self.count = count
        self.error = error


class Producer:
    """Writes records to the partitions of a cluster."""

    def __init__(
        self, client: Client, *, acks: int = ACKS_ALL, compression: int = Compression.NONE
    ) -> None:
        self._client = client
        self._acks = acks
        self._compression = compression
        self._producer: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def write(self, topic: str, partition: int, records: Sequence[Record]) -> Iterator[Refused]:
        """Writes records in order, in as few batches as their times allow; ignores their offsets.

        Yields refusals; later batches are still written. Raises UnsupportedByBroker, and
        RequestError or ClusterUnreachable if it cannot get a producer id.
        """
        for part in _cut(records):
            yield from self._write(topic, partition, part)

    def _write(self, topic: str, partition: int, records: Sequence[Record]) -> Iterator[Refused]:
        try:
            self._append(topic, partition, records)
        except ClusterUnreachable as error:
            self._producer = None  # it is unknown which sequences are used
            yield Refused(len(records), error)
        except RequestError as error:
            is_too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
            if is_too_large and len(records) > 1:
                middle = len(records) // 2
                yield from self._write(topic, partition, records[:middle])
                yield from self._write(topic, partition, records[middle:])
                return
            if error.retriable:  # the retries ended without a result: as above
                self._producer = None
            yield Refused(len(records), error)

    def _append(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        place = (topic, partition)
        is_idempotent = self._acks == ACKS_ALL
        if is_idempotent and self._producer is None:
            self._producer = self._client.init_producer_id()
            self._sequences.clear()
        producer_id, epoch = self._producer or (-1, -1)
        sequence = self._sequences.get(place, 0) if is_idempotent else -1
        batch = build(
            [record._replace(offset=number) for number, record in enumerate(records)],
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        call = calls.append(topic, partition, batch, acks=self._acks)
        try:
            self._client.perform(call._replace(is_repeatable=self._acks != 0))
        except RequestError as error:
            if error.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # the batch is already there
                raise
        if is_idempotent:
            self._sequences[place] = (sequence + len(records)) % _SEQUENCES


def _cut(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cuts the records where two times are too far apart for one batch."""
    start = 0
    low = high = records[0].timestamp if records else 0
    for number, record in enumerate(records):
        low, high = min(low, record.timestamp), max(high, record.timestamp)
        if high - low >= _WIDEST_BATCH_MS:
            yield records[start:number]
            start, low, high = number, record.timestamp, record.timestamp
    if start < len(records):
        yield records[start:]
