"""How a command connects to a broker, and how it says what a client was refused.

Every error is a CommandError of one sentence.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from tidelog.cli.shared import USAGE, CommandError, UsageError, check_address
from tidelog.client import (
    AuthenticationFailed,
    Brokers,
    Client,
    ClientError,
    ConnectionBroken,
    RequestError,
    SecuritySettingsError,
    address_of,
    secured,
)
from tidelog.client.consumer import BrokenRecords
from tidelog.client.errors import HandshakeBroken
from tidelog.client.security import access_to
from tidelog.client.sync_connection import Connection
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_CONNECT_S = 10.0
_TIMEOUT_S = 30.0
_MISTAKES = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    }
)


def use_command_config(options: argparse.Namespace) -> None:
    """Lets `options.broker` carry the security settings in the file of `--command-config`.

    Raises CommandError for a mistake in the file.
    """
    from tidelog.client.security.files import security_in

    try:
        options.broker = secured(options.broker, security_in(options.command_config))
    except SecuritySettingsError as error:
        raise UsageError(f"--command-config {error}") from None


def connect(address: str) -> Client:
    """Returns a connected client of the broker at `HOST:PORT`. Raises CommandError.

    The address may carry security settings (`use_command_config`).
    """
    check_address("--broker", address)
    host, port = address_of(address)
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        raise CommandError(
            f"no broker answers at {address} ({error.strerror or error}): is one running there? "
            "--broker HOST:PORT names another"
        ) from None
    try:
        Connection(host, port, "tidelog", _CONNECT_S, access_to(address)).close()
    except SecuritySettingsError as error:
        raise UsageError(f"--command-config: {error}") from None
    except (AuthenticationFailed, HandshakeBroken) as error:
        hint = "" if isinstance(address, Brokers) else " (--command-config FILE has such settings)"
        raise CommandError(f"{error}{hint}") from None
    except ConnectionBroken as error:
        raise CommandError(f"what answers at {address} is no Kafka broker ({error})") from None
    return Client(address, client_id="tidelog", timeout_s=_TIMEOUT_S)


@contextlib.contextmanager
def raised_as_sentences(prefix: str = "") -> Iterator[None]:
    """Turns the errors of a client into a CommandError whose message begins with `prefix`."""
    try:
        yield
    except RequestError as error:
        status = USAGE if error.code in _MISTAKES else 1
        raise CommandError(prefix + sentence_of(error), status) from None
    except (ClientError, BrokenRecords) as error:
        raise CommandError(f"{prefix}{error}") from None


def sentence_of(error: Exception) -> str:
    """Returns the sentence for a refusal, in the broker's own words if it sent any."""
    if not isinstance(error, RequestError):
        return str(error)
    name = "".join(part.capitalize() for part in error.name.split("_"))
    return error.message or f"{name}: {error.reason}"
