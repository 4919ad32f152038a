"""Up to where others may read a log: the policies that advance its high watermark.

The high watermark is the smaller of what the topic wants flushed and what the in-sync replicas have. A log
without followers has itself as its only in-sync replica, so two policies are enough: at once, and after
flush (`flush.messages=1`). A policy says how far an append or a flush moves it; nothing else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from storage.log.state import LogState


class HighWatermarkPolicy(Protocol):
    """When a log lets others read what was appended. Called under the append lock."""

    @property
    def waits_for_flush(self) -> bool:
        """Whether an append lies above the high watermark until it is durable."""

    def readable_after_append(self, end_offset: int) -> int:
        """Return up to where others may read a log that ends at `end_offset` now; 0 changes nothing."""

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """The log is durable up to `durable_offset` now."""


class AtOnce:
    """Others may read what was appended at once: a power loss may take it from them."""

    waits_for_flush = False

    def readable_after_append(self, end_offset: int) -> int:
        """Let others read the append."""
        return end_offset

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Let others read what an append left to the flush before the policy was changed."""
        state.advance_high_watermark(durable_offset)


class AfterFlush:
    """Others may read what is durable."""

    waits_for_flush = True

    def readable_after_append(self, end_offset: int) -> int:  # noqa: ARG002
        """Leave the append to the next flush."""
        return 0

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Let others read what has become durable."""
        state.advance_high_watermark(durable_offset)


class Follower:
    """Others may read what the leader says: an append and a flush move nothing."""

    waits_for_flush = True

    def readable_after_append(self, end_offset: int) -> int:  # noqa: ARG002
        """Wait for the leader's word."""
        return 0

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Wait for the leader's word."""


AT_ONCE = AtOnce()
AFTER_FLUSH = AfterFlush()
FOLLOWER = Follower()
