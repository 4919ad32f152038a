"""Keep topics as Parquet by event date, exactly once: any year, late data too; check and merge it.

    tidelog pipeline archive --broker localhost:9092 --topics orders --to /archive --run monday
    tidelog pipeline archive verify /archive
    tidelog pipeline archive compact /archive

A run begins where the last one ended, and writes
topic=orders/event_date=2026-01-31/p00003-<offsets>.parquet. A late record becomes one more small
file in an old date. Only the files in _manifest/<run>.json count. That file appears when everything
is written: a run that was killed has archived nothing, and can be repeated with the same --run. A
run refuses offsets that were deleted before they were archived, and a topic that was deleted and
created again. `verify` compares the files with the manifests, or those of an Iceberg table with what
was archived to it (exit status 1: something is wrong). `compact` merges the small files of a date,
those of different partitions too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.pipeline import options as shared
from tidelog.pipeline.archive import places
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.plan import at_work, described
from tidelog.pipeline.report.output import say
from tidelog.pipeline.runs import ARCHIVE

if TYPE_CHECKING:
    from tidelog.pipeline.session import Session

_FILE_BYTES: Final = 128 << 20
_MOST_FILE_BYTES: Final = 1 << 30
_TASK_OFFSETS: Final = 1_000_000
_ARCHIVES: Final = ("/archive", "s3://bucket/archive", "./archive --run monday")  # in the help


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the job."""
    group = shared.add_source(parser, is_required=False, is_timed=False)  # `verify` has no run
    group.add_argument(
        "--cluster",
        type=shared.brokers,
        metavar="HOST:PORT,...",
        help="with --logs: the cluster they belong to, which knows the settings of topics",
    )
    shared.add_ends(group)
    group = parser.add_argument_group("where to")
    group.add_argument("--to", metavar="DIR|URI", help="the archive")
    places.add_table(group, "--to")
    group.add_argument(
        "--accept-gap",
        action="store_true",
        help="continue if offsets were deleted before they were archived; the manifest lists them",
    )
    group.add_argument(
        "--task-offsets",
        type=_count,
        default=_TASK_OFFSETS,
        metavar="N",
        action=shared.Deprecated,
        instead=f"a task archives {_TASK_OFFSETS:,} offsets, and --file-bytes limits its memory",
    )
    _add_file_bytes(group, "before compression")
    shared.add_run(parser)
    _add_actions(parser)


def _add_file_bytes(group: argparse._ActionsContainer, measure: str) -> None:
    group.add_argument(
        "--file-bytes",
        type=_file_size,
        default=_FILE_BYTES,
        metavar="SIZE",
        help=f"largest file, {measure} (128m)",
    )


def _add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action")
    for name, summary in (
        ("verify", "compare an archive with its manifests"),
        ("compact", "put the small files of each date together"),
    ):
        examples = "".join(f"\n    tidelog pipeline archive {name} {each}" for each in _ARCHIVES)
        action = actions.add_parser(
            name, help=summary, description=f"{summary}.\n{examples}", allow_abbrev=False
        )
        if name == "compact":
            action.add_argument("directory", metavar="DIR|URI", help="the archive")
            _add_file_bytes(action, "as it is stored; files of half of it stay")
        else:
            places.add_archive(action, is_nested=True)
        shared.add_run(action)
        shared.add_verbose(action, default=argparse.SUPPRESS)


def run(options: argparse.Namespace, session: Session) -> int:
    """Archives, verifies or compacts; returns the exit status."""
    now_ms = time.time_ns() // 1_000_000
    name = options.run or shared.new_run_id(options.action or ARCHIVE, now_ms)
    directory = Path(options.out) / name
    if options.action is not None:
        from tidelog.pipeline.archive.store import Store
        from tidelog.pipeline.runs import archive_upkeep

        if options.action == "compact":
            store = Store(options.directory)
            return archive_upkeep.compact(options, session, store, name, directory)
        place = places.place_of(options.directory, options, "DIR|URI")
        return archive_upkeep.verify(options, session, place, name, directory)
    place = places.place_of(options.to, options, "--to")
    if (options.broker is None) == (options.logs is None):
        raise UsageError("give either --broker or --logs to read from")
    from tidelog.pipeline.runs.archive_run import Run

    one = Run(options, place, name, directory)
    if options.dry_run:
        say(described(one.plan(now_ms)))
        return OK
    with at_work(directory):
        return one.do(session, now_ms)


def _count(text: str) -> int:
    """Parses a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


def _file_size(text: str) -> int:
    """Parses a size within the limits of Arrow's columns."""
    found = shared.size(text)
    if found > _MOST_FILE_BYTES:
        raise argparse.ArgumentTypeError(f"'{text}' is more than 1g")
    return found
