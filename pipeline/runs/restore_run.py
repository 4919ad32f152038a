"""One run of `restore`: the prediction, the topics that it creates, the records that it writes."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import Client
from tidelog.pipeline.archive import reading
from tidelog.pipeline.archive.reading import ArchiveSource, Bounds
from tidelog.pipeline.engine import prediction, whatif
from tidelog.pipeline.errors import FINDINGS, OK, PipelineError, Refused, UsageError
from tidelog.pipeline.options import range_of, time_arguments, topics_of
from tidelog.pipeline.plan import PLAN, ScanPlan, described
from tidelog.pipeline.progress import Progress
from tidelog.pipeline.replay import replay, targets
from tidelog.pipeline.replay.conclusion import conclude
from tidelog.pipeline.report.output import say
from tidelog.pipeline.report.units import count
from tidelog.pipeline.runs import OF_REPLICAS, RESTORE, TIMESTAMP_TYPE
from tidelog.pipeline.runs.task_progress import watching
from tidelog.pipeline.runs.whatif_run import OF_RETENTION, OF_SEGMENTS
from tidelog.pipeline.source.splits import Split
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tidelog.pipeline.archive.iceberg_files import TableFiles
    from tidelog.pipeline.archive.manifests import Archive, ArchivedTopic, File
    from tidelog.pipeline.archive.store import FileStore
    from tidelog.pipeline.engine.prediction import Prediction, TopicPrediction
    from tidelog.pipeline.engine.whatif import Policy, Rules
    from tidelog.pipeline.jobs.restore import RestoreOptions
    from tidelog.pipeline.replay.targets import TargetTopic
    from tidelog.pipeline.session import TaskSession
    from tidelog.protocol.topic_partition import TopicPartition

_BASIS: Final = "retention.time.basis"
_JUDGED: Final = OF_RETENTION | OF_SEGMENTS
_RECORD_BYTES: Final = 54  # the bytes that a record saves in a batch, compared to columns


class RestoreTask(NamedTuple):
    """One partition whose future is predicted."""

    store: FileStore | TableFiles
    files: tuple[File, ...]
    bounds: Bounds
    policies: tuple[Policy, ...]
    window: tuple[int, int]
    batch_bytes: int
    now_ms: int


def predict(item: RestoreTask) -> Prediction:
    """Reads the times of a partition and predicts its retention.

    Raises PipelineError and OSError.
    """
    records = max(1, sum(one.records for one in item.files))
    size = sum(one.column_bytes for one in item.files) // records - _RECORD_BYTES
    tables = reading.merged(item.store, item.files, ("offset", "timestamp_ms"), item.bounds)
    return prediction.predict(
        (table.column("timestamp_ms").to_numpy() for table in tables),
        item.policies,
        window=item.window,
        record_bytes=size,
        batch_bytes=item.batch_bytes,
        now_ms=item.now_ms,
    )


class RestoreRun:
    """The options of a restore run. Methods raise PipelineError and OSError."""

    def __init__(
        self,
        options: RestoreOptions,
        store: FileStore | TableFiles,
        archive: Archive,
        name: str,
        directory: Path,
    ) -> None:
        self.options, self.store, self.name, self.directory = options, store, name, directory
        self._archive = archive
        self._files: dict[TopicPartition, list[File]] = {}
        for one in self._archive.files:
            self._files.setdefault(one.key, []).append(one)
        self.topics = self._topics()
        self.names = {topic: dict(options.rename).get(topic, topic) for topic in self.topics}
        if len(set(self.names.values())) < len(self.names):
            raise UsageError("--rename: two topics would get one name")
        self.bounds = self._bounds()

    def _topics(self) -> dict[str, ArchivedTopic]:
        names, pattern = topics_of(self.options.topics)
        there = sorted({topic for topic, _ in self._archive.spans})
        missing = [name for name in names if name not in there]
        if missing:
            raise UsageError(f"{self.store.location} has no topic {', '.join(missing)}")
        found = {}
        for name in there:
            topic = self._archive.topic(name)
            if topic is not None and (
                name in names if names else pattern is None or re.fullmatch(pattern, name)
            ):
                found[name] = topic
        if not found:
            raise UsageError(f"{self.store.location} has no such topic")
        return found

    def _bounds(self) -> dict[TopicPartition, Bounds]:
        """Returns the selection of records for each partition."""
        low_time, high_time = range_of(self.options)
        timed = Bounds(low_time=low_time, high_time=high_time)
        given = {(topic, partition): (low, high) for topic, partition, low, high in self._given}
        found = {}
        for key, (start, end) in self._archive.spans.items():
            if key[0] not in self.topics or (given and key not in given):
                continue
            low, high = given.get(key, (start, end))
            if low < start or high > end:
                raise UsageError(
                    f"--offsets {key[0]}-{key[1]}={low}:{high}: the archive has {start} to {end - 1}"
                )
            found[key] = replace(timed, low=low, high=high)
        for topic, partition, _, _ in self._given:
            if (topic, partition) not in found:
                raise UsageError(f"--offsets: the archive has no {topic}-{partition}")
        return found

    @property
    def _given(self) -> Sequence[tuple[str, int, int, int]]:
        given: Sequence[tuple[str, int, int, int]] = self.options.offsets
        return given

    def _wanted(self, key: TopicPartition) -> tuple[File, ...]:
        return tuple(filter(self.bounds[key].wants, self._files.get(key, ())))

    # --- before ----------------------------------------------------------------------------------

    def prepare(self, session: TaskSession, now_ms: int) -> int:
        """Predicts what happens to the records; creates topics and plan.

        Raises Refused if some records are refused; a dry run returns FINDINGS instead.
        """
        options = self.options
        places = [(self.names[topic], partition) for topic, partition in sorted(self.bounds)]
        with Client(options.to_broker) as client:
            found = {topic: self._target(client, topic) for topic in self.topics}
            if not (self.directory / PLAN).exists():  # else a dry run of what has begun
                targets.refuse_records(client, places, options)
            policies = self._policies(found, _rules(client))
            counted = self._count(session, found, policies, now_ms)
            refused = [
                reason
                for topic in self.topics
                for reason in self._report_prediction(topic, found[topic], counted[topic])
            ]
            if options.dry_run:
                say(described(self._plan(now_ms, {}, save=False)))
            if options.dry_run:
                return FINDINGS if refused else OK
            if refused:
                raise Refused("nothing was written: " + "; ".join(refused))
            for topic, known in self.topics.items():
                targets.prepare(
                    client,
                    self.names[topic],
                    known.partitions,
                    create=options.create,
                    settings=self._settings(topic),
                )
            self._plan(now_ms, targets.settle(client, places, options))
        return OK

    def _target(self, client: Client, topic: str) -> TargetTopic:
        """Returns the topic as it is or would be created."""
        name, known = self.names[topic], self.topics[topic]
        if client.has_topic(name):
            found = targets.look_at(client, name)
            if found.partition_count < known.partitions:
                raise UsageError(
                    f"topic {name} has {some(found.partition_count, 'partition')}, and {topic} had"
                    f" {known.partitions}"
                )
            return found
        if not self.options.create:
            raise UsageError(f"the target has no topic {name}: make it, or say --create")
        return targets.as_it_would_be(client, name, known.partitions, self._settings(topic))

    def _settings(self, topic: str) -> dict[str, str]:
        """Returns the settings of a topic to be created: those it had, then those given."""
        had = {
            name: value
            for name, value in self.topics[topic].settings.items()
            if name not in OF_REPLICAS
        }
        stamp = self.topics[topic].timestamp_type
        if stamp is not None:
            had[TIMESTAMP_TYPE] = stamp
        if self.options.keep_times:
            had[TIMESTAMP_TYPE] = "CreateTime"
        return {
            name: value for name, value in {**had, **dict(self.options.set)}.items() if value != ""
        }

    def _policies(
        self, found: Mapping[str, TargetTopic], rules: Rules
    ) -> dict[str, tuple[Policy, ...]]:
        try:
            return {
                topic: prediction.policies_of(
                    {
                        name: value
                        for name, value in target.settings.items()
                        if name in _JUDGED and value
                    },
                    rules,
                )
                for topic, target in found.items()
            }
        except whatif.PolicyError as error:
            raise UsageError(str(error)) from error

    def _count(
        self,
        session: TaskSession,
        found: Mapping[str, TargetTopic],
        policies: Mapping[str, tuple[Policy, ...]],
        now_ms: int,
    ) -> dict[str, TopicPrediction]:
        keys = sorted(self.bounds)
        items = [
            RestoreTask(
                self.store,
                self._wanted(key),
                self.bounds[key],
                policies[key[0]],
                found[key[0]].window(now_ms),
                min(self.options.batch_bytes, found[key[0]].batch_limit),
                now_ms,
            )
            for key in keys
        ]
        sizes = [sum(one.read_bytes for one in item.files) for item in items]
        with watching("predict", sum(sizes), session) as watch:
            seen: list[Prediction] = session.run(predict, items, watch=watch, sizes=sizes)
        return {
            topic: prediction.combined(
                [one for key, one in zip(keys, seen, strict=True) if key[0] == topic],
                policies[topic],
            )
            for topic in self.topics
        }

    def _report_prediction(
        self, topic: str, target: TargetTopic, counted: TopicPrediction
    ) -> list[str]:
        """Prints the prediction; returns the sentences that say why the topic is refused."""
        name, refused = target.topic, list[str]()
        say(
            f"{topic}: {some(counted.records, 'record')}, to {some(target.partition_count, 'partition')} of"
            f" {name}"
        )
        if target.is_stamped:
            say(
                f"{name} has LogAppendTime: records get the time of their restoring (--keep-times makes a"
                " topic that is not there yet with CreateTime)"
            )
        outside = counted.too_old + counted.too_new
        if outside:
            refused.append(
                f"{some(outside, 'record')} outside the window of {name}: refused ({counted.too_old} older"
                f" than {target.before_setting}, {counted.too_new} newer than"
                f" message.timestamp.after.max.ms = {target.after_ms})"
            )
            say(refused[-1])
        if counted.deleted:
            accepted = self.options.accept_deletion
            share = 100 * counted.deleted / counted.records
            avoid = " or ".join(counted.remedies) or "nothing alone"
            said = (
                f"retention would delete {count(counted.deleted)} of {some(counted.records, 'record')}"
                f" ({share:.3g} %) of"
                f" {name} within a day; {avoid} avoids that"
                + ("" if accepted else ": refused unless --accept-deletion")
            )
            say(said)
            refused += [] if accepted else [said]
        return refused

    # --- the run ---------------------------------------------------------------------------------

    def _plan(self, now_ms: int, notes: Mapping[str, Any] | None, *, save: bool = True) -> ScanPlan:
        options = self.options

        def make() -> tuple[Sequence[Split], Mapping[str, Any]]:
            if notes is None:
                raise PipelineError(f"the plan of run {self.name} is gone")
            return [
                Split(
                    *key,
                    bounds.low,
                    bounds.high,
                    sum(one.size_bytes for one in self._wanted(key)),
                )
                for key, bounds in sorted(self.bounds.items())
            ], notes

        return ScanPlan.open(
            self.directory,
            job=RESTORE,
            run=self.name,
            arguments={
                "archive": options.directory,
                **({"table": options.table} if options.table else {}),
                "topics": options.topics,
                **time_arguments(options),
                "offsets": sorted(options.offsets),
                "rename": sorted(options.rename),
                "to_brokers": options.to_broker,
                "delivery": options.delivery,
            },
            now_ms=now_ms,
            make=make,
            save=save,
        )

    def write(self, session: TaskSession) -> int:
        """Writes the records that the plan selects to the target; returns the exit status."""
        began_s = time.monotonic()
        plan = self._plan(0, None)
        sources = {}
        for key, (low, high) in plan.offsets.items():
            self.bounds[key] = replace(self.bounds[key], low=low, high=high)
            sources[key] = ArchiveSource(self.store, self._wanted(key), self.bounds[key])
        tasks = targets.tasks_of(
            self.options,
            plan.notes,
            f"{RESTORE}/{self.name}",
            sources,
            self.names,
            compression=max(0, targets.codec_of(self.options.compression)),
        )
        total = sum(one.records for key in plan.offsets for one in self._wanted(key))
        with Progress(RESTORE, total) as progress:
            outcomes = replay.replay(session, tasks, progress)
        return conclude(
            RESTORE,
            self.name,
            self.directory,
            outcomes,
            mode=plan.notes["delivery"],
            seconds=time.monotonic() - began_s,
            more={"archive": self.store.location},
            kind=self.options.report,
        )


def _rules(client: Client) -> Rules:
    """Returns whose retention rules a cluster follows, by the settings of its topics.

    They are tidelog's if it has no topics.
    """
    for name in client.topics():
        return "tidelog" if _BASIS in client.topic_settings(name) else "kafka"
    return "tidelog"
