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

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipeline import options as shared
from tidelog.pipeline.archive import places
from tidelog.pipeline.errors import OK
from tidelog.pipeline.plan import PLAN, at_work
from tidelog.pipeline.replay import targets
from tidelog.pipeline.runs import RESTORE

if TYPE_CHECKING:
    from tidelog.pipeline.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the job."""
    places.add_archive(parser)
    group = parser.add_argument_group("which records")
    group.add_argument(
        "--topics", metavar="A,B|REGEX", help="names, or a regular expression (all in the archive)"
    )
    shared.add_times(group)
    group.add_argument(
        "--offsets",
        action="append",
        default=[],
        type=_span,
        metavar="TOPIC-PARTITION=START:END",
        help="only these offsets, the end not included; may be given many times",
    )
    targets.add_target(parser)
    group = parser.add_argument_group("restoring")
    shared.add_rename(group)
    group.add_argument(
        "--keep-times",
        action="store_true",
        help="topics that are made keep the times of records, though they had LogAppendTime",
    )
    targets.add_accept_deletion(group)
    shared.add_run(parser)


def run(options: argparse.Namespace, session: Session) -> int:
    """Predicts and writes; returns the exit status."""
    from tidelog.pipeline.runs.archive_reading import sound
    from tidelog.pipeline.runs.restore_run import Run

    now_ms = time.time_ns() // 1_000_000
    name = options.run or shared.new_run_id(RESTORE, now_ms)
    directory = Path(options.out) / name
    shared.as_begun(options, directory / PLAN)
    shared.range_of(options)
    place = places.place_of(options.directory, options, "DIR|URI")
    one = Run(options, *sound(place, session), name, directory)
    if options.dry_run:
        return one.prepare(session, now_ms)
    with at_work(directory):
        if not (directory / PLAN).exists():
            status = one.prepare(session, now_ms)
            if status != OK:
                return status
        return one.write(session)


def _span(text: str) -> tuple[str, int, int, int]:
    """Parses `topic-partition=start:end`."""
    where, _, span = text.rpartition("=")
    topic, _, partition = where.rpartition("-")
    start, colon, end = span.partition(":")
    numbers = (partition, start, end)
    if not topic or not colon or not all(one.isdecimal() for one in numbers):
        raise argparse.ArgumentTypeError(f"'{text}': expected TOPIC-PARTITION=START:END")
    if int(start) >= int(end):
        raise argparse.ArgumentTypeError(f"'{text}': {start} is not before {end}")
    return topic, int(partition), int(start), int(end)
