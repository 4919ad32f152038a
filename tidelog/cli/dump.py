"""`tidelog dump FILE...`: shows what the files of a log directory contain, and checks each.

Exit status: 0 if all are fine, 1 if there are findings, 2 for a mistake in the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.arguments import add_flag, size_given
from tidelog.dump import dump
from tidelog.dump.segments import UNPACK_LIMIT, DumpOptions

if TYPE_CHECKING:
    import argparse

_DESCRIPTION = (
    "Show what files of a log directory hold (segments, indexes, append times, snapshots, checkpoints), "
    "and what is wrong with them. Nothing is changed. Exit status 1 says that something is wrong."
)


def add_dump(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog dump`."""
    parser.description = _DESCRIPTION
    what = "a file or a directory of them"
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help=what)
    add_flag(parser, "--records", "show every record of a segment")
    what = "a compressed batch that unpacks to more is not examined (64 MiB)"
    parser.add_argument("--unpack-limit", metavar="SIZE", default=str(UNPACK_LIMIT), help=what)
    add_flag(parser, "--json", "one JSON object a line")
    parser.set_defaults(run=_dump)


def _dump(options: argparse.Namespace) -> int:
    limit = size_given("--unpack-limit", options.unpack_limit)
    return dump.run(options.files, DumpOptions(options.records, limit), as_json=options.json)
