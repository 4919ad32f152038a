"""`archive verify` and `archive compact`: their output, and the order of changes to an archive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.archive import keeping, layout, manifests
from tidelog.pipeline.archive.directory import Directory
from tidelog.pipeline.archive.keeping import ArchivedPartition, Merged, WholeFile
from tidelog.pipeline.archive.manifests import Archive, Manifest
from tidelog.pipeline.archive.store import PARTIAL
from tidelog.pipeline.errors import FINDINGS, OK, PipelineError
from tidelog.pipeline.report.output import leave, say
from tidelog.pipeline.runs.archive_reading import survey
from tidelog.pipeline.runs.task_progress import watching
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.pipeline.archive.iceberg import IcebergTable
    from tidelog.pipeline.archive.iceberg_files import TableFiles
    from tidelog.pipeline.archive.manifests import File
    from tidelog.pipeline.archive.store import FileStore
    from tidelog.pipeline.jobs.archive import CompactOptions, VerifyOptions
    from tidelog.pipeline.session import TaskSession
    from tidelog.protocol.topic_partition import TopicPartition

_SHOWN: Final = 50


class _Checked(NamedTuple):
    """What an archive has, and what is wrong with it."""

    place: str
    archive: Archive
    files: int
    findings: Sequence[str]
    unnamed: Sequence[str]
    more: str  # of the last line


def verify(
    options: VerifyOptions,
    session: TaskSession,
    place: Directory | IcebergTable,
    name: str,
    directory: Path,
) -> int:
    """Compares an archive with its manifests; returns FINDINGS if something is wrong."""
    if options.dry_run:
        say(_announced(place))
        return OK
    if isinstance(place, Directory):
        seen = _check_directory(session, place.target())
    else:
        seen = _check_table(session, place)
    findings, archive = seen.findings, seen.archive
    records = sum(one.records for one in archive.files)
    for finding in findings[:_SHOWN]:
        say(finding)
    if len(findings) > _SHOWN:
        say(f"... and {len(findings) - _SHOWN} more")
    for gap in (gap for made in archive.manifests for gap in made.gaps):
        say(
            f"{gap.topic}-{gap.partition}: offsets {gap.start_offset} to {gap.end_offset - 1} were gone"
            " before they were archived, which was accepted"
        )
    if seen.unnamed:
        say(
            f"named by no manifest: {some(len(seen.unnamed), 'file')}, left of runs that did not end, or"
            " merged"
        )
    partitions = len({one.key for one in archive.files})
    say(
        f"verify {seen.place}: {some(records, 'record')} of {some(partitions, 'partition')} in"
        f" {some(seen.files, 'file')}{seen.more}:"
        f" {some(len(findings), 'finding') if findings else 'no findings'}"
    )
    leave(
        {"job": "verify", "run": name, "records": records, "files": seen.files}
        | {"findings": findings, "unnamed": seen.unnamed},
        directory,
        options.report,
    )
    return FINDINGS if findings else OK


def _announced(place: Directory | IcebergTable) -> str:
    """Returns what would be read."""
    if isinstance(place, Directory):
        archive = Archive.read(place.target(), must_exist=True)
        sizes = [parts[0].size_bytes for parts in manifests.by_path(archive.files).values()]
        before = f"{some(len(archive.manifests), 'manifest')}, "
    else:
        sizes, before = [one.size_bytes for one in place.listed(is_whole=True)[2]], ""
    return f"{before}{some(len(sizes), 'file')}, {some(sum(sizes), 'byte')} to read"


def _check_directory(session: TaskSession, store: FileStore) -> _Checked:
    """Compares each file with its entries, and the offsets of partitions without a bad file."""
    archive = Archive.read(store, must_exist=True)
    named = manifests.by_path(archive.files)
    items = [WholeFile(store, tuple(parts)) for parts in named.values()]
    sizes = [one.size_bytes for one in items]
    with watching("verify", sum(sizes), session) as watch:
        checked: list[list[str]] = session.run(keeping.check, items, watch=watch, sizes=sizes)
    bad = {path for path, found in zip(named, checked, strict=True) if found}
    return _Checked(
        place=store.location,
        archive=archive,
        files=len(named),
        findings=[
            *archive.problems(),
            *(sentence for found in checked for sentence in found),
            *_check_order(session, store, archive, bad),
        ],
        unnamed=[path for path in store.walked() if path not in named],
        more=f", {some(len(archive.manifests), 'manifest')}",
    )


def _check_table(session: TaskSession, table: IcebergTable) -> _Checked:
    """Examines each file, and compares what they have with what was archived."""
    files, archive, surveyed = survey(table, session, is_whole=True)
    bad = {each.path for one in surveyed if one.findings for each in one.entries}
    return _Checked(
        place=files.location,
        archive=archive,
        files=len(surveyed),
        findings=[
            *(sentence for one in surveyed for sentence in one.findings),
            *archive.problems(),
            *_check_order(session, files, archive, bad),
        ],
        unnamed=(),
        more="",
    )


def _check_order(
    session: TaskSession, store: FileStore | TableFiles, archive: Archive, bad: set[str]
) -> list[str]:
    """Checks the offsets of each partition that has no bad file."""
    partitions: dict[TopicPartition, list[File]] = {}
    for one in archive.files:
        partitions.setdefault(one.key, []).append(one)
    whole = [
        ArchivedPartition(store, tuple(files))
        for _, files in sorted(partitions.items())
        if not any(one.path in bad for one in files)
    ]
    sizes = [one.size_bytes for one in whole]
    with watching("verify, offsets", sum(sizes), session) as watch:
        found: list[list[str]] = session.run(keeping.check_order, whole, watch=watch, sizes=sizes)
    return [sentence for each in found for sentence in each]


def compact(
    options: CompactOptions, session: TaskSession, store: FileStore, name: str, directory: Path
) -> int:
    """Merges small files: writes, publishes the manifest, only then deletes what it replaces."""
    began_s = time.monotonic()
    with store.locked():
        archive = Archive.read(store, must_exist=True)
        problems = archive.problems()
        if problems:
            raise PipelineError(f"nothing was changed, for {problems[0]}")
        done = archive.of_run(name)
        if done is not None:
            done.refuse_other(manifests.COMPACT)
        groups = keeping.groups(store, archive.files, options.file_bytes)
        if options.dry_run:
            say(f"{some(sum(len(one.paths) for one in groups), 'file')} would become {len(groups)}")
            return OK
        if done is not None:
            groups = []  # it was published; the replaced files may still exist
        if groups:
            sizes = [one.size_bytes for one in groups]
            with watching("compact", sum(sizes), session) as watch:
                merged: list[Merged] = session.run(keeping.merge, groups, watch=watch, sizes=sizes)
            made = Manifest(
                run=name,
                kind=manifests.COMPACT,
                created_ms=time.time_ns() // 1_000_000,
                files=tuple(file for one in merged for file in one.files),
                replaces=tuple(path for one in merged for path in one.replaces),
            )
            now = Archive.read(store) if store.is_remote else archive  # it has no lock
            problems = Archive([*now.manifests, made]).problems()
            if problems:
                raise PipelineError(f"nothing was changed, for {problems[0]}")
            store.publish(made.name, made.encoded())
        deleted = _clean(store)
    replaced = sum(len(one.paths) for one in groups)
    say(
        f"compact {name}: {some(replaced, 'file')} became {len(groups)}, {deleted} deleted;"
        f" {time.monotonic() - began_s:.1f} s"
    )
    leave(
        {"job": "compact", "run": name, "replaced": replaced, "made": len(groups)}
        | {"deleted": deleted},
        directory,
        options.report,
    )
    return OK


def _clean(store: FileStore) -> int:
    """Deletes replaced files and what killed runs have left; returns how many.

    That is temporary files, and data files that no manifest names. A killed run that is repeated
    writes those again. A store without locks keeps them: they may be those of a run at work.
    """
    archive = Archive.read(store)
    named, replaced = {one.path for one in archive.files}, archive.replaced
    deleted = 0
    aside = [f"{manifests.DIRECTORY}/{name}" for name in store.listed(manifests.DIRECTORY)]
    for path in (*store.walked(), *aside):
        is_partial = path.rpartition("/")[2].startswith(PARTIAL)
        is_left = not store.is_remote and layout.is_data(path) and path not in named
        if is_partial or is_left or path in replaced:
            deleted += store.delete(path)
    return deleted
