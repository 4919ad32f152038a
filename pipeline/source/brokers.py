"""A cluster as source: splits with offsets fixed by ListOffsets, and records read by Fetch.

The first offset of a split is the log start. If only later event times are wanted, it is the offset
that the broker finds for the earliest of them: no record before it has such a time. The end is the
high watermark at planning time (the last stable offset for read_committed). Sizes are estimates,
because a broker reports no bytes here. tidelog reports append times with the records, for batches
as they are in the log; Apache Kafka reports none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client import EARLIEST, LATEST, Client, RequestError
from tidelog.client import READ_COMMITTED as ISOLATED
from tidelog.client import READ_UNCOMMITTED as OPEN
from tidelog.pipeline.source.append_times import AppendTimesAnswer, FetchedTimes
from tidelog.pipeline.source.columns import (
    ATTRIBUTES,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    PRODUCER_ID,
)
from tidelog.pipeline.source.fetching import Fetches
from tidelog.pipeline.source.reading import Filling, broken
from tidelog.pipeline.source.splits import (
    LOG_END,
    NO_END,
    READ_COMMITTED,
    RECORD_BYTES,
    SourceError,
    Split,
)
from tidelog.pipeline.source.transactions import heads
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.columns import (
    FULL,
    BrokenBatch,
)
from tidelog.protocol.records.layout import CONTROL_BIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.source.columns import Columns, Ints
    from tidelog.pipeline.source.reading import ReadOptions
    from tidelog.pipeline.source.splits import OffsetRange, Selection
    from tidelog.protocol.topic_partition import TopicPartition

_FIRST_SPECIAL: Final = -6  # for ListOffsets -6 to -1 are codes
_IDLE_FETCHES: Final = 20


def plan(selection: Selection, addresses: str) -> list[Split]:
    """Cuts the wanted partitions of a cluster into splits. Raises SourceError and ClientError."""
    if selection.upto == LOG_END:
        raise SourceError(f"upto={LOG_END} needs log directories: brokers show the high watermark")
    splits: list[Split] = []
    with Client(addresses) as client:
        for key, (start, end) in _ranges(selection, client).items():
            first = start
            if selection.low_time is not None and start < end:
                found = _first_reaching(client, *key, selection.low_time)
                first = end if found < 0 else max(start, found)
            for low in range(first, end, selection.split_offsets):
                high = min(low + selection.split_offsets, end)
                size = (high - low) * RECORD_BYTES
                splits.append(Split(*key, low, high, size, brokers=addresses))
    return splits


def ranges(selection: Selection, addresses: str) -> dict[TopicPartition, OffsetRange]:
    """Returns start and end of the wanted partitions. Raises SourceError and ClientError."""
    with Client(addresses) as client:
        return _ranges(selection, client)


def identified(
    selection: Selection, addresses: str
) -> tuple[dict[TopicPartition, OffsetRange], dict[str, str]]:
    """Returns `ranges`, and the ids of their topics where the brokers have them.

    Ids are asked for last: those of a topic that is created again meanwhile are the new ones.
    """
    with Client(addresses) as client:
        found = _ranges(selection, client)
        topics = client.topics()
    wanted = {topic for topic, _ in found} & topics.keys()
    return found, {name: topics[name].topic_id for name in wanted if topics[name].topic_id}


def _ranges(selection: Selection, client: Client) -> dict[TopicPartition, OffsetRange]:
    isolation = ISOLATED if selection.isolation == READ_COMMITTED else OPEN
    topics = client.topics()
    selection.check_found(set(topics))
    found: dict[TopicPartition, OffsetRange] = {}
    for name in sorted(topics):
        if not selection.wants(name):
            continue
        count = len(topics[name].partitions)
        wanted = [number for number in range(count) if selection.wants_partition((name, number))]
        starts = client.list_offsets(name, dict.fromkeys(wanted, EARLIEST))
        ends = client.list_offsets(name, dict.fromkeys(wanted, LATEST), isolation=isolation)
        for number in wanted:
            key = name, number
            found[key] = selection.range_of(key, starts[number].offset, ends[number].offset)
    selection.check_partitions(
        {(name, number) for name, one in topics.items() for number in range(len(one.partitions))}
    )
    return found


def _first_reaching(client: Client, topic: str, partition: int, time_ms: int) -> int:
    """Returns the first offset with a record at this time or later; -1: there is none.

    If the broker does not support that time, it is the first offset of all.
    """
    asked = time_ms if not _FIRST_SPECIAL <= time_ms <= -1 else _FIRST_SPECIAL - 1
    try:
        return client.list_offsets(topic, {partition: asked})[partition].offset
    except RequestError as error:
        if error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
            raise
        return 0


def read(split: Split, options: ReadOptions) -> Iterator[Columns]:
    """Reads a split by Fetch. Raises SourceError if the log no longer has it, and ClientError."""
    assert split.brokers is not None
    fetched_times = FetchedTimes()
    filling = Filling(split, options.wanted(split), fetched_times)
    offset, idle = split.start_offset, 0
    with Client(split.brokers) as client:
        fetches = Fetches(client, split, options)
        answer = fetches.begin(offset)
        while offset < split.end_offset and idle < _IDLE_FETCHES:
            fetched = answer()
            headers = heads(fetched.records)
            if not len(headers):
                _refuse_broken(split, filling, fetched.records)
                fetches.check_end(fetched)
                idle += 1
                if idle == _IDLE_FETCHES:
                    _refuse_silence(client, split, offset)
                else:
                    answer = fetches.begin(offset)
                continue
            idle = 0
            following = int(headers[-1, LAST_OFFSET]) + 1
            if following <= offset:
                raise SourceError(
                    f"{split.topic}-{split.partition} of {split.brokers}: asked for offset {offset}, the"
                    f" broker sends what ends before offset {following}"
                )
            if following < split.end_offset:  # the broker works while these are decoded
                answer = fetches.begin(following)
            if fetched.aborted:
                aborted = _spans(fetched.aborted, headers)
                filling.wanted = filling.wanted._replace(aborted=aborted)
            fetched_times = fetched_times.with_answer(
                AppendTimesAnswer(offset, following, fetched.append_times)
            )
            filling.append_times = fetched_times
            at, why = 0, FULL
            while why == FULL:
                try:
                    at, why = filling.append(fetched.records, at, 0)
                except BrokenBatch as error:
                    raise broken(split, error, 0) from error
                if why == FULL:
                    yield _taken(filling)
                    filling.append_times = fetched_times = fetched_times.of_last_answer()
            offset = following
            del fetched  # its buffer is for the next answer
    if not filling.is_empty:
        yield _taken(filling)


def _refuse_silence(client: Client, split: Split, offset: int) -> None:
    """Raises SourceError if existing offsets return no records, unless compaction may explain it.

    A broker that is slow to read from remote storage (KIP-405) also sends nothing.
    """
    policy = client.topic_settings(split.topic).get("cleanup.policy")
    if policy is None or "compact" not in (policy.value or ""):
        raise SourceError(
            f"{split.topic}-{split.partition} of {split.brokers}: the broker sends nothing of offsets"
            f" {offset} to {split.end_offset - 1}, which it says are there"
        )


def _refuse_broken(split: Split, filling: Filling, records: memoryview) -> None:
    """Raises SourceError for bytes without a batch: the first batch is always complete."""
    if not len(records):
        return
    try:
        filling.append(records, 0, 0)
    except BrokenBatch as error:
        raise broken(split, error, 0) from error
    raise SourceError(
        f"{split.topic}-{split.partition} of {split.brokers}: the first batch of an answer is cut short"
        f" after {len(records)} bytes"
    )


def _spans(
    aborted: Sequence[tuple[int, int]], headers: Ints
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Returns the ranges of aborted transactions: each ends at the next marker of its producer."""
    is_control = (headers[:, MAGIC] == 2) & (headers[:, ATTRIBUTES] & CONTROL_BIT != 0)
    markers = headers[is_control]
    spans: dict[int, tuple[tuple[int, int], ...]] = {}
    for producer_id, first in aborted:
        own = markers[(markers[:, PRODUCER_ID] == producer_id) & (markers[:, LAST_OFFSET] >= first)]
        last = int(own[0, LAST_OFFSET]) if len(own) else NO_END
        spans[producer_id] = (*spans.get(producer_id, ()), (first, last))
    return spans


def _taken(filling: Filling) -> Columns:
    columns = filling.take()
    columns.batches[:, POSITION] = -1
    return columns
