"""Reads records of chosen partitions from given offsets, without a group: for tools.

`Consumer.poll` reads from every leader once. It never returns control batches, nor with
READ_COMMITTED the records of aborted transactions. If retention has deleted a position, reading
continues at the log start.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from tidelog.client.calls import records as calls
from tidelog.client.calls.records import EARLIEST, READ_UNCOMMITTED, Fetched
from tidelog.client.consumed import FetchedAppendTimes, consumed
from tidelog.client.errors import RequestError
from tidelog.protocol.errors import CorruptMessage, ErrorCode
from tidelog.protocol.records.batch import find_last, records, scan
from tidelog.protocol.records.columns import BrokenBatch, ColumnBuffers, RecordSelection, append_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.consumed import Consumed
    from tidelog.client.sync_client import Client
    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.topic_partition import TopicPartition


_ABORT: Final = 0  # the type of a transaction marker
PARTITION_BYTES: Final = 1 << 20
_NO_END: Final = 2**63 - 1


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
        with_append_times: bool = False,
    ) -> None:
        """Reads nothing yet. `with_append_times` asks for them; brokers other than tidelog have none."""
        self.positions = dict(positions)
        self._client = client
        self._isolation = isolation
        self._partition_max_bytes = partition_max_bytes
        self._with_append_times = with_append_times
        self._leaders: dict[TopicPartition, int] = {}

    def stop(self, place: TopicPartition) -> None:
        """Stops reading a partition."""
        self.positions.pop(place, None)

    def poll(self, max_wait_ms: int) -> dict[TopicPartition, Consumed]:
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
                    with_append_times=self._with_append_times,
                )
            )
            for place, fetched in answer.items():
                if isinstance(fetched, RequestError):
                    self._recover(place, fetched)
                elif (read := self._read(place, fetched)).offsets:
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

    def _read(self, place: TopicPartition, fetched: Fetched) -> Consumed:
        """Returns the records from the position on; moves it after the last batch that was read.

        Raises BrokenRecords if the first batch is broken.
        """
        begin, data = self.positions[place], fetched.records
        buffers = ColumnBuffers()
        try:
            wanted = RecordSelection(low_offset=begin, aborted=_aborted(data, fetched.aborted))
            try:
                end, _ = append_set(data, buffers, wanted)
            except BrokenBatch as broken:
                if not broken.position:
                    raise
                end = broken.position
            if data and not end:
                raise BrokenRecords(f"{place[0]}-{place[1]}: no whole batch at offset {begin}")
            following = begin
            if end:
                (last,) = scan(data, find_last(data[:end]), end)
                following = max(begin, last.last_offset + 1)
        except (BrokenBatch, CorruptMessage) as error:
            raise BrokenRecords(f"{place[0]}-{place[1]}: {error}") from error
        self.positions[place] = following
        return consumed(buffers, FetchedAppendTimes(fetched.append_times, begin, following))


def _aborted(
    data: memoryview, begun: Sequence[tuple[int, int]]
) -> dict[int, list[tuple[int, int]]]:
    """Returns the first and last offsets of aborted transactions, by producer id.

    Each ends with its producer's next marker that aborts, or is not ended yet. Raises CorruptMessage.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    if not begun:
        return found
    markers: dict[int, list[int]] = {}
    for batch in scan(data):
        if batch.is_control and _is_abort(data, batch):
            markers.setdefault(batch.producer_id, []).append(batch.base_offset)
    for producer_id, first in begun:
        ends = markers.get(producer_id, [])
        after = ends[bisect_right(ends, first) :][:1] or [_NO_END]
        found.setdefault(producer_id, []).append((first, after[0]))
    return found


def _is_abort(data: memoryview, batch: Batch) -> bool:
    """Returns whether a marker says abort: its key is a version, then the type, both int16."""
    for record in records(data, batch):
        return record.key is not None and int.from_bytes(record.key[2:4], "big") == _ABORT
    return False
