"""Samples a partition over the wire: the headers of some batches, spread evenly over its offsets.

A broker does not tell where its segments begin, and to read a whole log for its headers would cost
as much as to copy it. So one batch is fetched at each of some offsets, and stands for the offsets
up to the next. A log of few batches is seen whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidelog.client import EARLIEST, Client, RequestError
from tidelog.pipeline.engine.planned import Sample
from tidelog.pipeline.source.append_times import UNKNOWN, AppendTimesAnswer, FetchedTimes
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import scan
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.client import Fetched

MOST: Final = 512
"""How many batches of a partition are fetched, about."""

_ONE_BATCH: Final = 1  # a broker returns the first batch whole, however small the limit
_RECORD_BYTES: Final = 100


class ListedPartition(NamedTuple):
    """A partition of a cluster; its end is the high watermark when it was listed."""

    topic: str
    partition: int
    brokers: str
    start_offset: int
    end_offset: int

    @property
    def size_bytes(self) -> int:
        """The number of bytes that sampling reads, roughly."""
        return min(self.end_offset - self.start_offset, MOST) * _RECORD_BYTES


def partitions(brokers: str, wants: Callable[[str], bool]) -> list[ListedPartition]:
    """Lists the partitions of the wanted topics with their offsets. Raises ClientError."""
    found = []
    with Client(brokers) as client:
        for name, topic in sorted(client.topics().items()):
            for partition in range(len(topic.partitions)) if wants(name) else ():
                start = client.list_offsets(name, {partition: EARLIEST})[partition].offset
                end = client.end_offset(name, partition)
                found.append(ListedPartition(name, partition, brokers, start, end))
    return found


def samples(partition: ListedPartition, most: int = MOST) -> Iterator[Sample]:
    """Yields samples in the order of offsets. Raises ClientError.

    Offsets that retention deletes meanwhile, or that compaction has removed, are passed over.
    """
    offset, end = partition.start_offset, partition.end_offset
    stride = -(-(end - offset) // most)
    with Client(partition.brokers) as client:
        while offset < end:
            fetched = _fetch(client, partition, offset)
            if fetched is None:
                key = partition.partition
                start = client.list_offsets(partition.topic, {key: EARLIEST})[key].offset
                offset = max(offset + 1, start)
                continue
            found = _sample(fetched, offset, stride, end)
            if found is None:
                return
            yield found
            offset = found.end_offset


def _fetch(client: Client, partition: ListedPartition, offset: int) -> Fetched | None:
    """Returns the batch at an offset; None if the offset is not in the log any more."""
    try:
        return client.fetch(
            partition.topic,
            partition.partition,
            offset,
            max_bytes=_ONE_BATCH,
            with_append_times=True,
        )
    except RequestError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return None


def _sample(fetched: Fetched, offset: int, stride: int, end: int) -> Sample | None:
    """Returns the sample that begins at an offset; None if the log has no batch from there on."""
    batches = scan(fetched.records)
    batch = next((one for one in batches if one.last_offset >= offset), None)
    if batch is None:
        return None
    following = batch.last_offset + 1
    stop = min(max(following, offset + stride), end)
    base = batch.base_offset if batch.base_offset >= 0 else offset  # a wrapper has none
    count = following - max(base, offset)
    share = batch.size * count // max(1, following - base)
    times = FetchedTimes().with_answer(AppendTimesAnswer(offset, following, fetched.append_times))
    append = int(times.at(np.array([batch.last_offset], np.int64))[0])
    bases = [one for one, _ in fetched.append_times if one <= base]
    largest = None if batch.max_timestamp == NO_TIMESTAMP else batch.max_timestamp
    is_stamped = batch.is_log_append_time
    if append == UNKNOWN and is_stamped and largest is not None:
        append = largest
    has_base = largest is not None and not is_stamped and batch.base_timestamp != NO_TIMESTAMP
    first = batch.base_timestamp if has_base else largest
    return Sample(
        offset,
        stop,
        share * (stop - offset) // max(1, count) if stop > following else share,
        first,
        largest,
        None if append == UNKNOWN else append,
        max(bases, default=None),
        batch.is_control,
    )
