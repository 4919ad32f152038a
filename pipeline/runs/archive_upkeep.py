"""`archive verify` and `archive compact`: their output, and the order of changes to an archive."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from pipeline.archive import keeping, manifests
from pipeline.archive.keeping import Merged, Partition
from pipeline.archive.manifests import Archive, Manifest
from pipeline.archive.store import PARTIAL
from pipeline.errors import FINDINGS, OK, PipelineError
from pipeline.runs.task_progress import watching

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from pipeline.archive.store import Store
    from pipeline.session import Session
    from protocol.topic_partition import TopicPartition

_SHOWN: Final = 50


def verify(
    options: argparse.Namespace, session: Session, store: Store, name: str, directory: Path
) -> int:
    """Compares an archive with its manifests; returns FINDINGS if something is wrong."""
    archive = Archive.read(store, must_exist=True)
    files = archive.files
    if options.dry_run:
        size = sum(one.size_bytes for one in files)
        _say(f"{len(archive.manifests)} manifests, {len(files)} files, {size} bytes to read")
        return OK
    partitions: dict[TopicPartition, list[Any]] = {}
    for one in files:
        partitions.setdefault(one.key, []).append(one)
    items = [Partition(store, tuple(each)) for _, each in sorted(partitions.items())]
    with watching(session, "verify", len(items), unit="partitions") as watch:
        checked: list[list[str]] = session.run(keeping.check, items, watch=watch)
    findings = archive.problems() + [one for each in checked for one in each]
    named = {one.path for one in files}
    unnamed = [path for path in store.walked() if path not in named]
    records = sum(one.records for one in files)
    for finding in findings[:_SHOWN]:
        _say(finding)
    if len(findings) > _SHOWN:
        _say(f"... and {len(findings) - _SHOWN} more")
    for gap in (gap for made in archive.manifests for gap in made.gaps):
        _say(
            f"{gap.topic}-{gap.partition}: offsets {gap.start_offset} to {gap.end_offset - 1} were gone"
            " before they were archived, which was accepted"
        )
    if unnamed:
        _say(
            f"{len(unnamed)} files are named by no manifest: left of runs that did not end, or merged"
        )
    _say(
        f"verify {store.location}: {records} records of {len(partitions)} partitions in {len(files)} files,"
        f" {len(archive.manifests)} manifests: {len(findings) or 'no'} findings"
    )
    leave(
        options.report,
        directory,
        {"job": "verify", "run": name, "records": records, "files": len(files)}
        | {"findings": findings, "unnamed": unnamed},
    )
    return FINDINGS if findings else OK


def compact(
    options: argparse.Namespace, session: Session, store: Store, name: str, directory: Path
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
            _say(f"{sum(len(one.files) for one in groups)} files would become {len(groups)}")
            return OK
        if done is not None:
            groups = []  # it was published; the replaced files may still exist
        if groups:
            with watching(session, "compact", len(groups), unit="files") as watch:
                merged: list[Merged] = session.run(keeping.merge, groups, watch=watch)
            made = Manifest(
                run=name,
                kind=manifests.COMPACT,
                created_ms=time.time_ns() // 1_000_000,
                files=tuple(one.file for one in merged),
                replaces=tuple(path for one in merged for path in one.replaces),
            )
            problems = Archive([*archive.manifests, made]).problems()
            if problems:
                raise PipelineError(f"nothing was changed, for {problems[0]}")
            store.publish(made.name, made.encoded())
        deleted = _clean(store)
    replaced = sum(len(one.files) for one in groups)
    _say(
        f"compact {name}: {replaced} files became {len(groups)}, {deleted} deleted;"
        f" {time.monotonic() - began_s:.1f} s"
    )
    leave(
        options.report,
        directory,
        {"job": "compact", "run": name, "replaced": replaced, "made": len(groups)}
        | {"deleted": deleted},
    )
    return OK


def _clean(store: Store) -> int:
    """Deletes replaced files and temporary files of killed runs; returns how many."""
    replaced = Archive.read(store).replaced
    deleted = 0
    aside = [f"{manifests.DIRECTORY}/{name}" for name in store.listed(manifests.DIRECTORY)]
    for path in (*store.walked(), *aside):
        is_partial = path.rpartition("/")[2].startswith(PARTIAL)
        if path in replaced or is_partial:
            deleted += store.delete(path)
    return deleted


def leave(kind: str, directory: Path, report: Mapping[str, Any]) -> None:
    """Writes report.json unless no report is wanted; these jobs have no page."""
    if kind == "none":
        return
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "report.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _say(text: str) -> None:
    print(text)
