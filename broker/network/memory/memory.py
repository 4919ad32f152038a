"""The shares of one broker's memory, by use.

Of `memory.limit.bytes` half is for records that are decompressed or converted, a quarter for frames that
arrive, three sixteenths for answers that have not been read, and one sixteenth for replication: half of
that for answers to followers, half for what the followers here receive from their leaders.
One use cannot reserve the free bytes of another: so no flood of one kind can stop another kind of work.
`queued.max.request.bytes`, if it is smaller, limits the first share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.memory.share import Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.config import BrokerConfig


class Memory:
    """The memory that the requests of one broker may reserve, by its use."""

    def __init__(self, config: BrokerConfig) -> None:
        limit_bytes = config.limits.memory_limit_bytes
        queued_bytes = limit_bytes // 4
        if config.limits.queued_max_request_bytes > 0:
            queued_bytes = min(queued_bytes, config.limits.queued_max_request_bytes)
        self.requests = Share(queued_bytes)
        # The largest frame that is read; there must be room for it and its length.
        self.most_frame_bytes = min(config.limits.socket_request_max_bytes, queued_bytes - 4)
        self.records = Share(limit_bytes // 2)
        self.answers = Share(limit_bytes * 3 // 16)
        self.replication = Share(limit_bytes // 32)
        self.received = Share(limit_bytes // 32)

    def __iter__(self) -> Iterator[tuple[str, Share]]:
        """Yields the shares, each with the name of its use in metrics."""
        yield "requests", self.requests
        yield "records", self.records
        yield "answers", self.answers
        yield "replication", self.replication
        yield "received", self.received
