"""Reads records of chosen partitions from given offsets, without a group: for tools.

`Consumer.poll` reads from every leader once. It never returns control batches, nor with
READ_COMMITTED the records of aborted transactions. If retention has deleted a position, reading
continues at the log start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.calls import records as calls
from tidelog.client.calls.records import EARLIEST, READ_UNCOMMITTED, Fetched
from tidelog.client.errors import RequestError
from tidelog.protocol.errors import CorruptMessage, ErrorCode
from tidelog.protocol.records.batch import records, scan, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.client.sync_client import Client
    from tidelog.protocol.records.layout import Batch, Record
    from tidelog.protocol.topic_partition import TopicPartition


_ABORT: Final = 0  # the type of a transaction marker
PARTITION_BYTES: Final = 1 << 20


class Consumed(NamedTuple):
    """A record, and whether its time was set by the broker."""

    record: Record
    is_log_append_time: bool


class BrokenRecords(Exception):
    """A broker sent invalid batches."""


class Consumer:
    """Reads the partitions of `positions`, from these offsets on; reading advances `positions`."""

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
        """Stops reading a partition."""
        self.positions.pop(place, None)

    def poll(self, max_wait_ms: int) -> dict[TopicPartition, list[Consumed]]:
        """Returns the next records of every partition that has some.

        It waits about `max_wait_ms` for the first. Raises ClientError, and BrokenRecords for
        invalid data.
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
            if known < 0:  # waits until the partition has a leader
                self._client.end_offset(topic, partition)
                return self._leader(place)
        return known

    def _recover(self, place: TopicPartition, error: RequestError) -> None:
        """Moves to the log start, or finds the new leader.

        Raises RequestError for permanent errors.
        """
        self._leaders.pop(place, None)
        topic, partition = place
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = self._client.list_offsets(topic, {partition: EARLIEST})[partition].offset
            self.positions[place] = start
        elif error.retriable:
            self._client.end_offset(topic, partition)  # retries until there is a leader
        else:
            raise error

    def _read(self, place: TopicPartition, fetched: Fetched) -> Iterator[Consumed]:
        """Yields the records from the position on; moves it after the last complete batch."""
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
    """Returns whether a marker says abort: its key is a version, then the type, both int16."""
    for record in records(data, batch):
        return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT
    return False
