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

import time
from typing import TYPE_CHECKING, ClassVar, Final

from tidelog.pipeline import options as shared
from tidelog.pipeline.archive import places
from tidelog.pipeline.declaring import (
    Choice,
    Flag,
    Item,
    Many,
    Needed,
    Options,
    Text,
    declared,
    declared_in_order,
)
from tidelog.pipeline.errors import OK, UsageError
from tidelog.pipeline.options import Isolation, RunOptions, SourceOptions, UpTo
from tidelog.pipeline.plan import at_work, described
from tidelog.pipeline.report.output import say
from tidelog.pipeline.runs import ARCHIVE

if TYPE_CHECKING:
    from tidelog.pipeline.session import TaskSession

_FILE_BYTES: Final = 128 << 20
_MOST_FILE_BYTES: Final = 1 << 30
_TASK_OFFSETS: Final = 1_000_000
_ARCHIVES: Final = ("/archive", "s3://bucket/archive", "./archive --run monday")  # in the help


def _count(text: str) -> int:
    """Parses a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"'{text}' is not a number above 0")
    return int(text)


def _file_size(text: str) -> int:
    """Parses a size within the limits of Arrow's columns."""
    found = shared.size(text)
    if found > _MOST_FILE_BYTES:
        raise ValueError(f"'{text}' is more than 1g")
    return found


def _file_bytes(measure: str) -> Item[int]:
    return Item(
        f"largest file, {measure} (128m)", parse=_file_size, default=_FILE_BYTES, metavar="SIZE"
    )


@declared
class _Upkeep(RunOptions):
    job = ARCHIVE

    @classmethod
    def description(cls) -> str:
        """Returns the help text, with examples."""
        command = f"\n    tidelog pipeline archive {cls.action} "
        return f"{cls.summary}.\n{''.join(command + each for each in _ARCHIVES)}"


@declared
class VerifyOptions(_Upkeep, places.Archived):
    """The options of `archive verify`."""

    action = "verify"
    summary = "compare an archive with its manifests"


@declared_in_order
class _Compacted(Options):
    section = "which archive"

    directory: Needed = Needed("the archive", is_positional=True, metavar="DIR|URI")


@declared
class CompactOptions(_Upkeep, _Compacted):
    """The options of `archive compact`."""

    action = "compact"
    summary = "put the small files of each date together"
    section = "which archive"

    file_bytes: Item[int] = _file_bytes("as it is stored; files of half of it stay")


@declared
class _Logs(SourceOptions):
    section = shared.WHICH_RECORDS
    needs_one = False

    cluster: Text = shared.addresses(
        "with --logs: the cluster they belong to, which knows the settings of topics"
    )
    isolation: Choice[Isolation] = shared.isolation()
    upto: Choice[UpTo] = shared.upto()


@declared
class ArchiveOptions(RunOptions, _Logs):
    """The options of the job."""

    job = ARCHIVE
    actions: ClassVar = {"verify": VerifyOptions, "compact": CompactOptions}
    section = "where to"

    to: Text = Text("the archive", metavar="DIR|URI")
    table: Text = places.table("--to")
    catalog: Many[tuple[str, str]] = places.catalog()
    accept_gap: Flag = Flag(
        "continue if offsets were deleted before they were archived; the manifest lists them"
    )
    task_offsets: Item[int] = Item(
        parse=_count,
        default=_TASK_OFFSETS,
        metavar="N",
        instead=f"a task archives {_TASK_OFFSETS:,} offsets, and --file-bytes limits its memory",
    )
    file_bytes: Item[int] = _file_bytes("before compression")


OPTIONS: Final = ArchiveOptions


def run(options: ArchiveOptions | VerifyOptions | CompactOptions, session: TaskSession) -> int:
    """Archives, verifies or compacts; returns the exit status."""
    now_ms = time.time_ns() // 1_000_000
    name, directory = options.run, options.run_directory
    if isinstance(options, CompactOptions):
        from tidelog.pipeline.archive.store import FileStore
        from tidelog.pipeline.runs import archive_upkeep

        store = FileStore(options.directory)
        return archive_upkeep.compact(options, session, store, name, directory)
    if isinstance(options, VerifyOptions):
        from tidelog.pipeline.runs import archive_upkeep

        place = places.place_of(options.directory, options, "DIR|URI")
        return archive_upkeep.verify(options, session, place, name, directory)
    place = places.place_of(options.to, options, "--to")
    if (options.broker is None) == (not options.logs):
        raise UsageError("give either --broker or --logs to read from")
    from tidelog.pipeline.runs.archive_run import ArchiveRun

    one = ArchiveRun(options, place, name, directory)
    if options.dry_run:
        say(described(one.plan(now_ms)))
        return OK
    with at_work(directory):
        return one.do(session, now_ms)
