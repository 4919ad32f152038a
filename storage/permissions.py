"""Who may read what a broker writes: its user alone, or also a group that may read logs.

The umask of the process decides, which SQLite and child processes obey, too. What not even the group may
open is made with 0600: the metadata, lock files and sockets.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE: Final = 0o640
"""The mode of a file that a group may read if it may read logs: the umask removes that right."""
DIRECTORY: Final = 0o750
_OWNER_ONLY, _OWNER_AND_GROUP = 0o077, 0o027  # umasks

_log = logging.getLogger("tidelog.storage")


def set_umask(*, group_reads: bool = False) -> None:
    """Lets files and directories that this process makes be its user's, and a group's with `group_reads`.

    Only for a process of our own: the umask is that of the whole process.
    """
    os.umask(_OWNER_AND_GROUP if group_reads else _OWNER_ONLY)


def warn_of_open(directories: Iterable[Path], *, group_reads: bool = False) -> None:
    """Logs which directories others may read or write, with the command that changes that."""
    surplus = _OWNER_AND_GROUP if group_reads else _OWNER_ONLY
    found = [path for path in directories if stat.S_IMODE(path.stat().st_mode) & surplus]
    if found:
        import shlex

        mode = DIRECTORY if group_reads else 0o700
        names = shlex.join(map(str, found))
        _log.warning(
            "log directories accessible to other users", extra={"advice": f"chmod {mode:o} {names}"}
        )


def is_open_to_others(file: os.stat_result) -> bool:
    """Returns whether others can open a file of this user."""
    return file.st_uid == os.geteuid() and bool(stat.S_IMODE(file.st_mode) & _OWNER_ONLY)


def keep_to_owner(path: Path) -> None:
    """Makes a file that only its owner can open, or removes the rights of others to an existing one of ours.

    The file is not opened if it exists: closing it would end the locks of SQLite. Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    close_to_others(path)


def close_to_others(path: Path) -> None:
    """Takes a file of ours away from others, if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if is_open_to_others(path.stat()):
            path.chmod(0o600)
