"""Finds the local files of a table, as Spark would, where that is certain."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tidelog.pipeline.backfill.in_process.errors import NeedsSpark

_PATTERN: Final = re.compile(r"[*?\[\]{}\\%]|^[A-Za-z][A-Za-z0-9+.-]*:")
_HIDDEN: Final = ("_", ".")
_PACKED: Final = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz")
_CONFIGURED: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def local_files(table: str) -> tuple[Path, ...]:
    """Returns the file, or the files of the directory, in the order of their names.

    Raises NeedsSpark for a pattern, a URI, a file that is hidden or packed, a directory with others in
    it, and where Hadoop's configuration may say what a path means.
    """
    for name in _CONFIGURED:
        if os.environ.get(name):
            raise NeedsSpark(f"{name} may say what a path means")
    if _PATTERN.search(table):
        raise NeedsSpark(f"{table} is a pattern or a URI")
    path = Path(table)
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    found = [one for one in found if not one.name.startswith(_HIDDEN) or one == path]
    for one in found:
        if not one.is_file():
            raise NeedsSpark(f"{one} is a directory" if one.exists() else f"{one} does not exist")
        if one.name.startswith(_HIDDEN) or one.suffix in _PACKED:
            raise NeedsSpark(f"{one} is hidden or packed")
    if not found:
        raise NeedsSpark(f"{table} is empty")
    return tuple(found)
