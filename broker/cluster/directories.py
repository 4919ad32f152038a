"""The registration files of this broker's log directories: read at the start, written before a session.

All methods read or write files and run in a thread, one at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.metadata.names import new_id, written_id
from storage.directory.registration_file import (
    DirectoryState,
    RegistrationFileError,
    begun,
    read_state,
    write_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = logging.getLogger("tidelog.cluster")


class Directories:
    """The log directories of one broker, and what their registration files say."""

    def __init__(self, paths: Iterable[Path], boot_id: str) -> None:
        """Reads the files of directories that exist. `boot_id` is that of the machine now.

        Raises OSError.
        """
        self.boot_id = boot_id
        self._states = {path: _read(path) for path in paths}
        self._new_ids = {path: written_id(new_id()) for path in self._states}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the directories; one without a file has the id that it will get."""
        return tuple(
            self._new_ids[path] if state is None else state.directory
            for path, state in self._states.items()
        )

    @property
    def states(self) -> tuple[DirectoryState | None, ...]:
        """What the files hold; None for each that is missing or damaged."""
        return tuple(self._states.values())

    def begin(self, incarnation: str, registered: str) -> None:
        """Makes the files durable that must be there before a session begins.

        `registered` is the incarnation that is registered so far, "" if the start is unclean. Raises
        OSError.
        """
        for path, state in self._states.items():
            if state is None or state.incarnation != incarnation:
                next_state = begun(
                    state, self._new_ids[path], incarnation, registered, self.boot_id
                )
                self._write(path, next_state)

    def note_stop(self) -> None:
        """Writes down that everything was flushed, and the process ends in order. Raises OSError."""
        for path, state in self._states.items():
            if state is not None:
                self._write(path, state._replace(is_stopped=True, boot_id=self.boot_id))

    def _write(self, path: Path, state: DirectoryState) -> None:
        write_state(path, state)
        self._states[path] = state


def _read(path: Path) -> DirectoryState | None:
    try:
        return read_state(path)
    except RegistrationFileError as error:
        log.warning("registration file ignored: %s", error, extra={"directory": str(path)})
        return None
