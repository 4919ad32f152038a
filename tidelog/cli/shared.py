"""What all commands have in common: how they run, fail, ask a broker over HTTP, and ask first.

They ask over HTTP what Kafka's protocol cannot express; cluster.py has the rest. The broker parses
times as the user wrote them, by its own clock. Exit status: 0 for success, 1 for failure, 2 for a
mistake in the command line. Every mistake is one sentence on standard error.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tidelog.cli.escaping import escaped
from tidelog.control import ControlClient, ControlError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from types import ModuleType

FAILED, USAGE = 1, 2
NONE = -1  # the offset if nothing is found

_TIMEOUT_S = 600.0  # a log that another program wrote is read once before it is explained
_MISTAKES = frozenset({"BAD_REQUEST", "BAD_TIME", "BAD_OFFSET", "NO_TIME", "INVALID_CONFIG"})


class CommandError(Exception):
    """A command failed: a sentence, the exit status, and the broker's error name."""

    def __init__(self, sentence: str, status: int = FAILED, name: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.name = name


class UsageError(CommandError):
    """There is a mistake in the command line, or in what a command was given."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, USAGE)


def run(name: str, options: argparse.Namespace) -> int:
    """Runs a command to its end; returns the exit status.

    A command whose exit statuses have another meaning has `options.failed`, that of failures.
    """
    status = FAILED
    try:
        if options.command_config is not None:
            from tidelog.cli.connecting import use_command_config

            use_command_config(options)
        found: int | None = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        sys.stderr.write(f"{name}: {escaped(str(error))}\n")
        status = error.status
    except BrokenPipeError:  # the reader of the pipe has closed it, as `head` does
        _drop_output()
    except OSError as error:  # errors of files and sockets are a CommandError by now
        _drop_output()
        sys.stderr.write(f"{name}: the answer cannot be written: {error.strerror or error}\n")
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
    else:
        return found or 0
    return getattr(options, "failed", status)


def _drop_output() -> None:
    """Discards unwritten output, so that the end of the process does not report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def instants() -> ModuleType:
    """Returns the broker's own parser of times, which is imported late: with it come all settings."""
    from tidelog.config import instants

    return instants


def machine_ms() -> int:
    """Returns the time of this machine's clock, in ms."""
    return time.time_ns() // 1_000_000


# --- asking --------------------------------------------------------------------------------------


def ask(
    address: str,
    *path: str,
    query: Iterable[tuple[str, str | None]] = (),
    body: Mapping[str, Any] | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns the answer of the broker's HTTP port; a `body` requests a change. Raises CommandError.

    Parameters of the `query` that are None are left out. `options` maps a parameter to the option it was
    given by, if that has another name, for the broker's error messages.
    """
    check_address("--http", address)
    url = "/v1/" + "/".join(quote(part, safe="") for part in path)
    given = urlencode([(name, value) for name, value in query if value is not None])
    client = ControlClient(address, timeout_s=_TIMEOUT_S)
    try:
        method = "GET" if body is None else "POST"
        return client.ask(method, f"{url}?{given}" if given else url, body)
    except ControlError as error:
        status = USAGE if error.name in _MISTAKES else FAILED
        name, colon, rest = str(error).partition(": ")
        raise CommandError(f"{options.get(name, name)}{colon}{rest}", status, error.name) from None
    except (http.client.HTTPException, ValueError, KeyError, TypeError):
        raise CommandError(f"what answers at {address} is not the HTTP port of tidelog") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(
            f"nothing answers at http://{address} ({reason}): is a broker running there? "
            "--http HOST:PORT names another"
        ) from None
    finally:
        client.close()


def check_address(option: str, address: str) -> None:
    """Raises CommandError unless it is HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65_536):
        raise UsageError(f"{option} {address}: expected HOST:PORT")


def confirm(options: argparse.Namespace, question: str, refusal: str, declined: str) -> None:
    """Asks before an action that cannot be undone, unless `--yes` was given; refuses without a terminal.

    Raises CommandError.
    """
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(refusal)
    sys.stderr.write(f"{escaped(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(declined)
