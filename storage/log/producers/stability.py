"""The last stable offset of a log, and the transactions that it follows from.

The last stable offset is the smaller of the high watermark and the first offset of the oldest
transaction that is open, or whose marker is not below the high watermark; it is never below the log's
start. Readers of committed data read up to it.

The log's producers say which transactions are open. They are read when they are first needed: until
then the last stable offset is not known, and is given as the high watermark. Whoever shows committed
data calls `read` first. All that changes the state needs the append lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.log import failures
from tidelog.storage.log.producers.producer_state import NO_TRANSACTION
from tidelog.storage.log.producers.recovered_producers import load_producers
from tidelog.storage.log.producers.unstable import Ended, Unstable
from tidelog.storage.log.version import Ends
from tidelog.storage.segment.transaction_index import VERSION, Aborted

if TYPE_CHECKING:
    from tidelog.storage.log.producers.producer_state import Producers, Sequenced
    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment


def stable_at(state: LogState, high_watermark: int) -> int:
    """Returns the last stable offset with a high watermark, and forgets what is stable by then."""
    unstable = state.unstable
    first = None if unstable is None else unstable.first_offset(high_watermark)
    if first is None:
        state.unstable = None
        return high_watermark
    return min(high_watermark, max(first, state.version.log_start_offset))


def settle(state: LogState) -> None:
    """Sets the last stable offset anew: transactions or the log's start have changed."""
    end_offset, high_watermark, _ = state.ends
    state.ends = Ends(end_offset, high_watermark, stable_at(state, high_watermark))


def cut(state: LogState, end_offset: int, high_watermark: int) -> None:
    """Sets the ends of a truncated log; a transaction that has lost its marker is open again."""
    if state.unstable is not None:
        state.unstable.truncate_to(end_offset)
    state.ends = Ends(end_offset, high_watermark, stable_at(state, high_watermark))


def note(state: LogState, producers: Producers, batch: Sequenced, first_offset: int) -> None:
    """Opens or ends the transaction of a batch; before `Producers.appended` records it."""
    known = producers.get(batch.producer_id)
    opened_at = NO_TRANSACTION if known is None else known.transaction_first_offset
    if batch.marker is None:
        if opened_at == NO_TRANSACTION:
            if state.unstable is None:
                state.unstable = Unstable()
            state.unstable.begin(batch.producer_id, first_offset)
    elif opened_at != NO_TRANSACTION and state.unstable is not None:
        state.unstable.end(Ended(batch.producer_id, opened_at, first_offset))


def index_abort(
    state: LogState, producers: Producers, batch: Sequenced, segment: Segment, offset: int
) -> None:
    """Writes the index entry of a transaction that a batch aborts, before the batch is written.

    Nothing for other batches, and for a transaction without data. Raises OSError; then there is no
    such entry. If the batch is not stored, `Segment.append` takes the entry back.
    """
    known = producers.get(batch.producer_id)
    if batch.marker is None or batch.marker.is_commit or known is None or state.unstable is None:
        return
    if known.has_transaction:
        segment.repair_tail()  # it drops entries behind the log's end, so not after this one
        stable = state.unstable.stable_behind(batch.producer_id, offset)
        first_offset = known.transaction_first_offset
        segment.aborted.append(Aborted(VERSION, batch.producer_id, first_offset, offset, stable))


def read(state: LogState) -> Producers:
    """Returns the producers, read from snapshot and log, and settles the last stable offset.

    Raises KafkaStorageError and CorruptMessage.
    """
    while (producers := state.producers) is None:  # a truncation forgets them
        corrections = state.timing.corrections
        with state.hold() as version:
            try:
                read = load_producers(
                    state.directory,
                    version.segments,
                    state.producer_id_expiration_ms,
                    state.deletion_ms,
                    log_start_offset=version.log_start_offset,
                    corrections=corrections,
                    unindexed_offset=state.recovery.unindexed_offset,
                )
            except OSError as error:
                raise failures.storage_error(
                    state, "producers' state cannot be read", error
                ) from error
        with state.append_lock:
            # Another thread may have read them and appended since, or corrected the clock; or the
            # log was truncated.
            is_of_this_log = state.version.generation == version.generation
            if (
                state.producers is None
                and state.timing.corrections == corrections
                and is_of_this_log
            ):
                take(state, read)
                state.recovery = state.recovery._replace(unindexed_offset=None)
    return producers


def take(state: LogState, producers: Producers) -> None:
    """Takes over producers that were read from the log up to its end."""
    state.producers = producers
    opened = [
        (known.producer_id, known.transaction_first_offset)
        for known in producers.open_transactions()
    ]
    if opened and state.unstable is None:
        state.unstable = Unstable()
    if state.unstable is not None:
        state.unstable.reopen(opened)
        settle(state)
