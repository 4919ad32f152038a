"""The policies that advance a log's high watermark, below which others may read.

The high watermark is the smaller of the offset that the topic wants flushed and the offset that the
in-sync replicas have. A leader that is the only replica needs two policies: at once, and after flush
(`flush.messages=1`). Where replication has assigned the role, it says how far the in-sync replicas
are, and a follower's high watermark is its leader's. A policy says how far an append or a flush moves
the high watermark; nothing else moves it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.storage.log.state import LogState
    from tidelog.storage.log.values import Leadership


class Role(Enum):
    """What a log is among the replicas of its partition."""

    LEADER = "leader"  # it takes appends; other replicas follow it, if there are any
    FOLLOWER = "follower"


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


class AsReplicated:
    """Others may read as far as replication allows: on a leader as far as its in-sync replicas are.

    On a follower it is what the leader says. Appends and flushes do not move it.
    """

    reads_at_once = False

    def flushed(self, state: LogState, durable_offset: int) -> None:
        """Waits for replication."""


AT_ONCE = AtOnce()
AFTER_FLUSH = AfterFlush()
AS_REPLICATED = AsReplicated()


def believed(state: LogState) -> int:
    """Returns the offset up to which a log may be read for sure: what a checkpoint keeps.

    That is the high watermark, but for a replica that was opened and has no role yet. It counts as
    readable to its end, and of that only what the checkpoint before said is sure.
    """
    high_watermark, known = state.ends.high_watermark, state.recovery.known_high_watermark
    if not state.awaits_role:
        return high_watermark
    start_offset = state.version.log_start_offset
    return start_offset if known is None else min(max(known, start_offset), high_watermark)


def policy_of(leadership: Leadership, flush_messages: int) -> HighWatermarkPolicy:
    """Returns the policy for a role and the topic's `flush.messages`."""
    if leadership.is_assigned:
        return AS_REPLICATED
    return AFTER_FLUSH if flush_messages == 1 else AT_ONCE
