"""How a command finds a broker and connects to it, and how it says what a client was refused.

Every error is a CommandError of one sentence.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from tidelog.cli.shared import USAGE, CommandError, Nowhere, UsageError, ask, check_address
from tidelog.client import (
    AuthenticationFailed,
    Brokers,
    Client,
    ClientError,
    ConnectionBroken,
    RequestError,
    SecuritySettingsError,
    secured,
)
from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls import topics as topic_calls
from tidelog.client.cluster import addresses_of
from tidelog.client.consumer import BrokenRecords
from tidelog.client.errors import HandshakeBroken
from tidelog.client.security import access_to
from tidelog.client.sync_connection import Connection
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cli.arguments import Arguments
    from tidelog.client.cluster import Address
    from tidelog.client.security import Security

_HTTP_SETTING = "http.listener"
_UNSAID = "the broker does not say where it serves HTTP (--http HOST:PORT names it): "
_EVERY_INTERFACE = ("", "0.0.0.0", "[::]")  # noqa: S104 - recognised, not chosen
_HTTP_ANSWER = f" {int.from_bytes(b'HTTP')} bytes"  # what would follow, if it were Kafka's
_CONNECT_S = 10.0
_NEXT_S = 3.0  # until the next of several addresses is tried
_TIMEOUT_S = 30.0
_MISTAKES = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    }
)


def use_command_config(options: Arguments) -> None:
    """Lets addresses of brokers carry the security settings in the file of `--command-config`.

    Raises CommandError for a mistake in the file.
    """
    from tidelog.client.security.files import security_in

    try:
        options.security = security_in(options.command_config)
    except SecuritySettingsError as error:
        raise UsageError(f"{options.command_config_given_by} {error}") from None
    if "broker" in vars(options):
        options.broker = secured(options.broker, options.security)


def connect(addresses: str) -> Client:
    """Returns a connected client of a broker at `HOST:PORT,...`. Raises CommandError.

    The addresses may carry security settings (`use_command_config`).
    """
    return _client(_answering_first(addresses))


def _client(addresses: str) -> Client:
    return Client(addresses, client_id="tidelog", timeout_s=_TIMEOUT_S)


def _answering_first(addresses: str) -> str:
    """Returns the addresses, the first at which a broker answers before the others.

    Of several, one that is silent is passed over sooner than one that is alone. Raises CommandError.
    """
    reasons = []
    texts = addresses.split(",")
    for each in texts:
        check_address("--broker", each)
    for index, (host, port) in enumerate(addresses_of(addresses)):
        wait_s = _CONNECT_S if index == len(texts) - 1 else _NEXT_S
        try:
            socket.create_connection((host, port), wait_s).close()
            _check_speaks_kafka(host, port, addresses, wait_s)
        except OSError as error:
            reasons.append(f"{_joined(host, port)} ({error.strerror or error})")
            continue
        if not index:
            return addresses
        ordered = ",".join([texts.pop(index), *texts])
        return secured(ordered, addresses.security) if isinstance(addresses, Brokers) else ordered
    raise CommandError(
        f"no broker answers at {', '.join(reasons)}: is one running there? "
        "--broker HOST:PORT names another"
    )


def _check_speaks_kafka(host: str, port: int, addresses: str, wait_s: float) -> None:
    """Raises CommandError unless a Kafka broker answers there, and TimeoutError if nothing does."""
    try:
        Connection(host, port, "tidelog", wait_s, access_to(addresses)).close()
    except SecuritySettingsError as error:
        raise UsageError(f"--command-config: {error}") from None
    except (AuthenticationFailed, HandshakeBroken) as error:
        hint = (
            "" if isinstance(addresses, Brokers) else " (--command-config FILE has such settings)"
        )
        raise CommandError(f"{error}{hint}") from None
    except ConnectionBroken as error:
        if isinstance(error.__cause__, TimeoutError):
            raise TimeoutError(f"connected, and no answer within {wait_s:g} s") from None
        at = _joined(host, port)
        if _HTTP_ANSWER in str(error):
            raise CommandError(f"{at} is an HTTP port: give it as --http {at}") from None
        raise CommandError(f"what answers at {at} is not a Kafka broker ({error})") from None


# --- one port by the other -----------------------------------------------------------------------


def http_of(broker: str) -> str:
    """Returns where the broker says that it serves HTTP, else a Nowhere that has the reason."""
    try:
        ordered = _answering_first(broker)
        with contextlib.closing(_client(ordered)) as client, raised_as_sentences(_UNSAID):
            return _http_of(client, addresses_of(ordered))
    except CommandError as error:
        return Nowhere(str(error))


def _http_of(client: Client, named: tuple[Address, ...]) -> str:
    """Returns the HTTP port of the broker that was named first, else of another. Raises CommandError."""
    ranks = {address: rank for rank, address in reversed(list(enumerate(named)))}
    brokers = client.perform(topic_calls.describe([])).brokers
    for one in sorted(
        brokers, key=lambda one: (ranks.get((one.host, one.port), len(ranks)), one.node_id)
    ):
        node = setting_calls.Resource(node_id=one.node_id)
        for entry in client.perform(setting_calls.describe(node, names=[_HTTP_SETTING])):
            if entry.value:
                return _reached(entry.value, one.host, one.port)
    raise CommandError(
        f"no broker there has an HTTP port ({_HTTP_SETTING}): tidelog serve --http HOST:PORT opens one"
    )


def _reached(http: str, host: str, port: int) -> str:
    """Returns the address of an HTTP port on the machine of a broker. Raises CommandError."""
    at, colon, http_port = http.rpartition(":")
    if at in _EVERY_INTERFACE:
        return f"{f'[{host}]' if ':' in host else host}{colon}{http_port}"
    is_loopback = at in ("localhost", "[::1]") or at.startswith("127.")
    if is_loopback and not _is_here(host, port):
        raise CommandError(
            f"the broker at {_joined(host, port)} serves HTTP for its own machine alone ({http})"
        )
    return http


def _is_here(host: str, port: int) -> bool:
    """Returns whether what listens at an address is on this machine: both ends have one address."""
    try:
        with socket.create_connection((host, port), _CONNECT_S) as probe:
            here, there = probe.getsockname()[0], probe.getpeername()[0]
    except OSError:
        return False
    return bool(here == there)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def broker_of(http: str, security: Security | None) -> str:
    """Returns where the broker with this HTTP port listens for Kafka's clients. Raises CommandError.

    Of several listeners it is the one with the name of the security protocol, else the first.
    """
    answer = ask(http, "cluster")
    own = next(each for each in answer["brokers"] if each["broker"] == answer["broker"])
    listeners: dict[str, str] = own["listeners"]
    if not listeners:
        raise CommandError(
            f"the broker at http://{http} does not say its Kafka port: --broker HOST:PORT"
        )
    wanted = "PLAINTEXT" if security is None else security.protocol
    found = listeners.get(wanted) or next(iter(listeners.values()))
    return found if security is None else secured(found, security)


# --- errors --------------------------------------------------------------------------------------


@contextlib.contextmanager
def raised_as_sentences(prefix: str = "") -> Iterator[None]:
    """Turns the errors of a client into a CommandError whose message begins with `prefix`."""
    try:
        yield
    except RequestError as error:
        status = USAGE if error.code in _MISTAKES else 1
        raise CommandError(prefix + sentence_of(error), status, error.name) from None
    except (ClientError, BrokenRecords) as error:
        raise CommandError(f"{prefix}{error}") from None


def sentence_of(error: Exception) -> str:
    """Returns the sentence for a refusal, in the broker's own words if it sent any."""
    if not isinstance(error, RequestError):
        return str(error)
    name = "".join(part.capitalize() for part in error.name.split("_"))
    return error.message or f"{name}: {error.reason}"
