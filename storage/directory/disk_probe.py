"""A small write to a log directory, by which a broker sees how fast its disk is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage import filenames, files

if TYPE_CHECKING:
    from pathlib import Path


def probe(directory: Path) -> None:
    """Writes a byte to a file of the directory, and makes it durable. Raises OSError."""
    file = files.Descriptor(directory / filenames.DISK_PROBE_FILE, writable=True)
    files.write_at(file, (b"\n",), 0, 1)
    files.sync_data(file)
