"""The rounds of a mirror: each fixes what it reads, prepares the target topics, and copies."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import Client
from tidelog.pipeline import options as shared
from tidelog.pipeline.errors import FINDINGS, OK, PipelineError, UsageError
from tidelog.pipeline.plan import PLAN, ScanPlan, described
from tidelog.pipeline.replay import identities, targets
from tidelog.pipeline.replay.delivery import POSITION, TRANSACTIONS
from tidelog.pipeline.report.output import say
from tidelog.pipeline.runs import MIRROR, OF_REPLICAS, TIMESTAMP_TYPE
from tidelog.pipeline.source import access
from tidelog.pipeline.source import splits as source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.jobs.mirror import MirrorOptions
    from tidelog.pipeline.replay.replay import Task
    from tidelog.pipeline.session import TaskSession
    from tidelog.pipeline.source.splits import OffsetRange, Selection, Split
    from tidelog.protocol.topic_partition import TopicPartition

_ROUND: Final = "round-{:06d}"
_NOT_COPIED: Final = OF_REPLICAS | {TIMESTAMP_TYPE}


class Round(NamedTuple):
    """One round of a mirror: its name, its directory, and what it reads."""

    name: str
    directory: Path
    selection: Selection
    before: Round | None = None


def directory_of(run_directory: Path, number: int) -> Path:
    """Returns the directory of a round of a run with --follow."""
    return run_directory / _ROUND.format(number)


def follow(options: MirrorOptions, session: TaskSession, base: Round) -> int:
    """Runs rounds, each of which begins where the one before ended; returns the exit status."""
    from tidelog.pipeline.replay.conclusion import is_done
    from tidelog.pipeline.source import brokers as cluster

    assert options.broker is not None
    ends: dict[TopicPartition, int] = {}
    before: Round | None = None
    rounds, worst = 0, OK
    for number in itertools.count():
        began_s = time.monotonic()
        one = Round(
            f"{base.name}/{number}",
            directory_of(base.directory, number),
            base.selection,
            before,
        )
        while not (one.directory / PLAN).exists():  # else an earlier process began it
            if options.rounds is not None and rounds >= options.rounds:
                return worst
            rounds += 1
            now = cluster.ranges(base.selection, options.broker)
            _refuse_shorter(now, ends)
            spans = {key: (ends.get(key, start), end) for key, (start, end) in now.items()}
            spans = {key: (start, end) for key, (start, end) in spans.items() if end > start}
            one = one._replace(selection=dataclasses.replace(base.selection, offsets=spans))
            if spans and (
                not base.selection.is_timed or _splits(options, one.selection)
            ):  # of times relative to now
                break
            _pause(options, began_s, rounds)
            began_s = time.monotonic()
        if not is_done(one.directory):
            status = mirror(options, session, one)
            if status not in {OK, FINDINGS}:
                return status
            worst = max(worst, status)
            _pause(options, began_s, rounds)
        ends |= {key: end for key, (_, end) in _frozen(options, one).offsets.items()}
        before = one
    return worst


def _refuse_shorter(
    now: Mapping[TopicPartition, OffsetRange], ends: Mapping[TopicPartition, int]
) -> None:
    """Raises PipelineError if a partition ends before what was already read of it."""
    for (topic, partition), end in sorted(ends.items()):
        if end > now.get((topic, partition), (0, end))[1]:
            raise PipelineError(
                f"{topic}-{partition} of the source ends at offset {now[topic, partition][1]}, and was read"
                f" up to {end}: it was deleted and recreated, or truncated; begin a new run"
            )


def _pause(options: MirrorOptions, began_s: float, rounds: int) -> None:
    if options.rounds is None or rounds < options.rounds:
        time.sleep(max(0.0, (options.follow or 0.0) - (time.monotonic() - began_s)))


def _frozen(options: MirrorOptions, one: Round) -> ScanPlan:
    """Returns the plan of a round that was begun."""

    def never() -> tuple[Sequence[Split], Mapping[str, Any]]:
        raise PipelineError(f"{one.directory / PLAN} is gone")

    return _open(options, one, never)


def _left(notes: Mapping[str, Any], before: Round) -> dict[str, int]:
    """Returns the target ends that earlier rounds left by position, where nobody else writes."""
    from tidelog.pipeline.replay.conclusion import written_by

    if notes["delivery"] != POSITION:
        return {}
    ends = {
        f"{topic}-{partition}": notes["ends"][f"{topic}-{partition}"] + count
        for topic, partition, count in written_by(before.directory)
    }
    return {**notes.get("left", {}), **ends}


def mirror(options: MirrorOptions, session: TaskSession, one: Round) -> int:
    """Does one round: plans, writes, concludes."""
    from tidelog.pipeline.progress import Progress
    from tidelog.pipeline.replay import replay
    from tidelog.pipeline.replay.conclusion import conclude

    began_s = time.monotonic()
    plan, splits = _plan(options, one)
    if options.dry_run:
        say(described(plan))
        return OK
    tasks = _tasks(options, one, plan, splits)
    total = sum(end - start for start, end in plan.offsets.values())
    with Progress(MIRROR, total) as progress:
        outcomes = replay.replay(session, tasks, progress)
    outcomes = replay.stopped(outcomes, _other_topics(options, plan.notes))
    return conclude(
        MIRROR,
        one.name,
        one.directory,
        outcomes,
        mode=plan.notes["delivery"],
        seconds=time.monotonic() - began_s,
        kind=options.report,
        more={"offsets_planned": total},
    )


def _plan(options: MirrorOptions, one: Round) -> tuple[ScanPlan, Sequence[Split]]:
    """Returns the plan of a round and its splits; if a plan exists, those fixed in it."""
    made: list[Sequence[Split]] = []

    def once() -> tuple[Sequence[Split], Mapping[str, Any]]:
        splits, notes = _make(options, one)
        made.append(splits)
        return splits, notes

    plan = _open(options, one, once)
    if made:
        return plan, made[0]
    _refuse_other_topics(options, plan.notes)
    frozen = dataclasses.replace(one.selection, offsets=plan.offsets)
    if plan.notes["delivery"] != TRANSACTIONS:  # no source offset may be missing
        frozen = dataclasses.replace(frozen, allow_gone=False)
    return plan, _splits(options, frozen)


def _open(
    options: MirrorOptions,
    one: Round,
    make: Callable[[], tuple[Sequence[Split], Mapping[str, Any]]],
) -> ScanPlan:
    return ScanPlan.open(
        one.directory,
        job=MIRROR,
        run=one.name,
        arguments={
            **shared.read_arguments(options),
            "isolation": options.isolation,
            "upto": options.upto,
            "to_brokers": options.to_broker,
            "rename": sorted(options.rename),
            "delivery": options.delivery,
        },
        now_ms=time.time_ns() // 1_000_000,
        make=make,
        save=not options.dry_run,
    )


def _make(options: MirrorOptions, one: Round) -> tuple[Sequence[Split], Mapping[str, Any]]:
    """Cuts the source into splits, and determines how the target is written to."""
    splits = _splits(options, one.selection)
    if options.logs and not splits:
        access.refuse_none(one.selection, options.logs)
    if options.dry_run:
        return splits, {}
    counts = _partition_counts(options, one, splits)
    names = dict(options.rename)
    _refuse_one_target(counts, names)
    known = {} if one.before is None else _frozen(options, one.before).notes
    _refuse_other_topics(options, known)
    ids = {**known.get("source_ids", {}), **_source_ids(options, counts)}
    with Client(options.to_broker) as client:
        for topic, count in counts.items():
            targets.prepare(
                client,
                names.get(topic, topic),
                count,
                create=options.create,
                settings=_settings(options, topic),
            )
        places = sorted({(names.get(each.topic, each.topic), each.partition) for each in splits})
        left = None if one.before is None else _left(known, one.before)
        notes = targets.settle(client, places, options, left=left)
    return splits, {**notes, "source_ids": ids, "left": left or {}}


def _splits(options: MirrorOptions, selection: Selection) -> list[Split]:
    return access.plan(selection, logs=options.logs, brokers=options.broker)


def _partition_counts(
    options: MirrorOptions, one: Round, splits: Sequence[Split]
) -> dict[str, int]:
    """Returns how many partitions each topic needs: as many as in the source, with empty ones."""
    names = {each.topic for each in splits}
    if options.broker is not None:
        with Client(options.broker) as client:
            return {name: len(info.partitions) for name, info in client.topics(names).items()}
    everything = dataclasses.replace(one.selection, isolation=source.READ_UNCOMMITTED)
    there = access.ranges(everything, logs=options.logs)
    return {name: 1 + max(part for topic, part in there if topic == name) for name in names}


def _source_ids(options: MirrorOptions, topics: Iterable[str]) -> dict[str, str]:
    """Returns the ids of the source topics that have one; a topic created again has another."""
    if options.broker is None:
        return {}
    with Client(options.broker) as client:
        return identities.ids_of(client, topics)


def _refuse_other_topics(options: MirrorOptions, notes: Mapping[str, Any]) -> None:
    """Raises PipelineError if a topic of the source was created again since the plan."""
    for name in _other_topics(options, notes):
        raise PipelineError(identities.sentence(name, "source"))


def _other_topics(options: MirrorOptions, notes: Mapping[str, Any]) -> list[str]:
    """Returns the topics of the source that were created again since the plan."""
    planned = notes.get("source_ids", {})
    if options.broker is None or not planned:
        return []
    with Client(options.broker) as client:
        return identities.made_anew(client, planned)


def _refuse_one_target(topics: Iterable[str], renamed: Mapping[str, str]) -> None:
    """Raises UsageError if two topics would be written to one."""
    seen: dict[str, str] = {}
    for topic in topics:
        name = renamed.get(topic, topic)
        if name in seen:
            raise UsageError(
                f"{seen[name]} and {topic} would both be written to {name}: name others with --rename"
            )
        seen[name] = topic


def _settings(options: MirrorOptions, topic: str) -> dict[str, str]:
    """Returns the settings of a topic to be created: those of the source, then those given."""
    found: dict[str, str] = {}
    if options.broker is not None:
        with Client(options.broker) as client:
            found = {
                name: one.value
                for name, one in client.topic_settings(topic).items()
                if one.is_own and one.value is not None and name not in _NOT_COPIED
            }
    return {**found, TIMESTAMP_TYPE: "CreateTime", **dict(options.set)}


def _tasks(
    options: MirrorOptions, one: Round, plan: ScanPlan, splits: Sequence[Split]
) -> list[Task]:
    """Returns a task for every partition that has records."""
    from tidelog.pipeline.replay.log_source import LogSource

    parts: dict[TopicPartition, list[Split]] = {}
    for split in splits:
        parts.setdefault((split.topic, split.partition), []).append(split)
    sources = {key: LogSource(tuple(each), one.selection) for key, each in parts.items()}
    run, codec = f"{MIRROR}/{one.name}", targets.codec_of(options.compression)
    return targets.tasks_of(
        options, plan.notes, run, sources, dict(options.rename), compression=codec
    )
