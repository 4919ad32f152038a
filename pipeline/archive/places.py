"""Where an archive is, by the options that name it: a directory, an object store or an Iceberg table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.pipeline import options as shared
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    from tidelog.pipeline.archive.directory import Directory
    from tidelog.pipeline.archive.iceberg import Table


def add_table(group: argparse._ActionsContainer, other: str, *, is_nested: bool = False) -> None:
    """Adds the options that name an Iceberg table; `other` is what names a directory.

    `is_nested` is for an action of a job whose own parser has them, too.
    """
    group.add_argument(
        "--table",
        metavar="NAMESPACE.TABLE",
        default=argparse.SUPPRESS if is_nested else None,
        help=f"an Iceberg table as the archive, instead of {other}",
    )
    group.add_argument(
        "--catalog",
        action="append",
        default=argparse.SUPPRESS if is_nested else [],
        type=shared.pair,
        metavar="KEY=VALUE",
        help="with --table: a property of its catalog as pyiceberg has it, uri=sqlite:///catalog.db say;"
        " may be given many times",
    )


def add_archive(parser: argparse.ArgumentParser, *, is_nested: bool = False) -> None:
    """Adds what names an archive that is read."""
    parser.add_argument("directory", nargs="?", metavar="DIR|URI", help="the archive")
    add_table(parser, "DIR|URI", is_nested=is_nested)


def place_of(location: str | None, options: argparse.Namespace, name: str) -> Directory | Table:
    """Returns the archive that is named. Raises UsageError unless it is one, PipelineError for a catalog.

    `name` is how the command line names a directory.
    """
    table: str | None = options.table
    if (location is None) == (table is None):
        raise UsageError(
            f"{name} names the archive, a directory or an URI; or --table names an Iceberg table"
        )
    if table is not None:
        from tidelog.pipeline.archive.iceberg import Table

        if "." not in table:
            raise UsageError("--table: a table is in a namespace: NAMESPACE.TABLE")
        return Table(table, dict(options.catalog))
    from tidelog.pipeline.archive.directory import Directory
    from tidelog.pipeline.archive.store import Store

    return Directory(Store(str(location)))
