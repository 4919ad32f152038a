"""What an archive has, whether it is a directory or an Iceberg table, whose files are examined for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.archive.directory import Directory
from tidelog.pipeline.archive.manifests import Archive
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.runs.task_progress import watching

if TYPE_CHECKING:
    from tidelog.pipeline.archive.iceberg import IcebergTable
    from tidelog.pipeline.archive.iceberg_files import Surveyed, TableFiles
    from tidelog.pipeline.archive.store import FileStore
    from tidelog.pipeline.session import TaskSession


def sound(
    place: Directory | IcebergTable, session: TaskSession
) -> tuple[FileStore | TableFiles, Archive]:
    """Returns the files of an archive and what they have, to use its records.

    Raises UsageError if it is no archive, PipelineError if it is not sound, and OSError.
    """
    if isinstance(place, Directory):
        store = place.target()
        return store, Archive.sound(store)
    files, archive, surveyed = survey(place, session, is_whole=False)
    problems = [finding for one in surveyed for finding in one.findings] + archive.problems()
    if problems:
        raise PipelineError(f"{files.location} is not sound: {problems[0]} (archive verify)")
    return files, archive


def survey(
    table: IcebergTable, session: TaskSession, *, is_whole: bool
) -> tuple[TableFiles, Archive, list[Surveyed]]:
    """Examines the files of a table; returns them, what they have together, and what each has.

    `is_whole` checks every byte of them. Raises UsageError, PipelineError and OSError.
    """
    from tidelog.pipeline.archive import iceberg_files

    archive, files, items = table.listed(is_whole=is_whole)
    sizes = [one.size_bytes for one in items]
    with watching("examine", sum(sizes), session) as watch:
        surveyed: list[Surveyed] = session.run(
            iceberg_files.survey, items, watch=watch, sizes=sizes
        )
    return files, archive.with_files(each for one in surveyed for each in one.entries), surveyed
