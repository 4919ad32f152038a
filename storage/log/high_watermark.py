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
    def reads_at_once(self) -> bool:
        """Returns whether an append moves the high watermark to the log's end."""

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Handles a flush: the log is now durable up to `durable_offset`."""


class AtOnce:
    """Others may read an append at once, although a power loss may remove it again."""

    reads_at_once = True

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Lets others read appends that waited for a flush before the policy changed."""
        state.advance_high_watermark(durable_offset)


class AfterFlush:
    """Others may read only what is durable."""

    reads_at_once = False

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Lets others read what is now durable."""
        state.advance_high_watermark(durable_offset)


class Follower:
    """Others may read up to the leader's high watermark; appends and flushes do not move it."""

    reads_at_once = False

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Waits for the leader's high watermark."""


AT_ONCE = AtOnce()
AFTER_FLUSH = AfterFlush()
FOLLOWER = Follower()
