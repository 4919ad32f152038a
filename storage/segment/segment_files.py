"""The files of one segment: made durable, renamed and removed together.

They are the log, the offset index, the time index (in two files), the append times and the aborted
transactions. Whichever of them do not exist are left out. Nothing here reads what they contain.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage import filenames, files
from tidelog.storage.segment.named_file import NamedFile

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("tidelog.storage")

# In the order of removal: an interrupted removal leaves a segment that can be opened, or nothing.
_SUFFIXES = (*filenames.INDEX_SUFFIXES, filenames.APPEND_TIMES_SUFFIX, filenames.LOG_SUFFIX)


class SegmentFiles:
    """The files of the segment that begins at an offset, by their suffixes."""

    __slots__ = ("_beside", "base_offset", "directory", "log")

    def __init__(self, directory: Path, base_offset: int) -> None:
        """Names the files; nothing is touched."""
        self.directory = directory
        self.base_offset = base_offset
        self.log = NamedFile(self._path(filenames.LOG_SUFFIX))
        self._beside: dict[str, NamedFile] | None = None  # those that were needed

    def of(self, suffix: str) -> NamedFile:
        """Returns the log or one of the files beside it, which may not exist."""
        if suffix == filenames.LOG_SUFFIX:
            return self.log
        with self.log.lock:
            if self._beside is None:
                self._beside = {}
            file = self._beside.get(suffix)
            if file is None:
                file = self._beside[suffix] = NamedFile(self._path(suffix), self.log.lock)
        return file

    def _path(self, suffix: str) -> Path:
        return self.directory / filenames.segment_file(self.base_offset, suffix)

    def give_up(self) -> None:
        """Never opens a file of the segment again: others may get their names."""
        with self.log.lock:
            for suffix in _SUFFIXES:
                self.of(suffix).give_up()

    def sync(self) -> None:
        """Makes the files durable as they are on disk; raises OSError."""
        files.sync(self.log.path)
        for suffix in (filenames.APPEND_TIMES_SUFFIX, *filenames.INDEX_SUFFIXES):
            path = self.of(suffix).path
            if path.exists():
                files.sync(path)

    def forget_cached(self) -> None:
        """Makes the files that cannot be rebuilt be read from the disk from now on; raises OSError."""
        for suffix in (filenames.LOG_SUFFIX, filenames.APPEND_TIMES_SUFFIX):
            files.forget_cached(self.of(suffix).path)

    def rename_away(self) -> list[Path]:
        """Gives every file of the segment the name of one about to go; returns these.

        Reads that have begun go on. Raises OSError, and then nothing has another name. Once the log has,
        the segment is gone: what cannot be renamed of the rest is removed at the next start.
        """
        return [*self.mark_log_deleted(), *self.mark_companions_deleted()]

    def mark_log_deleted(self) -> list[Path]:
        """Renames the log to `.deleted`; returns its new path, if it was there. Raises OSError."""
        try:
            return [self._rename_away(filenames.LOG_SUFFIX)]
        except FileNotFoundError:
            return []

    def mark_companions_deleted(self) -> list[Path]:
        """Renames the other files to `.deleted` as far as possible; returns their new paths."""
        gone: list[Path] = []
        for suffix in reversed(_SUFFIXES[:-1]):
            try:
                gone.append(self._rename_away(suffix))
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning(
                    "deleted segment file not removed",
                    extra={"file": self.of(suffix).path, "reason": str(error)},
                )
        return gone

    def _rename_away(self, suffix: str) -> Path:
        file = self.of(suffix)
        file.rename(file.path.with_name(file.path.name + filenames.DELETED_SUFFIX))
        return file.path

    def remove_indexes(self) -> None:
        """Removes the index files, which can be rebuilt; raises OSError."""
        for suffix in filenames.INDEX_SUFFIXES[:-1]:  # not the aborted transactions
            files.unlink(self.of(suffix).path)

    def remove(self) -> None:
        """Removes every file of the segment except the snapshot; raises OSError."""
        for suffix in _SUFFIXES:
            files.unlink(self.of(suffix).path)
