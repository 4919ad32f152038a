"""Write an archive back to a topic: partitions, order, keys, values, headers and event times kept.

    tidelog pipeline restore /archive --topics orders --to-broker b:9092 --create --run back
    tidelog pipeline restore /archive --rename orders=again --to-broker b:9092 --create --dry-run
    tidelog pipeline restore s3://bucket/archive --from 2025-01-01T00:00Z --to-broker b:9092 --create
    tidelog pipeline restore --table logs.orders --catalog uri=sqlite:///catalog.db --to-broker b:9092

A topic that is created gets the partitions and settings it had (--set NAME=VALUE sets others, NAME=
removes one). Before anything is written, the job predicts which records the topic's window would
refuse and which its retention would delete within a day, and names the settings that avoid it. It
refuses to write in both cases (exit status 1), in case of deletion unless --accept-deletion is
given. A topic with LogAppendTime gives records new times; --keep-times changes it to CreateTime.
Each record is written exactly once (--delivery), even if processes are killed: repeat the run with
the same --run. The file offsets.parquet in the directory of the run says which offset went where.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tidelog.pipeline import options as shared
from tidelog.pipeline.archive import places
from tidelog.pipeline.archive.places import Archived
from tidelog.pipeline.declaring import Flag, Many, Text, declared
from tidelog.pipeline.errors import OK
from tidelog.pipeline.options import RunOptions, Times
from tidelog.pipeline.plan import PLAN, at_work
from tidelog.pipeline.replay import targets
from tidelog.pipeline.replay.targets import Writing
from tidelog.pipeline.runs import RESTORE

if TYPE_CHECKING:
    from tidelog.pipeline.session import TaskSession


def _span(text: str) -> tuple[str, int, int, int]:
    """Parses `topic-partition=start:end`."""
    where, _, span = text.rpartition("=")
    topic, _, partition = where.rpartition("-")
    start, colon, end = span.partition(":")
    numbers = (partition, start, end)
    if not topic or not colon or not all(one.isdecimal() for one in numbers):
        raise ValueError(f"'{text}': expected TOPIC-PARTITION=START:END")
    if int(start) >= int(end):
        raise ValueError(f"'{text}': {start} is not before {end}")
    return topic, int(partition), int(start), int(end)


@declared
class _Chosen(Times, Archived):
    section = shared.WHICH_RECORDS

    topics: Text = shared.topics("names, or a regular expression (all in the archive)")
    offsets: Many[tuple[str, int, int, int]] = Many(
        "only these offsets, the end not included; may be given many times",
        parse=_span,
        metavar="TOPIC-PARTITION=START:END",
    )


@declared
class RestoreOptions(RunOptions, Writing, _Chosen):
    """The options of the job."""

    job = RESTORE
    section = "restoring"

    rename: Many[tuple[str, str]] = shared.pairs("write a topic under another name", "TOPIC=NEW")
    keep_times: Flag = Flag(
        "topics that are made keep the times of records, though they had LogAppendTime"
    )
    accept_deletion: Flag = targets.accept_deletion()


OPTIONS: Final = RestoreOptions


def run(options: RestoreOptions, session: TaskSession) -> int:
    """Predicts and writes; returns the exit status."""
    from tidelog.pipeline.runs.archive_reading import sound
    from tidelog.pipeline.runs.restore_run import RestoreRun

    now_ms = time.time_ns() // 1_000_000
    directory = options.run_directory
    options = shared.as_begun(options, directory / PLAN)
    shared.range_of(options)
    place = places.place_of(options.directory, options, "DIR|URI")
    one = RestoreRun(options, *sound(place, session), options.run, directory)
    if options.dry_run:
        return one.prepare(session, now_ms)
    with at_work(directory):
        if not (directory / PLAN).exists():
            status = one.prepare(session, now_ms)
            if status != OK:
                return status
        return one.write(session)
