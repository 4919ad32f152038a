"""One run of `archive`: where it begins, what it reads, and the manifest that completes it."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.client import Client
from tidelog.pipeline.archive import manifests, writing
from tidelog.pipeline.archive.manifests import ArchivedTopic, Manifest, Range
from tidelog.pipeline.errors import OK, PipelineError
from tidelog.pipeline.options import topics_of
from tidelog.pipeline.plan import ScanPlan
from tidelog.pipeline.report.output import leave, say
from tidelog.pipeline.runs import ARCHIVE, TIMESTAMP_TYPE
from tidelog.pipeline.runs.task_progress import watching
from tidelog.pipeline.source import access, locations
from tidelog.pipeline.source.splits import Selection
from tidelog.pipeline.times import to_iso
from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import checkpoints, filenames
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.pipeline.archive.directory import Directory
    from tidelog.pipeline.archive.iceberg import IcebergTable
    from tidelog.pipeline.archive.manifests import Archive
    from tidelog.pipeline.archive.writing import Written
    from tidelog.pipeline.jobs.archive import ArchiveOptions
    from tidelog.pipeline.session import TaskSession
    from tidelog.pipeline.source.splits import OffsetRange, Split
    from tidelog.protocol.topic_partition import TopicPartition


class ArchiveRun:
    """One run of the archive job: plans what is new and writes it; see `do`."""

    def __init__(
        self, options: ArchiveOptions, place: Directory | IcebergTable, name: str, directory: Path
    ) -> None:
        self.options, self.place, self.name, self.directory = options, place, name, directory
        topics, pattern = topics_of(options.topics)
        self.selection = Selection(
            topics=topics,
            pattern=pattern,
            upto=options.upto,
            isolation=options.isolation,
            split_bytes=options.split_bytes,
        )
        self._splits: list[Split] | None = None

    def do(self, session: TaskSession, now_ms: int) -> int:
        """Archives; returns the exit status.

        Raises PipelineError, SourceError, ClientError and OSError.
        """
        began_s = time.monotonic()
        with self.place.locked():
            if self.place.is_done(self.name):
                say(f"{ARCHIVE} {self.name}: was done before")
                return OK
            plan = self.plan(now_ms)
            archive = self.place.read()
            self._refuse_moved(plan, archive)
            if not plan.offsets:
                say(f"{ARCHIVE} {self.name}: nothing is new")
                return OK
            chunks = writing.chunks(
                self.place.target(),
                self._read_again(plan),
                isolation=self.options.isolation,
                offsets=self.options.task_offsets,
                file_bytes=self.options.file_bytes,
            )
            sizes = [one.size_bytes for one in chunks]
            with watching(ARCHIVE, sum(sizes), session, brokers=self.options.broker) as watch:
                written: list[Written] = session.run(
                    self.place.write, chunks, watch=watch, sizes=sizes
                )
            self._refuse_anew(plan)
            made = self._manifest(plan, written)
            _refuse_incomplete(made, plan)
            self.place.commit(made, archive, lambda now: self._refuse_moved(plan, now))
        self._conclude(made, time.monotonic() - began_s)
        return OK

    # --- the plan --------------------------------------------------------------------------------

    def plan(self, now_ms: int) -> ScanPlan:
        """Returns the plan of this run, new or stored."""
        options = self.options
        return ScanPlan.open(
            self.directory,
            job=ARCHIVE,
            run=self.name,
            arguments={
                "brokers": options.broker,
                "logs": options.logs or None,
                "topics": options.topics,
                "isolation": options.isolation,
                "upto": options.upto,
                "to": options.to,
                **({"table": options.table} if options.table else {}),
                "task_offsets": options.task_offsets,
                "file_bytes": options.file_bytes,
            },
            now_ms=now_ms,
            make=self._make,
            save=not options.dry_run,
        )

    def _make(self) -> tuple[Sequence[Split], Mapping[str, Any]]:
        archive = self.place.read()
        there = access.ranges(self.selection, **self._place)
        if self.options.logs and not there:
            access.refuse_none(self.selection, self.options.logs)
        topics = self._topics({topic for topic, _ in there})
        for name, topic in topics.items():
            _refuse_anew(name, topic, archive.topic(name))
        spans, gaps = {}, []
        for key, (start, end) in sorted(there.items()):
            first, gap = _beginning(key, start, end, archive.spans.get(key))
            if gap is not None:
                if not self.options.accept_gap:
                    raise PipelineError(_gone(gap))
                gaps += [gap] if first < end else []
            spans[key] = first, end
        splits = self._plan_splits({key: span for key, span in spans.items() if span[0] < span[1]})
        self._splits = splits
        return splits, {
            "topics": {name: one._asdict() for name, one in topics.items()},
            "gaps": gaps,
        }

    @property
    def _place(self) -> dict[str, Any]:
        return {"logs": self.options.logs, "brokers": self.options.broker}

    def _plan_splits(self, spans: Mapping[TopicPartition, OffsetRange]) -> list[Split]:
        selection = dataclasses.replace(self.selection, offsets=spans)
        return covering(access.plan(selection, **self._place), spans) if spans else []

    def _read_again(self, plan: ScanPlan) -> list[Split]:
        """Returns the splits of the plan: the original ones, or new ones of the same offsets."""
        return self._plan_splits(plan.offsets) if self._splits is None else self._splits

    # --- topics ----------------------------------------------------------------------------------

    def _topics(self, names: Iterable[str]) -> dict[str, ArchivedTopic]:
        """Returns the facts about the topics from a cluster, or as far as directories show them."""
        asked = self.options.broker or self.options.cluster
        found: dict[str, ArchivedTopic] = {}
        if asked is None:
            there = access.ranges(self.selection, **self._place)
            for name in names:
                count = 1 + max(partition for topic, partition in there if topic == name)
                found[name] = ArchivedTopic(count, self._id_on_disk(name), None, {})
            return found
        with Client(asked) as client:
            known = client.topics(list(names))
            for name in names:
                settings = client.topic_settings(name)
                own = {
                    each: one.value
                    for each, one in settings.items()
                    if one.is_own and one.value is not None
                }
                stamp = settings[TIMESTAMP_TYPE].value if TIMESTAMP_TYPE in settings else None
                topic = known[name]
                found[name] = ArchivedTopic(len(topic.partitions), topic.topic_id, stamp, own)
        return found

    def _id_on_disk(self, topic: str) -> str:
        for location in self.options.logs:
            if locations.is_uri(location):
                continue
            root = Path(locations.local(location))
            for directory in (root, *sorted(root.glob(f"{topic}-*"))):
                named = filenames.parse_partition_directory(directory.name)
                if named is None or named[0] != topic:
                    continue
                try:
                    found = checkpoints.read_topic_id(directory)
                except CorruptMessage:
                    found = None
                if found is not None:
                    return str(found)
        return ""

    def _refuse_anew(self, plan: ScanPlan) -> None:
        """Raises PipelineError if a topic was created again since the plan."""
        planned = {name: ArchivedTopic(**one) for name, one in plan.notes["topics"].items()}
        for name, topic in self._topics({topic for topic, _ in plan.offsets}).items():
            _refuse_anew(name, topic, planned.get(name), "planned")

    # --- the manifest ----------------------------------------------------------------------------

    def _refuse_moved(self, plan: ScanPlan, archive: Archive) -> None:
        """Raises PipelineError if another run has archived the offsets of this one."""
        gaps = {(gap[0], gap[1]): gap for gap in plan.notes["gaps"]}
        for key, (start, _) in sorted(plan.offsets.items()):
            span = archive.spans.get(key)
            before = gaps[key][2] if key in gaps else start
            if span is not None and span[1] != before:
                raise PipelineError(
                    f"{key[0]}-{key[1]} is archived up to offset {span[1]} now, and run {self.name} was to"
                    f" begin at {start}: another run came first; choose another --run"
                )

    def _manifest(self, plan: ScanPlan, written: Sequence[Written]) -> Manifest:
        options = self.options
        return Manifest(
            run=self.name,
            kind=manifests.ARCHIVE,
            created_ms=plan.created_ms,
            source={
                "brokers": options.broker,
                "logs": options.logs or None,
                "isolation": options.isolation,
                "upto": options.upto,
            },
            topics={name: ArchivedTopic(**one) for name, one in plan.notes["topics"].items()},
            ranges=tuple(_joined(one.range for one in written)),
            gaps=tuple(Range(*gap) for gap in plan.notes["gaps"]),
            files=tuple(file for one in written for file in one.files),
        )

    def _conclude(self, made: Manifest, seconds: float) -> None:
        records = sum(one.records for one in made.ranges)
        times = [
            time_ms
            for one in made.files
            for time_ms in (one.min_timestamp_ms, one.max_timestamp_ms)
            if time_ms is not None
        ]
        span = f", from {to_iso(min(times))} to {to_iso(max(times))}" if times else ""
        size = sum(one.size_bytes for one in made.files)
        leave(
            {
                "job": ARCHIVE,
                "run": self.name,
                "records": records,
                "files": len(made.files),
                "size_bytes": size,
                "seconds": round(seconds, 3),
                "partitions": [one._asdict() for one in made.ranges],
                "gaps": [one._asdict() for one in made.gaps],
            },
            self.directory,
            self.options.report,
        )
        say(
            f"{ARCHIVE} {self.name}: {some(records, 'record')} of"
            f" {some(len(made.ranges), 'partition')}{span}, in {some(len(made.files), 'file')},"
            f" {some(size, 'byte')}; {seconds:.1f} s"
        )
        for gap in made.gaps:
            say(
                f"{gap.topic}-{gap.partition}: offsets {gap.start_offset} to {gap.end_offset - 1} were gone:"
                " the manifest names the gap"
            )


def covering(splits: Sequence[Split], spans: Mapping[TopicPartition, OffsetRange]) -> list[Split]:
    """Returns the splits, with offsets that compaction emptied counted to a neighbouring split."""
    found: list[Split] = []
    for one in splits:
        key = one.topic, one.partition
        before = found[-1] if found and (found[-1].topic, found[-1].partition) == key else None
        start = spans[key][0] if before is None else before.end_offset
        found.append(dataclasses.replace(one, start_offset=start))
    for number, one in enumerate(found):
        key = one.topic, one.partition
        after = found[number + 1] if number + 1 < len(found) else None
        if after is None or (after.topic, after.partition) != key:
            found[number] = dataclasses.replace(one, end_offset=spans[key][1])
    return found


def _beginning(
    key: TopicPartition, start: int, end: int, span: OffsetRange | None
) -> tuple[int, Range | None]:
    """Returns the first offset to archive of a log, and the range that is gone.

    The log goes from `start` to before `end`.
    """
    if span is None:
        return start, None
    archived = span[1]
    if end < archived:
        raise PipelineError(
            f"{key[0]}-{key[1]} ends at offset {end}, and is archived up to {archived}: it was truncated"
            " or recreated; archive it to another directory"
        )
    if start > archived:
        return start, Range(*key, archived, start)
    return archived, None


def _refuse_incomplete(made: Manifest, plan: ScanPlan) -> None:
    """Raises PipelineError unless the whole plan is archived."""
    reached = {one.key: (one.start_offset, one.end_offset) for one in made.ranges}
    if reached != dict(plan.offsets):
        raise PipelineError(f"run {made.run} archived {reached}, and was to {plan.offsets}")


def _gone(gap: Range) -> str:
    return (
        f"{gap.topic}-{gap.partition} begins at offset {gap.end_offset} now: {gap.start_offset} to"
        f" {gap.end_offset - 1} were deleted before they were archived; --accept-gap continues without them"
    )


def _refuse_anew(
    name: str, now: ArchivedTopic, before: ArchivedTopic | None, done: str = "archived"
) -> None:
    if before is None or not now.topic_id or not before.topic_id:
        return
    if now.topic_id != before.topic_id:
        raise PipelineError(
            f"topic {name} was recreated since it was {done} (id {now.topic_id}, it was"
            f" {before.topic_id}): archive it to another directory"
        )


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Returns the ranges of the tasks, combined for each partition."""
    found: dict[TopicPartition, Range] = {}
    for one in sorted(ranges):
        before = found.get(one.key)
        if before is None:
            found[one.key] = one
        elif before.end_offset == one.start_offset:
            found[one.key] = before._replace(
                end_offset=one.end_offset, records=before.records + one.records
            )
        else:
            raise PipelineError(f"{one.topic}-{one.partition}: nobody read {before.end_offset}")
    return list(found.values())
