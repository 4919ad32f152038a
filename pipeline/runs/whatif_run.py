"""Evaluates policies: one task reads and judges a partition, the driver adds up.

A partition is a directory, or in a running cluster, where it is sampled.

The same directory gives the same answer as long as nothing is appended. Segments stay in the
workers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import Client
from tidelog.pipeline import options as common
from tidelog.pipeline import retention_inputs
from tidelog.pipeline.engine import guards, planned, whatif
from tidelog.pipeline.errors import FINDINGS, OK, PipelineError, UsageError
from tidelog.pipeline.report import output, retention
from tidelog.pipeline.report import whatif as page
from tidelog.pipeline.runs.task_progress import watching
from tidelog.pipeline.source import locations, sampling
from tidelog.protocol.errors import CorruptMessage
from tidelog.storage.time.event_time import event_slack
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.pipeline.engine.guards import Guard
    from tidelog.pipeline.engine.whatif import Outcome, Policy, SimulatedLog
    from tidelog.pipeline.jobs.whatif import WhatifOptions
    from tidelog.pipeline.session import TaskSession

NOW: Final = "now"
"""The policy of what a topic has set."""


class WhatIfTask(NamedTuple):
    """The input of one task."""

    partition: retention_inputs.PartitionDirectory | sampling.ListedPartition
    policies: tuple[Policy, ...]
    moments: range
    early_ms: int
    margin_ms: int


def judge(item: WhatIfTask) -> tuple[SimulatedLog, list[Outcome]]:
    """Reads or samples one partition and tries every policy on it."""
    log = _log(item)
    outcomes = [
        whatif.judge(log, policy, item.moments, early_ms=item.early_ms, margin_ms=item.margin_ms)
        for policy in item.policies
    ]
    lean = log._replace(segments=tuple(each._replace(appended=()) for each in log.segments))
    return lean, outcomes


def _log(item: WhatIfTask) -> SimulatedLog:
    partition, config = item.partition, item.policies[0].config
    if isinstance(partition, sampling.ListedPartition):
        return planned.log_of_samples(
            partition.topic,
            partition.partition,
            sampling.samples(partition),
            config,
            item.moments[0],
            partition.start_offset,
        )
    try:
        return retention_inputs.read(
            partition,
            event_slack_ms=event_slack(config),
            now_ms=item.moments[0],
            margin_ms=item.margin_ms,
        )
    except CorruptMessage as error:
        raise PipelineError(f"{partition.directory}: {error.message}") from error


class Trial:
    """One run of a what-if."""

    def __init__(self, options: WhatifOptions, session: TaskSession, at_ms: int) -> None:
        """Finds the partitions, reads the policies and guards. Raises UsageError."""
        self.options, self.session = options, session
        self.moments = range(at_ms, at_ms + options.horizon + 1, options.step)
        self.partitions = _partitions(options)
        self.place: str = options.broker or ", ".join(options.logs)
        if not self.partitions:
            wanted = "" if options.topics is None else f" of topics {options.topics}"
            raise UsageError(f"no logs{wanted} in {self.place}")
        twice = {(p.topic, p.partition) for p in self.partitions}
        if len(twice) < len(self.partitions):
            raise UsageError("a partition is in two of the log directories")
        topics = sorted({partition.topic for partition in self.partitions})
        self._own = _own_settings(topics, options.broker or options.cluster)
        try:
            self.guards: list[Guard] = [guards.parse_guard(text) for text in options.guard]
            self._policies = {topic: self._of_topic(topic) for topic in topics}
        except whatif.PolicyError as error:
            raise UsageError(str(error)) from error
        names = {policy.name for found in self._policies.values() for policy in found}
        for guard in self.guards:
            if guard.policy is not None and guard.policy not in names:
                raise UsageError(f"--guard {guard.name}: there is no policy {guard.policy!r}")

    def _of_topic(self, topic: str) -> tuple[Policy, ...]:
        own = self._own.get(topic)
        found = [] if own is None else [whatif.policy_of(NOW, own)]
        found += [whatif.parse_policy(text, own) for text in self.options.policy]
        names = [policy.name for policy in found]
        if len(set(names)) < len(names):
            raise whatif.PolicyError(f"two policies have one name: {', '.join(names)}")
        return tuple(found)

    def described(self) -> str:
        """Returns the text of a dry run."""
        lines = [f"{one.topic}-{one.partition}: {_place(one)}" for one in self.partitions]
        size = sum(one.size_bytes for one in self.partitions)
        read = some(size, "byte")
        lines.append(
            f"{some(len(self.partitions), 'partition')}, {some(len(self.moments), 'round')} of each policy,"
            f" {f'about {read} sampled' if self.options.broker else read}"
        )
        return "\n".join(lines)

    def report(self) -> dict[str, Any]:
        """Tries the policies; returns report.json."""
        options = self.options
        items = [
            WhatIfTask(
                partition,
                self._policies[partition.topic],
                self.moments,
                options.early,
                options.margin,
            )
            for partition in self.partitions
        ]
        sizes = [partition.size_bytes for partition in self.partitions]
        with watching("whatif", sum(sizes), self.session, brokers=self.options.broker) as watch:
            judged = self.session.run(judge, items, watch=watch, sizes=sizes)
        topics = []
        for topic, policies in self._policies.items():
            logs = [log for log, _ in judged if log.topic == topic]
            outcomes = [o for _, found in judged for o in found if o.topic == topic]
            topics.append(self._topic(topic, policies, logs, outcomes))
        every = [outcome for _, found in judged for outcome in found]
        return {
            "job": "whatif",
            "run": options.run,
            "at_ms": self.moments[0],
            "horizon_ms": options.horizon,
            "step_ms": options.step,
            "early_ms": options.early,
            "logs": list(options.logs),
            "source": self.place,
            "is_sampled": options.broker is not None,
            "topics": topics,
            "broken_guards": [
                {
                    "guard": each.guard.name,
                    "policy": each.policy,
                    "limit": each.guard.limit,
                    "value": each.value,
                }
                for each in guards.broken(self.guards, every)
            ],
            "guards": [guard._asdict() for guard in self.guards],
        }

    def _topic(
        self,
        topic: str,
        policies: Sequence[Policy],
        logs: Sequence[SimulatedLog],
        outcomes: Sequence[Outcome],
    ) -> dict[str, Any]:
        return {
            "topic": topic,
            "bytes": sum(log.size for log in logs),
            "records": sum(log.records for log in logs),
            "is_estimated": any(log.is_estimated for log in logs),
            "policies": [
                {
                    "policy": policy.name,
                    "rules": policy.rules,
                    "retention": policy.retention._asdict(),
                }
                for policy in policies
            ],
            "retention": retention.policy_rows(logs, outcomes),
            "curves": {policy.name: _curve(policy.name, outcomes) for policy in policies},
            "partitions": [_partition(log, outcomes) for log in logs],
            "pinned": retention.pinned_rows(
                [outcome for outcome in outcomes if outcome.policy == policies[0].name]
            ),
        }


def _partitions(
    options: WhatifOptions,
) -> list[retention_inputs.PartitionDirectory] | list[sampling.ListedPartition]:
    wants = _wants(options.topics)
    if options.broker is not None:
        return sampling.partitions(options.broker, wants)
    return [
        partition
        for root in options.logs
        for partition in retention_inputs.partitions(Path(locations.local(root)), wants)
    ]


def _place(partition: retention_inputs.PartitionDirectory | sampling.ListedPartition) -> str:
    if isinstance(partition, sampling.ListedPartition):
        return f"offsets {partition.start_offset} to {partition.end_offset}"
    return str(partition.directory)


def _partition(log: SimulatedLog, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    mine = [outcome for outcome in outcomes if outcome.partition == log.partition]
    return {
        "partition": log.partition,
        "bytes": log.size,
        "records": log.records,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.high_watermark,
        "segments": len(log.segments),
        "max_event_time_ms": log.max_event_time,
        "is_estimated": log.is_estimated,
        "policies": [
            {
                "policy": outcome.policy,
                "deleted": [each._asdict() for each in outcome.deleted],
                "first": outcome.rounds[0]._asdict(),
                "last": outcome.rounds[-1]._asdict(),
            }
            for outcome in mine
        ],
    }


def _curve(policy: str, outcomes: Sequence[Outcome]) -> list[list[int]]:
    """Returns (moment, bytes kept in all partitions); of many rounds only those that changed it."""
    mine = [outcome.rounds for outcome in outcomes if outcome.policy == policy]
    points: list[list[int]] = []
    for rounds in zip(*mine, strict=True):
        kept = sum(each.size for each in rounds)
        if not points or points[-1][1] != kept:
            points.append([rounds[0].at_ms, kept])
    if mine and points[-1][0] != mine[0][-1].at_ms:
        points.append([mine[0][-1].at_ms, points[-1][1]])
    return points


def _wants(text: str | None) -> Callable[[str], bool]:
    names, pattern = common.topics_of(text)
    if names:
        return names.__contains__
    if pattern is None:
        return lambda topic: not topic.startswith("__")
    try:
        return re.compile(pattern).fullmatch  # type: ignore[return-value]
    except re.error as error:
        raise UsageError(f"--topics: '{pattern}' is no regular expression: {error}") from error


def _own_settings(topics: Sequence[str], cluster: str | None) -> dict[str, dict[str, str]]:
    """Returns the settings in force of a cluster's topics. Raises UsageError for a missing one."""
    if cluster is None:
        return {}
    with Client(cluster) as client:
        there = client.topics()
        missing = [topic for topic in topics if topic not in there]
        if missing:
            raise UsageError(f"{cluster} has no topic {missing[0]}: is it another cluster's log?")
        return {topic: retention_settings(client, topic, and_segments=True) for topic in topics}


def retention_settings(client: Client, topic: str, *, and_segments: bool = False) -> dict[str, str]:
    """Returns the settings in force of a topic that decide what retention deletes.

    With `and_segments` also those that decide where segments end.
    """
    wanted = OF_RETENTION | OF_SEGMENTS if and_segments else OF_RETENTION
    return {
        name: one.value
        for name, one in client.topic_settings(topic).items()
        if one.value is not None and name in wanted
    }


OF_SEGMENTS: Final = frozenset({"segment.bytes", "segment.ms", "segment.min.roll.interval.ms"})
OF_RETENTION: Final = frozenset(
    {
        *("cleanup.policy", "retention.ms", "retention.bytes", "retention.time.basis"),
        *("retention.max.eventtime.ms", "retention.max.eventtime.grace.ms"),
        "retention.min.append.ms",
        *("message.timestamp.type", "event.time.ahead.max.ms"),
    }
)


# --- results -------------------------------------------------------------------------------------


def leave(report: Mapping[str, Any], directory: Path, kind: str) -> int:
    """Writes the report, and prints what each policy does; returns the exit status."""
    for topic in report["topics"]:
        for line in page.sentences(topic):
            output.say(f"{topic['topic']}: {line}")
    for each in report["broken_guards"]:
        output.say(
            f"GUARD {each['guard']}={each['limit']} is broken by policy {each['policy']}:"
            f" {each['value']}"
        )
    for path in output.leave(report, directory, kind, page.html):
        output.say(path)
    return FINDINGS if report["broken_guards"] else OK
