"""What goes into `prepare` and what comes out of it, as plain tuples.

They have a file of their own because the compiled kernels build some of them. Times are int
milliseconds; whoever makes a `Plan` knows the clock and the topic's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.records.compression import produce_limit

if TYPE_CHECKING:
    from protocol.records.layout import Batch, Buffer


class Produced(NamedTuple):
    """A record set whose batches are whole, of allowed size, and have the CRCs they carry.

    `size` is without the partial batch that may trail the set.
    """

    batches: list[Batch]
    size: int


class Plan(NamedTuple):
    """What the topic wants of an append.

    `compression` None keeps the producer's codec. `min_timestamp` and `max_timestamp` are the
    CreateTime window, inclusive (INT64_MIN and INT64_MAX: no limit). `internal` marks appends
    the broker makes itself: control batches are allowed. `unpack_limit`, where given, bounds what
    a compressed batch may unpack to, below what the topic allows: CorruptMessage beyond it.
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

    @property
    def most_unpacked(self) -> int:
        """The bytes a compressed batch may unpack to."""
        limit = produce_limit(self.max_message_bytes)
        return limit if self.unpack_limit is None else min(limit, self.unpack_limit)


class PreparedBatch(NamedTuple):
    """One batch as it will lie in the log; `position` is within the bytes to write.

    `largest` and `first` are over records with a time (None if none has one); the append time on
    a LogAppendTime topic. `largest_offset` is what Kafka's time index stores with `largest`: the
    last offset of a format-2 or compressed batch, the own offset of a plain message.
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
    """The bytes to write and what is known of them.

    An empty set gives no batches, count 0 and a last offset before the first. `converted` tells
    that records were written anew (format, codec or offsets made it necessary).
    """

    buffers: list[Buffer]
    size: int
    batches: list[PreparedBatch]
    first_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    converted: bool
