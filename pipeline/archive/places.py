"""Where an archive is, by the options that name it: a directory, an object store or an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline import options as shared
from tidelog.pipeline.declaring import Many, Options, Text, declared, declared_in_order
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    from tidelog.pipeline.archive.directory import Directory
    from tidelog.pipeline.archive.iceberg import IcebergTable
    from tidelog.pipeline.jobs.archive import ArchiveOptions


def table(other: str) -> Text:
    """Declares the name of an Iceberg table; `other` is what names a directory."""
    return Text(f"an Iceberg table as the archive, instead of {other}", metavar="NAMESPACE.TABLE")


def catalog() -> Many[tuple[str, str]]:
    """Declares the properties of the catalog of an Iceberg table."""
    return Many(
        "with --table: a property of its catalog as pyiceberg has it, uri=sqlite:///catalog.db say;"
        " may be given many times",
        parse=shared.pair,
        metavar="KEY=VALUE",
    )


@declared_in_order
class _Directory(Options):
    section = "which archive"

    directory: Text = Text("the archive", is_positional=True, metavar="DIR|URI")


@declared
class Archived(_Directory):
    """The archive that is read."""

    section = "which archive"

    table: Text = table("DIR|URI")
    catalog: Many[tuple[str, str]] = catalog()


def place_of(
    location: str | None, options: Archived | ArchiveOptions, name: str
) -> Directory | IcebergTable:
    """Returns the archive that is named. Raises UsageError unless it is one, PipelineError for a catalog.

    `name` is how the command line names a directory.
    """
    table = options.table
    if (location is None) == (table is None):
        raise UsageError(
            f"{name} names the archive, a directory or an URI; or --table names an Iceberg table"
        )
    if table is not None:
        from tidelog.pipeline.archive.iceberg import IcebergTable

        if "." not in table:
            raise UsageError("--table: a table is in a namespace: NAMESPACE.TABLE")
        return IcebergTable(table, dict(options.catalog))
    from tidelog.pipeline.archive.directory import Directory
    from tidelog.pipeline.archive.store import FileStore

    return Directory(FileStore(str(location)))
