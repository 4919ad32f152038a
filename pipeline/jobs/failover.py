"""Find where a group continues in another cluster: its offsets there, what it loses or reads twice.

By map, the offsets are exact: `mirror` wrote them down. By time, as in KIP-33, works where
producers wrote to both clusters: the time of the next unread record, less the longest latency, is
searched for in the target. Either way the job then looks for every unread record: through the map
if there is one, else by comparing records. Nothing is changed without --apply, and nothing is
changed if a record would be lost.

    tidelog pipeline failover --group billing --from a:9092 --to b:9092 --map tidelog-runs/first
    tidelog pipeline failover --group billing --from a:9092 --to b:9092 --by time --max-latency 10m --apply
    tidelog pipeline failover --group billing --from a:9092 --to b:9092 --by time --topics orders

Exit status 1: a record would be lost, is not there, or nothing could be proven.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from tidelog.client import EARLIEST, Client, GroupOffset, RequestError
from tidelog.pipeline import options as shared
from tidelog.pipeline.declaring import (
    HOW_TO_RUN,
    Choice,
    Flag,
    Item,
    Many,
    Needed,
    Text,
    declared,
)
from tidelog.pipeline.errors import FINDINGS, OK, PipelineError, Refused, UsageError
from tidelog.pipeline.options import Isolation, Left
from tidelog.pipeline.report.output import leave, say
from tidelog.pipeline.source import splits as source
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.runs.failover_row import Row
    from tidelog.pipeline.runs.offset_maps import Mapped
    from tidelog.pipeline.session import TaskSession
    from tidelog.protocol.topic_partition import TopicPartition

JOB: Final = "failover"
AUTO: Final = "auto"
By = Literal["map", "time"]
_COMPARED: Final = 1_000_000
_OCCUPIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


def _latency(text: str) -> int | None:
    return None if text == AUTO else shared.duration(text)


_FOUND: Final = "how the offsets are found"
_DONE: Final = "what is done"


@declared
class FailoverOptions(Left):
    """The options of the job."""

    job = JOB
    section = "whose offsets, from where to where"

    group: Needed = Needed("the consumer group", metavar="GROUP")
    from_: Needed = Needed(
        "the cluster it has read from",
        parse=shared.brokers,
        metavar="HOST:PORT,...",
        secured_by="command_config",
    )
    to: Needed = Needed(
        "the cluster it will read from",
        parse=shared.brokers,
        metavar="HOST:PORT,...",
        secured_by="to_command_config",
    )
    command_config: Text = Text(shared.COMMAND_CONFIG, metavar="FILE")
    to_command_config: Text = Text(shared.TO_COMMAND_CONFIG, metavar="FILE")
    topics: Text = shared.topics("which topics (all it has committed offsets of)")
    rename: Many[tuple[str, str]] = shared.pairs(
        "a topic has another name there (a map knows that itself)", "TOPIC=NEW"
    )
    map: Many[str] = Many(
        "the run of mirror that copied the topics, or its offsets.parquet; may be given many times",
        section=_FOUND,
        metavar="DIR",
    )
    by: Choice[By | None] = Choice(
        "by map (where there is one), or by time", section=_FOUND, choices=get_args(By)
    )
    max_latency: Item[int | None] = Item(
        "by time: how long a record may have taken from its event to the source's log; auto: from"
        " --audit, else from the unread records themselves (auto)",
        section=_FOUND,
        parse=_latency,
        metavar="auto|SPAN",
    )
    audit: Text = Text(
        "a run of audit over the source's logs, which knows latencies",
        section=_FOUND,
        metavar="DIR",
    )
    isolation: Choice[Isolation] = shared.isolation(
        "whether records of aborted transactions count (read_committed: they do not)",
        section=_FOUND,
    )
    compare: Item[int] = Item(
        f"without a map: compare at most so many records of a partition ({_COMPARED})",
        section=_FOUND,
        parse=shared.whole,
        default=_COMPARED,
        metavar="N",
    )
    apply: Flag = Flag("commit the offsets in the target", also=("--yes",), section=_DONE)
    accept_missing: Flag = Flag(
        "apply though unread records are not in the target (not copied yet, or gone)", section=_DONE
    )
    accept_unproven: Flag = Flag(
        "apply though nothing could be proven of some partitions", section=_DONE
    )
    run: Item[str] = Item(
        "a name for the report's directory", section=HOW_TO_RUN, parse=shared.run_id, metavar="ID"
    )

    @property
    def way(self) -> By:
        """How the offsets are found: by map where there is one."""
        return self.by or ("map" if self.map else "time")


OPTIONS: Final = FailoverOptions


def run(options: FailoverOptions, session: TaskSession) -> int:  # noqa: ARG001 - it needs no Spark
    """Plans, prints, and commits if --apply is given; returns the exit status."""
    from tidelog.pipeline.report import failover as page
    from tidelog.pipeline.runs import failover_row, failover_run, offset_maps

    if options.compare < 1:
        raise UsageError("--compare: a number above 0")
    if options.way == failover_row.MAP and not options.map:
        raise UsageError("--by map needs --map: the run of mirror that copied the topics")
    started_ms = time.time_ns() // 1_000_000
    known = offset_maps.load(options.map)
    with Client(options.from_) as ours, Client(options.to) as theirs:
        committed = _committed(options, ours)
        rows = _rows(
            failover_run.Planner(options, ours, theirs, started_ms),
            options,
            committed,
            known,
            theirs,
        )
        status = OK if all(row.status == failover_row.OK for row in rows) else FINDINGS
        bare = _uncommitted(ours, committed)
        for line in [*page.table([row.as_dict() for row in rows]), *map(page.bare, bare)]:
            say(line)
        refusal = _refusal(options, rows)
        is_applied = False
        if options.apply and refusal is None:
            _apply(options, ours, theirs, rows)
            is_applied, status = True, OK
    report = {
        "job": JOB,
        "run": options.run,
        "group": options.group,
        "from": options.from_,
        "to": options.to,
        "by": options.way,
        "status": status,
        "at_ms": started_ms,
        "is_applied": is_applied,
        "partitions": [row.as_dict() for row in rows],
        "nothing_committed": bare,
    }
    for path in leave(report, options.run_directory, options.report, page.html):
        say(path)
    _say(options, refusal, is_applied=is_applied)
    if options.apply and refusal is not None:
        raise Refused(f"nothing was committed: {refusal}")
    return status


def _committed(options: FailoverOptions, client: Client) -> dict[TopicPartition, GroupOffset]:
    """Returns the group's committed offsets of the selected topics."""
    names, pattern = shared.topics_of(options.topics)
    meant = source.Selection(topics=names, pattern=pattern)
    found = client.offset_fetch(options.group)
    chosen = {
        key: one for key, one in sorted(found.items()) if one.offset >= 0 and meant.wants(key[0])
    }
    if not chosen:
        other = sorted({topic for topic, _ in found})
        raise UsageError(
            f"group {options.group} has committed nothing"
            + (f" of {options.topics}" if options.topics else "")
            + f" in {options.from_}"
            + (f": only of {', '.join(other)}" if other else "")
        )
    return chosen


def _uncommitted(client: Client, committed: Mapping[TopicPartition, GroupOffset]) -> list[str]:
    """Returns the other partitions of the same topics, which have no committed offset."""
    return [
        f"{topic}-{partition}"
        for topic in sorted({topic for topic, _ in committed})
        for partition in range(client.partition_count(topic))
        if (topic, partition) not in committed
    ]


def _rows(
    planner: Any,
    options: FailoverOptions,
    committed: Mapping[TopicPartition, GroupOffset],
    known: Mapping[TopicPartition, Mapped],
    theirs: Client,
) -> list[Row]:
    """Returns a row for each partition with a committed offset of the group."""
    from tidelog.pipeline.runs.offset_maps import topics_of

    names = {**topics_of(known), **dict(options.rename)}
    there = theirs.topics()
    absent = sorted({names.get(topic, topic) for topic, _ in committed} - set(there))
    if absent:
        raise UsageError(f"{options.to} has no topic {', '.join(absent)}")
    on_target = theirs.offset_fetch(options.group)
    rows = []
    for key, one in committed.items():
        mapped = known.get(key)
        target = (names.get(key[0], key[0]), key[1]) if mapped is None else mapped.target
        rows.append(planner.row(key, one, target, mapped, on_target.get(target)))
    return rows


def _refusal(options: FailoverOptions, rows: Sequence[Row]) -> str | None:
    """Returns a sentence that says why nothing is committed, or None if nothing prevents it."""
    by_status: dict[str, list[str]] = {}
    for row in rows:
        by_status.setdefault(row.status, []).append(f"{row.topic}-{row.partition}")
    for status, why, accepted in (
        ("refused", "no offset was found for {}: leave its topic out, or use --map", False),
        ("lost", "records of {} would be lost: use --map, or a larger --max-latency", False),
        (
            "unproven",
            "nothing is proven of {}: see above, or --accept-unproven",
            options.accept_unproven,
        ),
        (
            "missing",
            "records of {} are not in the target: see above, or --accept-missing",
            options.accept_missing,
        ),
    ):
        if status in by_status and not accepted:
            return why.format(", ".join(by_status[status]))
    return None


def _apply(options: FailoverOptions, ours: Client, theirs: Client, rows: Sequence[Row]) -> None:
    """Checks again, and commits.

    Raises PipelineError if something has changed or the group has members.
    """
    now = ours.offset_fetch(options.group)
    for row in rows:
        found = now.get(row.source)
        if found is None or found.offset != row.committed:
            raise PipelineError(
                f"group {options.group} still reads {row.topic}-{row.partition} in {options.from_}: it has"
                f" committed {None if found is None else found.offset} since, and had {row.committed}; stop"
                " it and run again; nothing was committed"
            )
        topic, partition = row.target
        start = theirs.list_offsets(topic, {partition: EARLIEST})[partition].offset
        end = theirs.end_offset(topic, partition)
        assert row.offset is not None
        if not start <= row.offset <= end:
            raise PipelineError(
                f"{topic}-{partition} in {options.to} has offsets from {start} to {end} by now, and"
                f" {row.offset} was planned: run again; nothing was committed"
            )
    wanted = {
        row.target: GroupOffset(row.offset, row.metadata) for row in rows if row.offset is not None
    }
    try:
        theirs.offset_commit(options.group, wanted)
    except RequestError as error:
        if error.code in _OCCUPIED:
            raise PipelineError(
                f"group {options.group} has members in {options.to}: stop them first; nothing was"
                " committed"
            ) from error
        raise
    kept = theirs.offset_fetch(options.group)
    for key, one in wanted.items():
        if key not in kept or kept[key].offset != one.offset:
            raise PipelineError(
                f"{options.to} took offset {one.offset} of {key[0]}-{key[1]} for group {options.group},"
                f" and says {kept[key].offset if key in kept else None} now: somebody else has committed"
            )


def _say(options: FailoverOptions, refusal: str | None, *, is_applied: bool) -> None:
    if is_applied:
        said = f"committed for group {options.group} in {options.to}"
    elif options.apply:
        said = f"NOT committed: {refusal}"
    elif refusal is not None:
        said = f"nothing was changed, and --apply would be refused: {refusal}"
    else:
        said = "nothing was changed: --apply commits these offsets"
    with suppress(BrokenPipeError):
        say(said)
