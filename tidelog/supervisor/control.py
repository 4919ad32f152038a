"""The supervisor's socket: who may write in the data directory asks which brokers run, and restarts one.

`supervisor.sock` lies in the first log directory of broker 1, and only the user that runs the
supervisor can connect to it. A caller sends one line of JSON and gets one line back:

    {"ask": "brokers"}                  {"brokers": [{"broker": 1, "pid": 7, "starts": 1, ...}, ...]}
    {"ask": "restart", "broker": 2}     {"restarting": 2}, or {"error": "a sentence"}

A restart is answered when it has begun. `starts` counts the starts of a broker, and `status` says how
its last process ended (minus a signal's number), so a caller sees how it went.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

NAME = "supervisor.sock"
_LONGEST_BYTES = 4096
_ANSWER_WITHIN_S = 30.0


class NoSupervisor(Exception):
    """No supervisor answers for a directory; the text says why, in one sentence."""


class Caller:
    """One connection to the socket, of which the question is read without waiting."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._read = b""

    def fileno(self) -> int:
        """Returns the descriptor, for a selector."""
        return self._connection.fileno()

    def serve(self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> bool:
        """Reads what is there, and answers a whole line; returns whether there is more to read."""
        try:
            chunk = self._connection.recv(_LONGEST_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._read += chunk
        if b"\n" not in self._read:
            return bool(chunk) and len(self._read) < _LONGEST_BYTES
        try:
            asked = json.loads(self._read)
        except ValueError:
            asked = None
        said = answer(asked) if isinstance(asked, dict) else {"error": "expected a JSON object"}
        with contextlib.suppress(OSError):  # the caller is gone
            self._connection.sendall(json.dumps(said).encode() + b"\n")
        return False

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class ControlSocket:
    """The socket on which callers are accepted; it is removed when it is closed."""

    def __init__(self, directory: Path) -> None:
        """Takes the place of a socket that an earlier supervisor left. Raises OSError."""
        self._path = directory / NAME
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        before = os.umask(0o177)
        try:
            with _short(directory) as address:
                self._socket.bind(address)
        finally:
            os.umask(before)
        self._socket.listen()

    def fileno(self) -> int:
        """Returns the descriptor, for a selector."""
        return self._socket.fileno()

    def accept(self) -> Caller | None:
        """Returns the next caller; None if it has gone already."""
        try:
            return Caller(self._socket.accept()[0])
        except OSError:
            return None

    def close(self) -> None:
        """Closes the socket and removes its file."""
        self._socket.close()
        self._path.unlink(missing_ok=True)


def ask(directory: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """Asks the supervisor of a data directory. Raises NoSupervisor."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_WITHIN_S)
    try:
        with connection, _short(directory) as address:
            connection.connect(address)
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline())
    except FileNotFoundError:
        raise NoSupervisor(f"there is no {NAME} in {directory}") from None
    except ConnectionRefusedError:
        raise NoSupervisor(f"the supervisor of {directory} has ended") from None
    except (OSError, ValueError) as error:
        raise NoSupervisor(f"the supervisor of {directory} does not answer: {error}") from None
    return dict(answer)


@contextlib.contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Yields an address of the socket by a descriptor of its directory.

    An address has at most 107 bytes (unix(7)), which a path may exceed.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{folder}"
        yield f"{short}/{NAME}" if os.path.isdir(short) else str(directory / NAME)  # noqa: PTH112
    finally:
        os.close(folder)
