"""The arguments and the results of `prepare`, as plain tuples.

They have a file of their own because the compiled kernels build some of them. Times are int
milliseconds. The caller that makes a `AppendPlan` knows the clock and the topic's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.compression import produce_limit

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer


class Produced(NamedTuple):
    """A record set whose batches are whole, have an allowed size, and match their CRCs.

    `size` excludes a partial batch at the end of the set.
    """

    batches: list[Batch]
    size: int


class AppendPlan(NamedTuple):
    """The topic's requirements for an append.

    `compression` None keeps the producer's codec. `min_timestamp` and `max_timestamp` are the
    CreateTime window, inclusive (INT64_MIN and INT64_MAX: no limit). `internal` marks appends by
    the broker itself, in which control batches are allowed. `unpack_limit` limits the
    decompressed size of a batch, beyond which UnpackedTooLarge is raised; None: `produce_limit`.
    """

    first_offset: int
    magic: int
    compression: int | None
    append_time_ms: int
    log_append_time: bool
    min_timestamp: int
    max_timestamp: int
    leader_epoch: int
    compacted: bool
    max_message_bytes: int
    internal: bool = False
    unpack_limit: int | None = None
    too_old: str = ""  # why a time before the window is refused, if not for the window alone
    missing: tuple[int, ...] = ()  # times that mean none, in order; they are stored as -1

    @property
    def most_unpacked(self) -> int:
        """The largest decompressed size of a batch, in bytes."""
        if self.unpack_limit is None:
            return produce_limit(self.max_message_bytes)
        return self.unpack_limit


class PreparedBatch(NamedTuple):
    """One batch as it will be in the log; `position` is within the bytes to write.

    `largest` and `first` are over the records that have a time; they are None if no record has one.
    On a LogAppendTime topic they are the append time. `largest_offset` is the offset that Kafka's
    time index stores with `largest`: the last offset of a format-2 or compressed batch, the own
    offset of a plain message.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    largest: int | None
    largest_offset: int
    first: int | None
    has_missing: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


class Prepared(NamedTuple):
    """The bytes to write, and facts about them.

    An empty set has no batches, count 0, and a last offset before the first. `converted` says that
    records were encoded again, because format, codec or offsets required it.
    """

    buffers: list[Buffer]
    size: int
    batches: list[PreparedBatch]
    first_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    converted: bool
