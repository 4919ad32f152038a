"""Which registration of a broker used a log directory, and how that ended: a small file in each.

A broker in a cluster writes it before it registers, after a stop, and when a log has failed. So the
next start knows whether the directory may have lost records (`broker/lifecycle/clean_start.py`).

    1                              the version
    crc32 of the third line        8 hexadecimal digits
    {"directory": id, ...}         one line of JSON

It is replaced whole by rename, and durable when `write_state` returns. A file that is torn or
damaged proves nothing, so it counts as none. It names the metadata store with which the directory was
used last: without one that brokers share, a broker that starts on the directory must not make a new one.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames, files

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = b"1"
_MOST_BYTES = 4096  # some ten times what is ever written

OWN_STORE = "own"
"""The store of an only broker: a file beside its logs, which no other broker uses."""


class DirectoryState(NamedTuple):
    """What the last process wrote about a log directory."""

    directory: str  # the id of the directory, which it keeps until it is wiped
    incarnation: str  # of the broker that uses it, or was about to
    previous: str  # the incarnation that was registered when the file was written; "": unclean
    boot_id: str  # names the start of the machine in which it was written
    is_stopped: bool = False  # everything was flushed, and the process ended in order
    has_failed: bool = False  # a log in the directory has failed: nothing is certain of it
    cluster: str = ""  # the id of the cluster whose broker uses it
    broker: int = 0  # the id of that broker
    store: str = (
        ""  # its metadata.store, or OWN_STORE; "" in the file of an older tidelog, for a shared one
    )


def begun(
    state: DirectoryState | None,
    new_id: str,
    incarnation: str,
    registered: str,
    boot_id: str,
    *,
    cluster: str = "",
    broker: int = 0,
    store: str = "",
) -> DirectoryState:
    """Returns what a directory must hold durably before the broker registers as `incarnation`.

    `registered` is the incarnation that is registered so far, if the start is clean; else "". An
    unclean start writes the file after it has left ISR and ELR. A directory without a file gets the
    id `new_id`.
    """
    directory = new_id if state is None else state.directory
    return DirectoryState(
        directory, incarnation, registered, boot_id, cluster=cluster, broker=broker, store=store
    )


class RegistrationFileError(ValueError):
    """A registration file does not hold what its format promises."""


def read_state(directory: Path) -> DirectoryState | None:
    """Returns what a directory holds; None if it has no file.

    Raises OSError, and RegistrationFileError for a file that is torn or damaged. A start takes both
    as if there were no file.
    """
    try:
        descriptor = files.Descriptor(directory / filenames.REGISTRATION_FILE)
    except FileNotFoundError:
        return None
    return parse_state(files.read_at(descriptor, _MOST_BYTES, 0))


def write_state(directory: Path, state: DirectoryState) -> None:
    """Replaces the file, durably. Raises OSError."""
    body = json.dumps(state._asdict()).encode()
    data = b"%s\n%08x\n%s\n" % (_VERSION, zlib.crc32(body), body)
    files.replace(directory / filenames.REGISTRATION_FILE, data)


def parse_state(data: bytes) -> DirectoryState:
    """Returns what the bytes of a file hold. Raises RegistrationFileError."""
    lines = data.splitlines()
    if len(lines) != 3 or lines[0] != _VERSION:
        raise RegistrationFileError("it is not a registration file of version 1")
    if lines[1] != b"%08x" % zlib.crc32(lines[2]):
        raise RegistrationFileError("its checksum is wrong")
    try:
        said = json.loads(lines[2])
        return DirectoryState(
            str(said["directory"]),
            str(said["incarnation"]),
            str(said["previous"]),
            str(said["boot_id"]),
            bool(said["is_stopped"]),
            bool(said["has_failed"]),
            str(said["cluster"]),
            int(said["broker"]),
            str(said.get("store", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RegistrationFileError(f"it does not hold what it should: {error!r}") from error
