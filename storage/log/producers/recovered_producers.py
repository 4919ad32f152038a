"""Rebuilding the state of idempotent producers from the newest snapshot and the log.

A snapshot holds one batch per producer. With that alone, a pipelining client that lost the
responses to its last few batches would have its retries refused after a restart. The log has the
other batches: the headers of its last few megabytes restore the last five batches of every
producer, as far as they are there.
"""

from __future__ import annotations

import functools
import logging
from bisect import bisect_right
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.protocol.records.markers import NO_COORDINATOR_EPOCH, read_marker
from tidelog.storage import filenames, files
from tidelog.storage.log.producers import producer_snapshots
from tidelog.storage.log.producers.producer_state import (
    REMEMBERED_BATCHES,
    ProducerBatch,
    Producers,
    Sequenced,
)
from tidelog.storage.log.recovery.listing import listed
from tidelog.storage.segment.transaction_index import VERSION, Aborted
from tidelog.storage.time.corrections import judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidelog.protocol.records.batch import Batch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.producers.producer_state import Producer
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.corrections import Correction

_IN_TRANSACTION = CONTROL_BIT | TRANSACTIONAL_BIT
_REFILL_BYTES = 8 * 1024 * 1024  # five batches of the largest usual size, and some more
_CUT_BYTES = (64 * 1024, 1024 * 1024, _REFILL_BYTES)  # how much is read for producers of a cut log

_log = logging.getLogger("tidelog.storage")


def load_producers(
    directory: Path,
    segments: Sequence[Segment],
    expiration_ms: int,
    now_ms: int,
    *,
    log_start_offset: int,
    corrections: Sequence[Correction] = (),
    unindexed_offset: int | None = None,
) -> Producers:
    """Reads the newest valid snapshot and the log after it. Raises OSError.

    From `unindexed_offset` on, transactions that were aborted may lack their entry in the index of
    their segment: it is added.

    After a power loss, deleted files may come back in part, in any order of names. A producer that
    wrote before such a hole may have written in it: it is dropped, because an unknown producer is
    safer than one with an old sequence.
    """
    last_offset = segments[-1].tail.end_offset
    if unindexed_offset is not None:
        last_offset = min(last_offset, unindexed_offset)
    producers, offset = Producers(expiration_ms), segments[0].base_offset
    for snapshot in reversed(listed(directory).snapshot_offsets):
        if not segments[0].base_offset <= snapshot <= last_offset:
            continue
        path = filenames.snapshot_path(directory, snapshot)
        try:
            producers, offset = producer_snapshots.read(path, expiration_ms), snapshot
        except FileNotFoundError:  # a deletion has removed it meanwhile
            continue
        except producer_snapshots.SnapshotError as error:
            _log.warning("bad producer snapshot removed", extra={"reason": str(error)})
            files.unlink(path)
            continue
        break
    _refill(segments, offset, producers)
    for segment in segments:
        if segment.tail.end_offset <= offset:
            continue
        reached = _scan_producers(segment, offset, producers, now_ms, unindexed_offset)
        if reached < segment.tail.end_offset <= log_start_offset:
            producers = Producers(expiration_ms)
    if corrections:
        # A snapshot has times as they counted then, by some of the corrections.
        producers.correct(functools.partial(_counted, segments, corrections, now_ms))
    producers.expire(now_ms)
    return producers


def _counted(
    segments: Sequence[Segment],
    corrections: Sequence[Correction],
    now_ms: int,
    offset: int,
    _: int,
) -> int:
    """Returns what the append time of the batch with this last offset counts as.

    Where it is unknown, because the batch is gone, its producer is kept for a full expiration time.
    """
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    append_time_ms = segments[at].append_times.at(offset) if at >= 0 else None
    return judged(corrections, offset, now_ms if append_time_ms is None else append_time_ms)


def _scan_producers(
    segment: Segment,
    offset: int,
    producers: Producers,
    now_ms: int,
    unindexed_offset: int | None,
) -> int:
    """Records the batches of a segment from an offset on; returns the end of the last batch."""
    entry, end_offset = segment.index.floor(offset), segment.base_offset
    last: defaultdict[int, deque[Batch]] = defaultdict(lambda: deque(maxlen=REMEMBERED_BATCHES))
    for found in segment.walk(0 if entry is None else entry.position):
        batch = found.batch
        end_offset = batch.last_offset + 1
        if batch.base_offset < offset or batch.producer_id < 0:
            continue
        if batch.attributes & _IN_TRANSACTION:  # what comes before it decides what it does
            for earlier in last.pop(batch.producer_id, ()):
                _record(segment, earlier, None, producers, now_ms)
            if unindexed_offset is not None and unindexed_offset <= batch.base_offset:
                _restore_abort(segment, found, producers)
            _record(segment, batch, found.buffer, producers, now_ms)
        else:
            last[batch.producer_id].append(batch)
    for batches in last.values():
        for batch in batches:
            _record(segment, batch, None, producers, now_ms)
    return end_offset


def _restore_abort(segment: Segment, found: Found, producers: Producers) -> None:
    """Adds the index entry of an aborted transaction that lacks it. Raises OSError."""
    batch = found.batch
    known, marker = producers.get(batch.producer_id), None
    if batch.is_control and known is not None and known.has_transaction:
        marker = read_marker(found.buffer, batch)
    if known is None or marker is None or marker.is_commit:
        return
    others = (each for each in producers.open_transactions() if each is not known)
    stable = next((each.transaction_first_offset for each in others), batch.last_offset + 1)
    first_offset = known.transaction_first_offset
    segment.aborted.restore(
        Aborted(VERSION, batch.producer_id, first_offset, batch.base_offset, stable)
    )


def _record(
    segment: Segment, batch: Batch, buffer: Buffer | None, producers: Producers, now_ms: int
) -> None:
    """Records one batch; the buffer is that of a control batch."""
    fields = sequenced(batch, buffer)
    if fields is None:
        return
    append_time_ms = segment.append_times.at(batch.base_offset)
    producers.appended(
        fields,
        (batch.base_offset, batch.last_offset),
        # A batch with an unknown append time keeps its producer for a full expiration time.
        now_ms if append_time_ms is None else append_time_ms,
    )


def sequenced(batch: Batch, buffer: Buffer | None = None) -> Sequenced | None:
    """Returns the producer fields of a batch's header, and its marker, if it has one.

    None for a control batch that is no marker, or of which the buffer is not given.
    """
    marker, attributes = None, batch.attributes
    if attributes & CONTROL_BIT:
        marker = None if buffer is None else read_marker(buffer, batch)
        if marker is None:
            return None
    # The same as Sequenced(...), without the Python frame of a NamedTuple's constructor.
    return tuple.__new__(
        Sequenced,
        (
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,  # by its offsets, because compaction may have removed records
            attributes & TRANSACTIONAL_BIT != 0,
            marker,
        ),
    )


def _refill(segments: Sequence[Segment], end_offset: int, producers: Producers) -> None:
    """Adds the last batches from the log's tail to producers read from a snapshot at `end_offset`.

    If the tail cannot be read as batches, the state is that of the snapshot alone. Raises OSError.
    """
    if not len(producers):
        return
    met: dict[int, list[ProducerBatch]] = {known.producer_id: [] for known in producers}
    try:
        for found in _tail(segments, end_offset, _REFILL_BYTES):
            batch = found.batch
            known = producers.get(batch.producer_id)
            if known is None or batch.is_control or batch.producer_epoch != known.epoch:
                continue
            met[batch.producer_id].append(
                ProducerBatch(
                    batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset
                )
            )
    except CorruptMessage as error:
        _log.warning("producer state read from its snapshot alone", extra={"reason": error.message})
        return
    for known in producers:
        _remember(known, met[known.producer_id])


def producers_before(
    producers: Producers,
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    corrections: Sequence[Correction] = (),
) -> Producers | None:
    """Returns the state before an offset, given that behind it; None if the log has to be read.

    The segments end at the offset. Only the producers that have written behind it have another
    state there: their last batches before it are read again. Those of transactions may have begun
    or ended one there: then the log has to be read. Raises OSError and CorruptMessage.
    """
    before = Producers(producers.expiration_ms)
    changed: dict[int, deque[Batch]] = {}
    for known in producers:
        if known.has_transaction or known.coordinator_epoch != NO_COORDINATOR_EPOCH:
            return None
        if not known.batches or known.batches[-1].last_offset < end_offset:
            before.put(known)
        else:
            changed[known.producer_id] = deque(maxlen=REMEMBERED_BATCHES)
    for size in _CUT_BYTES:
        for met in changed.values():
            met.clear()
        for found in _tail(segments, end_offset, size):
            batch = found.batch
            if batch.producer_id in changed and not batch.is_control:
                changed[batch.producer_id].append(batch)
        if all(len(met) == REMEMBERED_BATCHES for met in changed.values()):
            break
    for met in changed.values():
        if not met:
            return None
        for batch in met:
            offsets = batch.base_offset, batch.last_offset
            append_time_ms = _counted(segments, corrections, now_ms, batch.last_offset, 0)
            fields = sequenced(batch)
            assert fields is not None, "a control batch is not met"
            before.appended(fields, offsets, append_time_ms)
    return before


def _remember(known: Producer, met: list[ProducerBatch]) -> None:
    """Replaces the one batch of a snapshot by the last batches found, if they end with it."""
    if met and known.batches and met[-1][1:4:2] == known.batches[-1][1:4:2]:
        known.batches = tuple(met[-REMEMBERED_BATCHES:])


def _tail(segments: Sequence[Segment], end_offset: int, size: int) -> Iterator[Found]:
    """Yields the batch headers in the last bytes before an offset, which is in the last segment."""
    left, parts = size, []
    for segment in reversed(segments):
        if segment.base_offset >= end_offset:
            continue
        entry = segment.index.last_before(segment.tail.size - left)
        position = 0 if entry is None else entry.position
        parts.append((segment, position))
        left -= segment.tail.size - position
        if left <= 0:
            break
    for segment, position in reversed(parts):
        for found in segment.walk(position):
            if found.batch.last_offset >= end_offset:
                return
            yield found
