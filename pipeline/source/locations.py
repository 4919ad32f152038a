"""Files in a local directory, or below any URI that pyarrow supports (s3, gs, hdfs, file).

A location is a string, so it can be sent to workers: a path, or `scheme://...`. The part after a `?`
holds options of the file system (`s3://bucket/logs?region=eu-west-1`); they remain at the end of
every location below. Files are read by position. A local file that is unlinked while it is open can be
read to its end.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

_FILE = "file://"
_INDEX_CHUNK = 256 << 10
_NO_ENTRY = 16  # so many zeros contain an entry of zeros, behind which an index has no others


class DirectoryEntry(NamedTuple):
    """An entry of a directory: its name, whether it is a directory, and its size in bytes."""

    name: str
    is_directory: bool
    size: int


def is_uri(location: str) -> bool:
    """Returns whether a location is a URI other than that of a local file."""
    return "://" in location and not location.startswith(_FILE)


def local(location: str) -> str:
    """Returns a local location as a path."""
    return unquote(urlsplit(location).path) if location.startswith(_FILE) else location


def join(location: str, name: str) -> str:
    """Returns the location of a name below a directory."""
    path, mark, options = location.partition("?") if is_uri(location) else (location, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


def parent(location: str) -> str:
    """Returns the directory that contains a location."""
    if not is_uri(location):
        return os.path.dirname(os.path.abspath(local(location)))
    path, mark, options = location.partition("?")
    return f"{path.rstrip('/').rpartition('/')[0]}{mark}{options}"


def base_name(location: str) -> str:
    """Returns the last part of a location."""
    path = location.partition("?")[0] if is_uri(location) else os.path.abspath(local(location))
    return path.rstrip("/").rpartition("/")[2]


def listed(location: str) -> list[DirectoryEntry]:
    """Lists a directory by name. Raises OSError if there is none."""
    if is_uri(location):
        return _listed_remotely(location)
    entries = []
    with os.scandir(local(location)) as found:
        for entry in found:
            try:
                is_directory = entry.is_dir()
                size = 0 if is_directory else entry.stat().st_size
            except FileNotFoundError:  # retention has deleted it
                continue
            entries.append(DirectoryEntry(entry.name, is_directory, size))
    return sorted(entries)


def read(location: str) -> bytes | None:
    """Reads a small file; None if there is none. Raises OSError."""
    try:
        with File(location) as file:
            return file.read_at(0, file.size)
    except FileNotFoundError:
        return None


def read_index(location: str) -> bytes | None:
    """Reads an index, without most of the zeros that Kafka preallocates at its end; None without one.

    Raises OSError.
    """
    parts: list[bytes] = []
    position = 0
    try:
        with File(location) as file:
            while position < file.size and (not parts or parts[-1][-_NO_ENTRY:].strip(b"\0")):
                parts.append(file.read_at(position, _INDEX_CHUNK))
                position += _INDEX_CHUNK
    except FileNotFoundError:
        return None
    return b"".join(parts)


class File:
    """A file open for reading by position. Raises OSError."""

    __slots__ = ("_descriptor", "_remote", "location", "size")

    def __init__(self, location: str) -> None:
        """Opens the file; `size` is its current size."""
        self.location = location
        self._remote: Any = None
        self._descriptor = -1
        if is_uri(location):
            system, path = system_of(location)
            self._remote = system.open_input_file(path)
            self.size: int = self._remote.size()
        else:
            self._descriptor = os.open(local(location), os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._descriptor).st_size

    @property
    def is_near(self) -> bool:
        """Whether small reads cost little."""
        return self._remote is None

    def read_at(self, position: int, size: int) -> bytes:
        """Reads up to `size` bytes at a position; fewer only at the end of the file."""
        if self._remote is not None:
            return bytes(self._remote.read_at(size, position))
        data = os.pread(self._descriptor, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        """Closes the file."""
        if self._remote is not None:
            self._remote.close()
        elif self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listed_remotely(location: str) -> list[DirectoryEntry]:
    from pyarrow import fs

    system, path = system_of(location)
    return sorted(
        DirectoryEntry(found.base_name, found.type == fs.FileType.Directory, found.size or 0)
        for found in system.get_file_info(fs.FileSelector(path))
    )


def system_of(location: str) -> tuple[Any, str]:
    """Returns the file system of a URI, and the path in it; also for writing."""
    from pyarrow import fs

    path, mark, options = location.partition("?")
    parts = urlsplit(path)
    system = _system_of(f"{parts.scheme}://{parts.netloc}/{mark}{options}")
    if system is None:
        system, inner = fs.FileSystem.from_uri(location)
        return system, inner
    return system, f"{parts.netloc}{parts.path}".strip("/")


@functools.cache
def _system_of(root: str) -> Any:
    """Returns the file system of a bucket, cached, because finding its region takes a request."""
    from pyarrow import fs

    if urlsplit(root).scheme not in {"s3", "gs", "gcs"}:
        return None
    return fs.FileSystem.from_uri(root)[0]
