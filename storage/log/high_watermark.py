"""Up to where others may read a log: the policies that advance its high watermark.

The high watermark is the smaller of what the topic wants flushed and what the in-sync replicas have. A log
without followers has itself as its only in-sync replica, so two policies are enough: at once, and after
flush (`flush.messages=1`). A policy calls `LogState.advance_high_watermark`; nothing else moves it.
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

    def appended(self, state: LogState, end_offset: int) -> None:
        """The log ends at `end_offset` now."""

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """The log is durable up to `durable_offset` now."""


class AtOnce:
    """Others may read what was appended at once: a power loss may take it from them."""

    waits_for_flush = False

    def appended(self, state: LogState, end_offset: int) -> None:
        """Let others read the append."""
        state.advance_high_watermark(end_offset)

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Let others read what an append left to the flush before the policy was changed."""
        state.advance_high_watermark(durable_offset)


class AfterFlush:
    """Others may read what is durable."""

    waits_for_flush = True

    def appended(self, state: LogState, end_offset: int) -> None:
        """Leave the append to the next flush."""

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Let others read what has become durable."""
        state.advance_high_watermark(durable_offset)


class Follower:
    """Others may read what the leader says: an append and a flush move nothing."""

    waits_for_flush = True

    def appended(self, state: LogState, end_offset: int) -> None:
        """Wait for the leader's word."""

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Wait for the leader's word."""


AT_ONCE = AtOnce()
AFTER_FLUSH = AfterFlush()
FOLLOWER = Follower()
