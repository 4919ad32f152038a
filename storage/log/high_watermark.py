"""The policies that advance a log's high watermark, below which others may read.

The high watermark is the smaller of the offset that the topic wants flushed and the offset that the
in-sync replicas have. A leader without followers is its own only in-sync replica and needs two
policies: at once, and after flush (`flush.messages=1`). A follower's high watermark is the
leader's. A policy says how far an append or a flush moves the high watermark; nothing else moves
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from storage.log.state import LogState


class HighWatermarkPolicy(Protocol):
    """Decides when others may read appended batches. Called under the append lock."""

    @property
    def waits_for_flush(self) -> bool:
        """Tell whether an append is above the high watermark until it is durable."""

    def readable_after_append(self, end_offset: int) -> int:
        """Return the high watermark of a log that ends at `end_offset`; 0 leaves it unchanged."""

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Handle a flush: the log is now durable up to `durable_offset`."""


class AtOnce:
    """Others may read an append at once, although a power loss may remove it again."""

    waits_for_flush = False

    def readable_after_append(self, end_offset: int) -> int:
        """Let others read the append."""
        return end_offset

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Let others read appends that waited for a flush before the policy changed."""
        state.advance_high_watermark(durable_offset)


class AfterFlush:
    """Others may read only what is durable."""

    waits_for_flush = True

    def readable_after_append(self, end_offset: int) -> int:
        """Leave the append to the next flush."""
        return 0

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Let others read what is now durable."""
        state.advance_high_watermark(durable_offset)


class Follower:
    """Others may read up to the leader's high watermark; appends and flushes do not move it."""

    waits_for_flush = True

    def readable_after_append(self, end_offset: int) -> int:
        """Wait for the leader's high watermark."""
        return 0

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Wait for the leader's high watermark."""


AT_ONCE = AtOnce()
AFTER_FLUSH = AfterFlush()
FOLLOWER = Follower()
