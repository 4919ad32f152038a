"""Reads what a failover needs from both clusters, and evaluates it for each partition.

It asks for the end of the target before the end of the source. So records that are written and
copied in between are at or after the chosen offset. It reads both sides by Fetch, so it works with
any two brokers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.client import EARLIEST, Client, RequestError
from tidelog.client import READ_COMMITTED as ISOLATED
from tidelog.client import READ_UNCOMMITTED as OPEN
from tidelog.pipeline.engine.failover.offsets import NOWHERE, Spans
from tidelog.pipeline.engine.failover.proofs import Comparison, TargetLog, TooMany, prove_by_map
from tidelog.pipeline.engine.failover.times import UnreadTimes, margin_of, search_time
from tidelog.pipeline.report.units import moment, span
from tidelog.pipeline.runs import TIMESTAMP_TYPE
from tidelog.pipeline.runs.failover_reading import audited_delays, digests, read
from tidelog.pipeline.runs.failover_row import (
    LOST,
    MAP,
    MISSING,
    OK,
    RECORDS,
    REFUSED,
    TIME,
    Row,
)
from tidelog.pipeline.source import reading
from tidelog.pipeline.source import splits as source
from tidelog.protocol.errors import ErrorCode
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client import GroupOffset
    from tidelog.pipeline.engine.failover.proofs import Proof
    from tidelog.pipeline.engine.failover.times import Seen
    from tidelog.pipeline.jobs.failover import FailoverOptions
    from tidelog.pipeline.runs.offset_maps import Mapped
    from tidelog.pipeline.source.columns import Columns
    from tidelog.pipeline.source.splits import OffsetRange
    from tidelog.protocol.topic_partition import TopicPartition

_SAMPLE: Final = 50  # records on each side of the committed offset that are compared with the map
_SAMPLE_REACH: Final = 10_000
_CLEANUP: Final = "cleanup.policy"
_MISSING: Final = "message.timestamp.missing.values"
_NO_SUCH_TIME: Final = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})


class _Refused(Exception):
    """No offset can be chosen for a partition; the message says why."""


class Planner:
    """Plans the failover of one partition after another.

    Raises ClientError and SourceError if a cluster cannot be read.
    """

    def __init__(
        self,
        options: FailoverOptions,
        source_client: Client,
        target_client: Client,
        now_ms: int,
    ) -> None:
        self._options, self._now_ms = options, now_ms
        self._source, self._target = source_client, target_client
        self._settings: dict[tuple[bool, str], dict[str, str]] = {}
        self._audited = None if options.audit is None else audited_delays(Path(options.audit))

    def row(
        self,
        key: TopicPartition,
        committed: GroupOffset,
        target: TopicPartition,
        mapped: Mapped | None,
        on_target: GroupOffset | None,
    ) -> Row:
        """Chooses an offset for one partition, and proves what can be proven."""
        row = Row(*key, *target, committed.offset, committed.metadata, by=self._options.way)
        if on_target is not None:
            row.committed_on_target = on_target.offset
        try:
            self._look(row)
            unread, times = self._unread(row)
            row.offset = self._choose(row, mapped, unread, times)
            self._prove(row, mapped, unread, times)
        except _Refused as refused:
            row.status = REFUSED
            row.notes.append(str(refused))
        return row

    # --- the state -------------------------------------------------------------------------------

    def _look(self, row: Row) -> None:
        target, ours = self._target, self._source
        if row.target_partition >= target.partition_count(row.target_topic):
            raise _Refused(f"the target has no partition {row.target_partition}")
        row.target_start, row.target_end = self._ends(target, row.target)
        row.source_start, row.source_end = self._ends(ours, row.source)
        if row.committed > row.source_end:
            raise _Refused(
                f"the group has committed {row.committed}, and the source ends at {row.source_end}: its log"
                " was truncated or recreated since"
            )
        if row.committed < row.source_start:
            row.notes.append(
                f"retention took {some(row.source_start - row.committed, 'offset')} in the source that the"
                " group had not read"
            )
        if row.committed_on_target is not None and row.committed_on_target >= 0:
            row.notes.append(
                f"the group has committed {row.committed_on_target} there already: --apply replaces it"
            )

    def _ends(self, client: Client, key: TopicPartition) -> OffsetRange:
        topic, partition = key
        isolation = ISOLATED if self._options.isolation == source.READ_COMMITTED else OPEN
        start = client.list_offsets(topic, {partition: EARLIEST})[partition].offset
        return start, client.end_offset(topic, partition, isolation=isolation)

    def _unread(self, row: Row) -> tuple[Spans, UnreadTimes]:
        unread, times = Spans(), UnreadTimes(self._now_ms)
        for columns in self._read_source(row, row.committed, row.source_end, reading.TIMES):
            unread.add(columns.offset)
            times.add(
                columns.offset,
                columns.timestamp_ms,
                columns.append_time_ms,
                columns.has_timestamp,
                columns.is_log_append,
            )
        return unread, times

    # --- the offset ------------------------------------------------------------------------------

    def _choose(self, row: Row, mapped: Mapped | None, unread: Spans, times: UnreadTimes) -> int:
        chosen = self._by_map(row, mapped) if row.by == MAP else self._by_time(row, unread, times)
        if chosen < row.target_start:
            row.notes.append(
                f"the target begins at {row.target_start} now: retention deleted {chosen}"
            )
        if chosen > row.target_end:
            row.notes.append(
                f"the target ends at {row.target_end}, before {chosen}: its log was truncated or recreated"
            )
        return min(max(chosen, row.target_start), row.target_end)

    def _by_map(self, row: Row, mapped: Mapped | None) -> int:
        chosen = None if mapped is None else mapped.offsets.choose(row.committed)
        if mapped is None or chosen is None:
            if row.target_start == row.target_end:
                return row.target_end
            raise _Refused("the map knows nothing of this partition, and the target has records")
        first, last = mapped.offsets.source_range
        if row.committed >= last:
            row.notes.append(
                f"beyond the map, which ends before {last}: the group continues after all that was copied"
            )
        elif row.committed < first:
            row.notes.append(
                f"before the map, which begins with {first}: the group continues there"
            )
        elif mapped.offsets.place_of(row.committed) == NOWHERE:
            row.notes.append(
                f"{row.committed} itself was not copied (a marker, compacted, or left out): the next one"
                " that was counts"
            )
        return chosen

    def _by_time(self, row: Row, unread: Spans, times: UnreadTimes) -> int:
        if not unread.count:
            row.notes.append("all is read: the group continues at the end of the target")
            return row.target_end
        if not times.seen.count:
            raise _Refused(
                f"none of the {some(unread.count, 'unread record')} has a time: use --map"
            )
        if times.without:
            row.notes.append(f"{some(times.without, 'unread record')} without a time")
        if times.first_odd is not None:
            offset, stamp = times.first_odd
            have, them = ("has a time", "it") if times.odd == 1 else ("have times", "them")
            row.notes.append(
                f"{some(times.odd, 'unread record')} {have} that cannot be right, the first at {offset}, of"
                f" {moment(stamp)}: the margin leaves {them} out"
            )
        seen, margin_ms, margin_from = self._margin(row, times)
        if seen.next_ms is None:  # the proof says where the records are that this loses
            row.notes.append("no other unread record has a time: their contents are searched")
            return row.target_end
        row.margin_ms, row.margin_from = margin_ms, margin_from
        row.next_offset, row.next_ms = seen.next_offset, seen.next_ms
        row.search_ms = search_time(seen.next_ms, row.margin_ms)
        if self._is_stamped(row, of_target=True) and not times.stamped:
            row.notes.append(
                "the target gives records times of its own: they were searched, and are later than event"
                " times, so more is read again"
            )
        return self._search(row, row.search_ms)

    def _margin(self, row: Row, times: UnreadTimes) -> tuple[Seen, int, str]:
        """Returns the times of which the first is searched for, the margin, and where it is from.

        Without a known latency both are of the records with event times, so that one which the broker
        has stamped decides nothing about the others.
        """
        if self._options.max_latency is not None:
            return times.seen, self._options.max_latency, "given"
        events = times.events
        own = f"{some(events.count, 'unread record')}: none is older than the next one by more"
        known = None if self._audited is None else self._audited.get(row.topic)
        if known is not None and not times.are_all_odd:
            longest, shortest, known_of = known
            margin_ms = margin_of(longest, shortest)
            step_ms = times.seen.step_back_ms
            if margin_ms < step_ms:  # it has seen too few records
                return (
                    times.seen,
                    step_ms,
                    f"{own}; the audit of {some(known_of, 'record')} has {span(margin_ms)}",
                )
            return (
                times.seen,
                margin_ms,
                f"the audit: {some(known_of, 'record')} took {span(shortest)} to {span(longest)}",
            )
        if times.stamped and not events.count:
            raise _Refused(
                f"the times of all {some(times.stamped, 'unread record')} are the broker's stamps, which"
                " say nothing of latency: give --max-latency, or --map"
            )
        if times.stamped:
            row.notes.append(
                f"{some(times.stamped, 'unread record')} stamped by the broker, the first at"
                f" {times.first_stamped}: the margin leaves them out"
            )
        if self._audited is not None:
            row.notes.append("the audit knows no append times of this topic")
        return events, events.step_back_ms, own

    def _search(self, row: Row, time_ms: int) -> int:
        topic, partition = row.target
        try:
            found = self._target.list_offsets(topic, {partition: time_ms})[partition].offset
        except RequestError as error:
            if error.code not in _NO_SUCH_TIME or time_ms >= 0:
                raise
            row.notes.append("the target cannot search before 1970: the group begins at its first")
            return row.target_start
        if found < 0:
            row.notes.append(f"the target has nothing at or after {moment(time_ms)}")
            return row.target_end
        return min(found, row.target_end)

    # --- the proof -------------------------------------------------------------------------------

    def _prove(self, row: Row, mapped: Mapped | None, unread: Spans, times: UnreadTimes) -> None:
        is_proven = self._try_to_prove(row, mapped, unread, times)
        proof = row.proof
        is_ours = row.by == TIME and self._options.max_latency is None  # the margin
        if (
            is_proven
            and is_ours
            and (times.odd or times.stamped)
            and proof is not None
            and proof.lost_from is not None
        ):
            row.notes.append(
                f"{some(proof.lost, 'unread record')} before {row.offset} in the target, which no search by"
                f" plausible times finds: the group continues at {proof.lost_from} instead"
            )
            row.offset = proof.lost_from
            is_proven = self._try_to_prove(row, mapped, unread, times)
        if not is_proven and is_ours and times.odd and row.search_ms is None:
            row.offset = None
            raise _Refused("no unread record has a time that can be right")
        if is_proven and row.proof is not None:
            row.status = LOST if row.proof.lost else MISSING if row.proof.missing else OK

    def _try_to_prove(
        self, row: Row, mapped: Mapped | None, unread: Spans, times: UnreadTimes
    ) -> bool:
        """Counts what the offset costs; returns False, with a note, if that cannot be known."""
        with_time = not (
            times.stamped
            or self._is_stamped(row, of_target=False)
            or self._is_stamped(row, of_target=True)
            or self._setting(row.target_topic, _MISSING, of_target=True)
        )
        if mapped is not None and mapped.hole is None and len(mapped.offsets):
            wrong = self._disproof(row, mapped, with_time=with_time)
            if wrong is not None:
                row.notes.append(wrong)
                return False
            row.proof, row.proven_by = self._proof_by_map(row, mapped, unread), MAP
            return True
        if mapped is not None and mapped.hole is not None:
            row.notes.append(f"{mapped.hole}: records were compared instead")
        try:
            row.proof = self._proof_by_records(row, with_time=with_time)
        except TooMany:
            row.proof = row.proven_by = None
            row.notes.append(
                f"more than {some(self._options.compare, 'record')} would have to be compared: give a"
                " --map, or a larger --compare"
            )
            return False
        row.proven_by = RECORDS
        return True

    def _proof_by_map(self, row: Row, mapped: Mapped, unread: Spans) -> Proof:
        assert row.offset is not None
        low = row.offset
        first = mapped.offsets.choose(row.committed)
        if unread.count and first is not None:
            low = min(low, first)
        low = max(low, row.target_start)
        there = Spans(
            one.offset for one in self._read_target(row, low, row.target_end, reading.TIMES)
        )
        policy = self._setting(row.target_topic, _CLEANUP, of_target=True)
        log = TargetLog(row.target_start, row.target_end, there, "compact" in policy)
        return prove_by_map(mapped.offsets, unread, log, row.committed, row.offset)

    def _disproof(self, row: Row, mapped: Mapped, *, with_time: bool) -> str | None:
        """Compares records around the committed offset.

        The map may be of an earlier topic of the same name.
        """
        low, high = max(0, row.committed - _SAMPLE), min(row.committed + _SAMPLE, row.source_end)
        ours = dict(digests(self._read_source(row, low, high, reading.RECORDS), with_time))
        places = {offset: mapped.offsets.place_of(offset) for offset in ours}
        wanted = {place: offset for offset, place in places.items() if place != NOWHERE}
        if not wanted:
            return None
        first = min(wanted)
        last = max(place for place in wanted if place - first < _SAMPLE_REACH)
        end = min(last + 1, row.target_end)
        theirs = self._read_target(row, first, end, reading.RECORDS)
        for place, found in digests(theirs, with_time):
            if place in wanted and ours[wanted[place]] != found:
                return (
                    f"the target has another record at {place} than the source at {wanted[place]}, which the"
                    " map says went there: it is not the map of these topics"
                )
        return None

    def _proof_by_records(self, row: Row, *, with_time: bool) -> Proof:
        assert row.offset is not None
        compared = Comparison(self._options.compare)
        ours = self._read_source(row, row.committed, row.source_end, reading.RECORDS)
        for offset, found in digests(ours, with_time):
            compared.add_unread(offset, found)
        theirs = self._read_target(row, row.offset, row.target_end, reading.RECORDS)
        for _, found in digests(theirs, with_time):
            compared.add_after(found)
        if compared.wants_before:
            theirs = self._read_target(row, row.target_start, row.offset, reading.RECORDS)
            for place, found in digests(theirs, with_time):
                compared.add_before(place, found)
        if compared.wants_read:
            ours = self._read_source(row, row.source_start, row.committed, reading.RECORDS)
            for _, found in digests(ours, with_time):
                compared.add_read(found)
        return compared.proof()

    # --- asking ----------------------------------------------------------------------------------

    def _is_stamped(self, row: Row, *, of_target: bool) -> bool:
        topic = row.target_topic if of_target else row.topic
        return self._setting(topic, TIMESTAMP_TYPE, of_target=of_target) == "LogAppendTime"

    def _setting(self, topic: str, name: str, *, of_target: bool) -> str:
        key = of_target, topic
        if key not in self._settings:
            client = self._target if of_target else self._source
            asked = client.topic_settings(topic)
            self._settings[key] = {name: one.value or "" for name, one in asked.items()}
        return self._settings[key].get(name, "")

    def _read_source(self, row: Row, low: int, high: int, depth: int) -> Iterator[Columns]:
        low = max(low, row.source_start)
        return read(self._options.from_, row.source, (low, high), depth, self._options.isolation)

    def _read_target(self, row: Row, low: int, high: int, depth: int) -> Iterator[Columns]:
        low = max(low, row.target_start)
        return read(self._options.to, row.target, (low, high), depth, self._options.isolation)
