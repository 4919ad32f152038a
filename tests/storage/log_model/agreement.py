"""Does a partition hold what its model says? Asked of everything that is cut with a log."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from tests.storage.conftest import entries_of, read_max_event_time
from tidelog.protocol.records.batch import records, scan
from tidelog.storage.log import lookup, slices
from tidelog.storage.segment.appended import layout as append_entries
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.batch_headers import last_offset_at
from tidelog.storage.time.timestamp import later
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.storage.log_model.model import Batch, ModelLog
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.slices import SliceAppendTimes
    from tidelog.storage.segment.segment import Segment

LOWEST, HIGHEST = -(2**63), 2**63 - 1
TIMES = (LOWEST, -7, 0, 400, 500, 501, 3_000, 8_999, 12_000, HIGHEST)


def check(partition: Partition, model: ModelLog, *, is_trimmed: bool) -> None:
    """Demand that everything agrees."""
    assert partition.high_watermark == model.high_watermark
    assert partition.state.timing.back_offset == model.mark
    assert partition.last_append_time == model.last_append
    counted = read_max_event_time(partition)
    if partition.state.awaits_role:  # only what was saved counts before that
        assert counted is None or (model.counted is not None and counted <= model.counted)
    else:
        assert counted == model.counted
    contents(partition, model, is_trimmed=is_trimmed)


def contents(partition: Partition, model: ModelLog, *, is_trimmed: bool) -> None:
    """Demand what a log keeps through a crash."""
    assert (partition.log_start_offset, partition.log_end_offset) == (model.start, model.end)
    assert read(partition, model) == [(row.offset, row.time, row.value) for row in model.rows]
    for batch in model.batches:
        if batch.end > partition.log_start_offset:
            offset = batch.end - 1
            assert append_time(partition, offset) == batch.append, batch
            assert partition.reader.leader_epoch_at(offset) == model.epoch_of(offset), batch
    shown = [row for row in model.rows if row.offset < partition.high_watermark]
    for row in shown[-3:]:
        times = partition.reader.times_of(row.offset)
        assert times[:3] == (lookup.DATA, row.time, append_time(partition, row.offset)), row
    found = [tuple(entry) for entry in partition.state.epochs.entries]
    assert found == model.epochs, (found, model.epochs)
    indexes(partition, model)
    segment_times(partition, model)
    lookups(partition, model)
    producers(partition, model, is_trimmed=is_trimmed)


def read(partition: Partition, model: ModelLog) -> list[tuple]:
    """Read everything as a consumer would, and compare the append times that come with it."""
    appended = {batch.end - 1: batch.append for batch in model.batches}
    found: list[tuple] = []
    offset, end = partition.log_start_offset, partition.log_end_offset
    while offset < end:
        fetched, told = partition.reader.read_with_append_times(
            offset, 2_000, upper_offset=end, minimum_one=True
        )
        assert fetched.size, f"nothing at {offset}"
        whole = [batches for data in fetched.buffers if (batches := scan(data))]
        for batches, times in zip(whole, told, strict=True):
            for batch in batches:
                assert time_of(times, batch.last_offset) == appended[batch.last_offset]
        for record in (each for data in fetched.buffers for each in records(data)):
            if record.offset >= offset:
                time = None if record.timestamp == -1 else record.timestamp
                found.append((record.offset, time, record.value))
                offset = record.offset + 1
    return found


def time_of(told: SliceAppendTimes, offset: int) -> int | None:
    """What entries say of an offset: the last one at or before it."""
    entries = struct.iter_unpack(">qi", told.entries)
    before = [time for time, relative in entries if told.base_offset + relative <= offset]
    return before[-1] if before and before[-1] != UNKNOWN else None


def append_time(partition: Partition, offset: int) -> int | None:
    segment = slices.segment_of(partition.segments, offset)
    assert segment is not None
    return segment.append_times.at(offset)


def indexes(partition: Partition, model: ModelLog) -> None:
    """Every entry of an index leads to its batch, and no entry lies behind the log's end."""
    times = {row.offset: row.time for batch in model.batches for row in batch.rows}
    for segment in partition.segments:
        data = segment.path.read_bytes()
        assert len(data) == segment.tail.size
        for offset, position in entries_of(segment.index):
            assert last_offset_at(data, position) == offset
        for time, offset in segment.time_index.entries() if segment.indexes.are_true else ():
            here = [t for o, t in times.items() if segment.base_offset <= o <= offset]
            if offset in times:
                assert max(t for t in here if t is not None) == time
            else:
                assert offset < segment.tail.end_offset
        entries = list(segment.append_times.entries())
        assert all(
            entry.offset + segment.base_offset < segment.tail.end_offset for entry in entries
        )
        stored = segment.append_times.size() - len(append_entries.HEADER)
        entry_size = append_entries.Layout(segment.base_offset).entry_size
        assert stored <= (len(segment.append_times) + 1) * entry_size  # and an END entry


def batches_in(segment: Segment, model: ModelLog) -> list[Batch]:
    end = segment.tail.end_offset
    return [batch for batch in model.batches if segment.base_offset <= batch.first < end]


def segment_times(partition: Partition, model: ModelLog) -> None:
    for segment in partition.segments:
        here = batches_in(segment, model)
        if not here or here[0].first != segment.base_offset:
            continue  # a part of it lies before what the model still has
        times = [time for batch in here for time in batch.times]
        assert segment.times.largest == max(times, default=None)
        assert segment.times.has_missing == any(
            row.time is None for batch in here for row in batch.rows
        )
        known = [batch.append for batch in here]
        assert segment.times.has_unknown >= (None in known)
        if None not in known:
            assert segment.times.last_append == known[-1]
            assert segment.times.created == known[0]


def lookups(partition: Partition, model: ModelLog, *, by_append_time: bool = True) -> None:
    """Both lookups by time find what a search through all records finds.

    Where append times went back, one by append time may end at a record that compaction removed:
    the next one that is there may have been appended by an earlier clock.
    """
    reader, end = partition.reader, partition.log_end_offset
    near = [row.time + d for row in model.rows[-3:] if row.time is not None for d in (0, 1)]
    bases = sorted({max(s.base_offset, model.start) for s in partition.segments}, reverse=True)
    shown = partition.high_watermark
    times = {*TIMES[end % 3 :: 3], *near}  # other ones as the log grows
    for upper in {end, max(model.start, end - 2)}:
        for time in times - {-1}:
            wanted = model.find_by_time(time, upper)
            with contextlib.suppress(WouldBlock):
                assert reader.find_by_time(time, upper_offset=upper, may_block=False) == wanted
            assert reader.find_by_time(time, upper_offset=upper) == wanted
        assert reader.find_largest_time(upper_offset=upper) == model.find_largest(upper)
    for time in times - set(range(-6, 0)):
        first = (model.find_by_time(time, shown) or (shown,))[0]
        before = [base for base in bases if base < first]
        assert reader.offsets_before_v0(time, 2) == [first, *before][:2], time
    if by_append_time:
        append_lookups(partition, model)


def append_lookups(partition: Partition, model: ModelLog) -> None:
    end = partition.log_end_offset
    segments = [s for s in partition.segments if s.tail.end_offset > model.start]
    bases = [segment.base_offset for segment in segments] or [model.start]
    known = [batch.append for batch in model.batches[-4:] if batch.append is not None]
    for time in {LOWEST, -1, HIGHEST, *known, *(append + 1 for append in known)}:
        batch, doubt = model.find_appended(time, end, bases)
        since = partition.reader.find_by_append_time(time, upper_offset=end)
        assert is_at(since.offset, batch, model), (time, since, batch)
        assert is_at(since.unknown_from, doubt, model), (time, since, doubt)


def is_at(offset: int | None, batch: Batch | None, model: ModelLog) -> bool:
    """Whether a batch begins at an offset, or a gap that ends there; none lies before the log's start."""
    if offset is None or batch is None:
        return offset is batch is None
    at = model.batches.index(batch)
    while batch.end <= model.start:
        at, batch = at + 1, model.batches[at + 1]
    gap = model.batches[at - 1].end if at else 0
    return max(gap, model.start) <= offset <= max(batch.first, model.start)


def producers(partition: Partition, model: ModelLog, *, is_trimmed: bool) -> None:
    wanted = model.producers()
    known = {each.producer_id: each for each in partition.state.read_producers()}
    if not is_trimmed:
        assert set(known) == set(wanted)
    for number, (epoch, batches) in wanted.items():
        found = known[number]
        assert found.epoch == epoch
        here = [tuple(batch) for batch in found.batches]
        count = 1 if is_trimmed else len(here)
        assert here[-count:] == batches[-count:], (number, here, batches)
        assert is_trimmed or len(here) == len(batches)


# --- after a crash --------------------------------------------------------------------------------


def learn(partition: Partition, model: ModelLog) -> None:
    """Take over what a crash may take, after checking that it took no more than that."""
    assert partition.high_watermark == partition.log_end_offset
    model.high_watermark = model.end
    behind = [b.append for b in model.batches if b.first >= partition.state.timing.back_offset]
    stored = [append for append in behind if append is not None]
    if stored:
        assert partition.last_append_time is not None
        assert partition.last_append_time >= stored[-1]
    model.last_append, model.mark = partition.last_append_time, partition.state.timing.back_offset
    learn_counted(partition, model)


def learn_counted(partition: Partition, model: ModelLog) -> None:
    """Take over the largest event time that counts as soon as the log has a role."""
    read_max_event_time(partition)
    state = partition.state
    with state.append_lock:
        remaining = state.largest_event.remaining(
            partition.high_watermark, state.version.segments, state.judge
        )
        model.counted = later(state.largest_event.kept, remaining)


def which(partition: Partition, candidates: Sequence[ModelLog], *, is_trimmed: bool) -> ModelLog:
    """Return which of some logs a partition holds."""
    errors = []
    for candidate in candidates:
        candidate.forget_epochs_without_batches()
        try:
            contents(partition, candidate, is_trimmed=is_trimmed)
        except AssertionError as error:
            errors.append(error)
        else:
            return candidate.copy()
    raise AssertionError("neither as before nor as after") from errors[0]


def after_power_loss(
    partition: Partition,
    candidates: Sequence[ModelLog],
    acknowledged: int,
    covered: int,
    *,
    is_trimmed: bool,
) -> ModelLog:
    """Return what is left of one of some logs: its first batches, at least what was made durable."""
    logs = []
    for candidate in candidates:
        log, end = candidate.copy(), partition.log_end_offset
        if not min(acknowledged, candidate.end) <= end <= candidate.end:
            continue
        log.high_watermark = min(log.high_watermark, end)
        log.start = min(log.start, end)
        log.cut(end)
        before, log.epochs = log.copy(), [tuple(entry) for entry in partition.state.epochs.entries]
        durable = [b for b in log.batches if log.start < b.end <= min(acknowledged, end)]
        if any(log.epoch_of(b.end - 1) != before.epoch_of(b.end - 1) for b in durable):
            continue  # not this one
        for number, batch in enumerate(log.batches):
            with contextlib.suppress(AssertionError):
                if batch.end > covered and append_time(partition, batch.end - 1) is None:
                    log.batches[number] = batch._replace(append=None)
        logs.append(log)
    assert logs, f"the log ends at {partition.log_end_offset}"
    return which(partition, logs, is_trimmed=is_trimmed)
