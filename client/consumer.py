"""Records of chosen partitions, each from an offset on, without a group: for tools.

`Consumer.poll` reads from every leader once. Control batches are never returned, with READ_COMMITTED
neither are the records of aborted transactions. Where retention has overtaken a position, reading goes
on at the log start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client.calls import records as calls
from client.calls.records import EARLIEST, READ_UNCOMMITTED, Fetched
from client.errors import RequestError
from protocol.errors import CorruptMessage, ErrorCode
from protocol.records.batch import records, scan, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from client.sync_client import Client
    from protocol.records.layout import Batch, Record

TopicPartition = tuple[str, int]

_ABORT: Final = 0  # the kind of a marker
PARTITION_BYTES: Final = 1 << 20


class Consumed(NamedTuple):
    """A record, and whether its time is the broker's."""

    record: Record
    is_log_append_time: bool


class BrokenRecords(Exception):
    """A broker sent what is no batch."""


class Consumer:
    """Reads the partitions of `positions`, each from its offset on; `positions` moves on by reading."""

    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        *,
        isolation: int = READ_UNCOMMITTED,
        partition_max_bytes: int = PARTITION_BYTES,
    ) -> None:
        self.positions = dict(positions)
        self._client = client
        self._isolation = isolation
        self._partition_max_bytes = partition_max_bytes
        self._leaders: dict[TopicPartition, int] = {}

    def stop(self, place: TopicPartition) -> None:
        """Read no more of a partition."""
        self.positions.pop(place, None)

    def poll(self, max_wait_ms: int) -> dict[TopicPartition, list[Consumed]]:
        """The next records of every partition that has some; waits for the first about `max_wait_ms`.

        Raises ClientError, and BrokenRecords for what cannot be read.
        """
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for place, offset in self.positions.items():
            by_leader.setdefault(self._leader(place), {})[place] = offset
        found = {}
        for node_id, positions in by_leader.items():
            answer = self._client.perform(
                calls.fetch_partitions(
                    node_id,
                    positions,
                    partition_max_bytes=self._partition_max_bytes,
                    max_wait_ms=max_wait_ms // len(by_leader),
                    isolation=self._isolation,
                )
            )
            for place, fetched in answer.items():
                if isinstance(fetched, RequestError):
                    self._recover(place, fetched)
                elif read := list(self._read(place, fetched)):
                    found[place] = read
        return found

    def _leader(self, place: TopicPartition) -> int:
        known = self._leaders.get(place, -1)
        if known < 0:
            topic, partition = place
            info = self._client.topics([topic])[topic]
            self._leaders.update(
                ((topic, number), one.leader) for number, one in enumerate(info.partitions)
            )
            known = self._leaders.get(place, -1)
            if known < 0:  # waits until it has one
                self._client.end_offset(topic, partition)
                return self._leader(place)
        return known

    def _recover(self, place: TopicPartition, error: RequestError) -> None:
        """Begin at the log start, or find the new leader. Raises RequestError for what will not pass."""
        self._leaders.pop(place, None)
        topic, partition = place
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = self._client.list_offsets(topic, {partition: EARLIEST})[partition].offset
            self.positions[place] = start
        elif error.retriable:
            self._client.end_offset(
                topic, partition
            )  # tries until there is a leader, or time is up
        else:
            raise error

    def _read(self, place: TopicPartition, fetched: Fetched) -> Iterator[Consumed]:
        """The records from the position on, which moves behind the last whole batch."""
        begin = self.positions[place]
        data = fetched.records
        aborted = sorted(fetched.aborted, key=lambda each: each[1])
        dropped: set[int] = set()
        try:
            batches = scan(data)
            if data and not batches:
                raise BrokenRecords(f"{place[0]}-{place[1]}: no whole batch at offset {begin}")
            for batch in batches:
                while aborted and aborted[0][1] <= batch.last_offset:
                    dropped.add(aborted.pop(0)[0])
                verify(data, batch)
                if batch.is_control:
                    if batch.producer_id in dropped and _is_abort(data, batch):
                        dropped.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in dropped):
                    for record in records(data, batch):
                        if record.offset >= begin:
                            yield Consumed(record, batch.is_log_append_time)
                self.positions[place] = max(self.positions[place], batch.last_offset + 1)
        except CorruptMessage as error:
            raise BrokenRecords(f"{place[0]}-{place[1]}: {error}") from error


def _is_abort(data: memoryview, batch: Batch) -> bool:
    """Whether a marker says abort: its key is a version, then the kind, both int16."""
    for record in records(data, batch):
        return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT
    return False
