"""The storage of an archive: a local directory, or any URI that pyarrow can write to.

`publish` makes a file appear completely under its name, or not at all. In a local directory it
writes a temporary file, syncs it and renames it; an object store does this by itself. Names are
relative and use `/`. A local archive can be locked for a run. Other stores have no locks, so the
user must not run two writers at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.plan import removed_if_failed
from tidelog.pipeline.source import locations

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL: Final = ".partial-"
_LOCK: Final = ".lock"
_PUT_WHOLE: Final = frozenset({"s3", "gs", "gcs"})


@dataclass(frozen=True, slots=True)
class FileStore:
    """The files below a location. It can be pickled."""

    location: str

    def full(self, name: str) -> str:
        """Returns the location of a file."""
        return locations.join(self.location, name)

    @property
    def is_remote(self) -> bool:
        """Whether the location is not a local directory."""
        return locations.is_uri(self.location)

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a file, or None if there is none. Raises OSError."""
        return locations.read(self.full(name))

    def open(self, name: str) -> Any:
        """Returns a file as pyarrow reads it. Raises FileNotFoundError and OSError."""
        if self.is_remote:
            system, path = locations.system_of(self.full(name))
            return system.open_input_file(path)
        return pa.OSFile(locations.local(self.full(name)))

    def publish(self, name: str, data: Any) -> None:
        """Makes a file appear under its name, or replaces the one there. Raises OSError."""
        if self.is_remote:
            self._put(name, data)
            return
        target = Path(locations.local(self.location), name)
        _make(target.parent)
        partial = target.with_name(f"{PARTIAL}{uuid.uuid4().hex}-{target.name}")
        with removed_if_failed(partial):
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)  # noqa: PTH105 - what the tests of crashes stop at
        _sync(target.parent)

    def _put(self, name: str, data: Any) -> None:
        system, path = locations.system_of(self.full(name))
        directory, _, last = path.rpartition("/")
        is_whole = urlsplit(self.location).scheme in _PUT_WHOLE
        partial = path if is_whole else f"{directory}/{PARTIAL}{uuid.uuid4().hex}-{last}"
        if not is_whole:
            system.create_dir(directory, recursive=True)
        with system.open_output_stream(partial, compression=None) as file:
            file.write(data)
        if is_whole:
            return
        try:
            system.move(partial, path)
        except OSError:  # some stores do not overwrite a file
            system.delete_file(path)
            system.move(partial, path)

    def delete(self, name: str) -> bool:
        """Deletes a file; returns whether it existed. Raises OSError."""
        if self.is_remote:
            system, path = locations.system_of(self.full(name))
            if not system.get_file_info(path).is_file:
                return False
            system.delete_file(path)
            return True
        try:
            os.unlink(Path(locations.local(self.location), name))  # noqa: PTH108 - as above
        except FileNotFoundError:
            return False
        return True

    def listed(self, directory: str) -> list[str]:
        """Returns the names of the files in a directory, in order; none without a directory."""
        try:
            found = locations.listed(self.full(directory))
        except FileNotFoundError:
            return []
        return sorted(one.name for one in found if not one.is_directory)

    def walked(self) -> list[str]:
        """Returns the names of all files below topics, in order."""
        found: list[str] = []
        for topic in self._directories("", "topic="):
            for date in self._directories(topic, "event_date="):
                found += [f"{date}/{name}" for name in self.listed(date)]
        return sorted(found)

    def _directories(self, above: str, prefix: str) -> list[str]:
        try:
            found = locations.listed(self.full(above) if above else self.location)
        except FileNotFoundError:
            return []
        names = sorted(
            one.name for one in found if one.is_directory and one.name.startswith(prefix)
        )
        return [f"{above}/{name}" if above else name for name in names]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks a local archive against other runs. Raises PipelineError if it is locked.

        A killed run leaves no lock.
        """
        if self.is_remote:
            yield
            return
        directory = Path(locations.local(self.location))
        _make(directory)
        with (directory / _LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(
                    f"another run is at work on the archive {self.location}: wait until it has ended"
                ) from None
            yield


def _make(directory: Path) -> None:
    """Creates a directory and its parents, durably."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync(directory.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
