"""Runs an audit: workers read the splits, the driver adds their results up and reports them.

Workers return only sums, some kilobytes for each split. A piece whose lateness cannot be decided
from its first records is read again (`engine/lateness.py`). SimulatedLog directories are also read for their
segments.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import Client
from tidelog.pipeline import retention_inputs
from tidelog.pipeline.engine import partial_audits, summary, whatif
from tidelog.pipeline.engine.audit import (
    AFTER_LIMITS_MS,
    BEFORE_LIMITS_MS,
    Auditor,
    AuditSettings,
    Times,
)
from tidelog.pipeline.engine.tables import RELATIVE_ERROR
from tidelog.pipeline.errors import FINDINGS, OK
from tidelog.pipeline.report import audit as page
from tidelog.pipeline.report import findings, judgement, output, retention
from tidelog.pipeline.report.units import setting
from tidelog.pipeline.runs.group_lags import lags
from tidelog.pipeline.runs.task_progress import watching
from tidelog.pipeline.runs.whatif_run import retention_settings
from tidelog.pipeline.source import access, locations, reading
from tidelog.pipeline.source.splits import grouped
from tidelog.storage.time.event_time import event_slack
from tidelog.storage.time.retention import APPEND_BASIS
from tidelog.storage.time.stamping import LOG_APPEND_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.engine.partial_audits import Audit, PartialAudit
    from tidelog.pipeline.engine.whatif import Outcome, Policy, SimulatedLog
    from tidelog.pipeline.jobs.audit import AuditOptions
    from tidelog.pipeline.plan import ScanPlan
    from tidelog.pipeline.session import TaskSession
    from tidelog.pipeline.source.splits import Selection, Split
    from tidelog.protocol.topic_partition import TopicPartition

_DAY: Final = 86_400_000
_PIECE_BYTES: Final = 1 << 20  # sums over columns are quick while these stay in a processor's cache
_TRIED_MS: Final = (_DAY, 7 * _DAY, 30 * _DAY)


class AuditTask(NamedTuple):
    """The input of one task: a split, options, the largest plausible time before it if known."""

    split: Split
    options: reading.ReadOptions
    settings: AuditSettings
    carry: int | None = None


def audit_split(item: AuditTask) -> PartialAudit:
    """Reads one split in a worker."""
    auditor = Auditor(item.settings, item.carry)
    for columns in access.read(item.split, item.options):
        auditor.note(
            Times(
                columns.offset,
                columns.timestamp_ms,
                columns.append_time_ms,
                columns.is_log_append,
                columns.producer_id,
                columns.size,
            )
        )
    split = item.split
    return partial_audits.partial_audit(split.topic, split.partition, split.start_offset, auditor)


class RetentionTask(NamedTuple):
    """The input of one retention task: a partition's directory, and the policies."""

    partition: retention_inputs.PartitionDirectory
    policies: tuple[Policy, ...]
    now_ms: int
    margin_ms: int


def judge_log(item: RetentionTask) -> tuple[SimulatedLog, list[Outcome]]:
    """Judges one partition; the result contains only the names of its segments."""
    slack = event_slack(item.policies[0].config)
    log = retention_inputs.read(
        item.partition, event_slack_ms=slack, now_ms=item.now_ms, margin_ms=item.margin_ms
    )
    outcomes = [
        whatif.judge(log, policy, [item.now_ms], margin_ms=item.margin_ms)
        for policy in item.policies
    ]
    return log._replace(segments=tuple(s._replace(appended=()) for s in log.segments)), outcomes


def work(items: Sequence[AuditTask | RetentionTask]) -> list[Any]:
    """Does one task: some items of either kind.

    They share one Spark job, because each job takes a second to start.
    """
    return [audit_split(item) if isinstance(item, AuditTask) else judge_log(item) for item in items]


class Auditing:
    """One run of an audit."""

    def __init__(
        self, options: AuditOptions, session: TaskSession, selection: Selection, plan: ScanPlan
    ) -> None:
        self.options, self.session, self.plan = options, session, plan
        self.now_ms: int = plan.notes["now_ms"]
        self._named = selection.topics  # also for topics without records
        self._reading = reading.ReadOptions.of(selection, reading.TIMES, batch_bytes=_PIECE_BYTES)

    def report(self, splits: Sequence[Split], cluster: str | None) -> dict[str, Any]:
        """Does the audit; returns report.json."""
        topics = sorted({topic for topic, _ in self.plan.offsets}.union(self._named))
        own = _settings_of(topics, cluster)
        limits = {*BEFORE_LIMITS_MS}
        limits |= {r for r in (_retention_ms(own.get(topic)) for topic in topics) if r is not None}
        settings = AuditSettings(
            self.now_ms, self.options.margin, tuple(sorted(limits)), AFTER_LIMITS_MS
        )
        kept = self._logs(topics, own)
        audits, judged = self._work(splits, settings, kept)
        reports = [
            self._topic(
                topic,
                {key[1]: audit for key, audit in audits.items() if key[0] == topic},
                settings,
                own.get(topic),
                [each for each in judged if each[0].topic == topic],
            )
            for topic in topics
        ]
        found = [finding for topic in reports for finding in findings.of_topic(topic)]
        groups = []
        if self.options.groups and cluster is not None:
            names = [name.strip() for name in self.options.groups.split(",") if name.strip()]
            newest = {key: audit.newest for key, audit in audits.items()}
            groups = lags(
                cluster,
                names,
                self.plan.offsets,
                newest,
                self.options.logs,
                self.options.upto,
                self.now_ms,
            )
        return {
            "job": "audit",
            "run": self.plan.run,
            "now_ms": self.now_ms,
            "source": self.options.broker or ", ".join(self.options.logs),
            "settings": settings._asdict(),
            "quantile_error": RELATIVE_ERROR,
            "findings": [each._asdict() for each in found],
            "topics": reports,
            "groups": groups,
        }

    # --- times -----------------------------------------------------------------------------------

    def _work(
        self, splits: Sequence[Split], settings: AuditSettings, kept: Sequence[RetentionTask]
    ) -> tuple[dict[TopicPartition, Audit], list[tuple[SimulatedLog, list[Outcome]]]]:
        """Reads all splits, some twice, and judges logs; returns the audit of each partition."""
        items = [AuditTask(split, self._reading, settings) for split in splits]
        by_partition: dict[TopicPartition, list[int]] = defaultdict(list)
        for number, split in enumerate(splits):
            by_partition[split.topic, split.partition].append(number)
        results = self._done("audit", [*self._tasks(items), *([one] for one in kept)])
        found: list[PartialAudit] = results[: len(items)]
        again = [
            (numbers[each.number], each.carry)
            for numbers in by_partition.values()
            for each in partial_audits.to_read_again([found[number] for number in numbers])
        ]
        if again:
            repeated = [items[number]._replace(carry=carry) for number, carry in again]
            anew = self._done("audit, again", self._tasks(repeated))
            for (number, _), partial_audit in zip(again, anew, strict=True):
                found[number] = partial_audit
        audits = {
            key: partial_audits.partition_audit(
                [found[n] for n in by_partition.get(key, ())], settings
            )
            for key in self.plan.offsets
        }
        return audits, results[len(items) :]

    def _done(self, job: str, tasks: Sequence[Sequence[AuditTask | RetentionTask]]) -> list[Any]:
        """Does the tasks; returns the result of each item."""
        sizes = [
            sum(one.split.size_bytes for one in items if isinstance(one, AuditTask))
            for items in tasks
        ]
        with watching(job, sum(sizes), self.session, brokers=self.options.broker) as watch:
            done = self.session.run(work, tasks, watch=watch, sizes=sizes)
        return [result for several in done for result in several]

    def _tasks(self, items: Sequence[AuditTask]) -> list[Sequence[AuditTask]]:
        """Returns small neighbours together: a task costs as much as reading some megabytes."""
        rest = iter(items)
        groups = grouped([item.split for item in items], self.options.split_bytes)
        return [[next(rest) for _ in group] for group in groups]

    def _logs(
        self, topics: Sequence[str], own: Mapping[str, Mapping[str, str]]
    ) -> list[RetentionTask]:
        """Returns the partitions of local log directories, to be judged by several policies."""
        logs = self.options.logs
        if (
            self.options.no_retention
            or not logs
            or any(locations.is_uri(location) for location in logs)
        ):
            return []
        return [
            RetentionTask(
                partition, _tried(own.get(partition.topic)), self.now_ms, self.options.margin
            )
            for root in logs
            for partition in retention_inputs.partitions(
                Path(locations.local(root)), topics.__contains__
            )
        ]

    # --- the report ------------------------------------------------------------------------------

    def _topic(
        self,
        name: str,
        audits: Mapping[int, Audit],
        settings: AuditSettings,
        own: Mapping[str, str] | None,
        judged: Sequence[tuple[SimulatedLog, list[Outcome]]],
    ) -> dict[str, Any]:
        partitions = [{"partition": n} | summary.summary(a) for n, a in sorted(audits.items())]
        for each in partitions:
            for one in each["examples"].values():
                one["partition"] = each["partition"]
        rows = {number: summary.rows(audit) for number, audit in sorted(audits.items())}
        whole = partial_audits.Audit.nothing(settings)
        for audit in audits.values():
            whole.add(audit)
        whole.tables.bound()
        numbers = summary.summary(whole)
        numbers["examples"] = _farthest(partitions)
        first, last, factor = summary.plot_range(whole)
        producers = summary.producers(whole)
        logs = [log for log, _ in judged]
        outcomes = [outcome for _, found in judged for outcome in found]
        return {
            "topic": name,
            "summary": numbers,
            "partitions": partitions,
            "rows": rows,
            "late_curve": summary.late_curve(whole),
            "plot": summary.rows(whole, factor),
            "plot_span_ms": whole.tables.span_ms * factor,
            "plot_range_ms": [first * whole.tables.span_ms, last * whole.tables.span_ms],
            "producers": producers,
            "skewed_producers": findings.skewed(producers, numbers["delay_ms"]["p50"]),
            "safe_windows": findings.safe_windows(numbers),
            "settings": _judged_by(own),
            "log_bytes": sum(log.size for log in logs),
            "retention": retention.policy_rows(logs, outcomes),
            "pinned": retention.pinned_rows([found[0] for _, found in judged]),
        }


def _farthest(partitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the examples of a topic: for "future" the farthest, else the first partition's."""
    found: dict[str, Any] = {}
    for each in partitions:
        for name, example in each["examples"].items():
            kept = found.get(name)
            if kept is None or (
                name == "future" and example["timestamp_ms"] > kept["timestamp_ms"]
            ):
                found[name] = example
    return found


def _settings_of(topics: Sequence[str], cluster: str | None) -> dict[str, dict[str, str]]:
    """Asks a cluster for the settings of its topics; topics that it does not have are left out."""
    if cluster is None:
        return {}
    with Client(cluster) as client:
        there = client.topics()
        return {topic: retention_settings(client, topic) for topic in topics if topic in there}


def _judged_by(own: Mapping[str, str] | None) -> dict[str, Any] | None:
    if own is None:
        return None
    rules = whatif.policy_of("as it is", own).retention
    stamped = own.get("message.timestamp.type") == LOG_APPEND_TIME
    return {
        "retention_ms": rules.retention_ms,
        "retention_bytes": rules.retention_bytes,
        "by_append": rules.by_append or stamped,
        "event_ms": rules.event_ms,
    }


def _retention_ms(own: Mapping[str, str] | None) -> int | None:
    judged = _judged_by(own)
    return None if judged is None else judged["retention_ms"]


def _tried(own: Mapping[str, str] | None) -> tuple[Policy, ...]:
    """Returns the policies that every audit tries; the topic's own first if it is known."""
    found = [] if own is None else [whatif.policy_of("as it is set", own)]
    for span_ms in _TRIED_MS:
        words = setting(span_ms)
        ms = {"retention.ms": str(span_ms), "retention.bytes": "-1"}
        found.append(whatif.policy_of(f"retention.ms={words}, on Apache Kafka", ms, "kafka"))
        found.append(whatif.policy_of(f"retention.ms={words}, by record time", ms))
        basis = {"retention.time.basis": APPEND_BASIS}
        found.append(whatif.policy_of(f"retention.ms={words}, by append time", ms | basis))
        event = {"retention.ms": "-1", "retention.max.eventtime.ms": str(span_ms)}
        found.append(whatif.policy_of(f"retention.max.eventtime.ms={words}", event))
    return tuple(found)


# --- results -------------------------------------------------------------------------------------


def leave(report: Mapping[str, Any], directory: Path, kind: str) -> int:
    """Writes the report and its figures, prints the headlines; returns the exit status.

    Where the report has thresholds, they alone decide the status.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rows = [
        (topic["topic"], number, topic["partitions"], columns)
        for topic in report["topics"]
        for number, columns in topic["rows"].items()
    ]
    _parquet(rows, directory / "audit" / "partition_hour.parquet")
    written = [directory / "audit" / "partition_hour.parquet"]
    lean = dict(report) | {
        "topics": [{k: v for k, v in t.items() if k != "rows"} for t in report["topics"]]
    }
    written += output.leave(lean, directory, kind, page.html)
    for each in report["findings"]:
        output.say(f"{each['level']:<4}  {each['topic']}  {each['title']}")
    for line in judgement.changes(report["comparison"]) if report.get("comparison") else ():
        output.say(f"SINCE {report['comparison']['run']}: {line}")
    limits = report.get("thresholds")
    for each in limits["broken"] if limits else ():
        output.say(f"THRESHOLD {judgement.broken(each)}")
    for path in written:
        output.say(f"      {path}")
    if limits is not None:
        return FINDINGS if limits["broken"] else OK
    is_alarming = any(each["level"] in ("bad", "warn") for each in report["findings"])
    return FINDINGS if is_alarming else OK


def _parquet(rows: Sequence[tuple[str, int, Any, Mapping[str, list[Any]]]], path: Path) -> None:
    """Writes the sums by partition and span of event time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidelog.pipeline.source import arrays

    tables = []
    for topic, number, partitions, columns in rows:
        count = len(columns["event_ms"])
        span_ms = next(each["span_ms"] for each in partitions if each["partition"] == number)
        data = {
            "topic": arrays.same_text(topic, count),
            "partition": arrays.int32s([number] * count),
            "span_ms": arrays.int64s([span_ms] * count),
        }
        data |= {name: arrays.int64s(values) for name, values in columns.items()}
        tables.append(pa.table(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    if tables:
        pq.write_table(pa.concat_tables(tables), path, compression="zstd")
