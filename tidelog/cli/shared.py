"""What all commands have in common: how they run, fail, ask a broker over HTTP, and ask first.

They ask over HTTP what Kafka's protocol cannot express; cluster.py has the rest. The broker parses
times as the user wrote them, by its own clock. Exit status: 0 for success, 1 for failure, 2 for a
mistake in the command line. Every mistake is one sentence on standard error.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tidelog.cli.escaping import as_json as as_json_line
from tidelog.cli.escaping import escaped
from tidelog.control import ControlClient, ControlError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from types import ModuleType
    from typing import Self

FAILED, USAGE = 1, 2
NONE = -1  # the offset if nothing is found

_NEXT_S = 3.0  # until the next of several addresses is tried
_TIMEOUT_S = 600.0  # a log that another program wrote is read once before it is explained
_MISTAKES = frozenset({"BAD_REQUEST", "BAD_TIME", "BAD_OFFSET", "NO_TIME", "INVALID_CONFIG"})


class CommandError(Exception):
    """A command failed: a sentence, the exit status, and the broker's error name."""

    def __init__(self, sentence: str, status: int = FAILED, name: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.name = name

    @property
    def kind(self) -> str:
        """What scripts tell errors apart by: the broker's name of it, else USAGE or FAILED."""
        return self.name or ("USAGE" if self.status == USAGE else "FAILED")


class UsageError(CommandError):
    """There is a mistake in the command line, or in what a command was given."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, USAGE)


class Nowhere(str):  # noqa: SLOT000 - a str cannot have slots of its own that hold something
    """The address of an HTTP port that is not known, and why: who asks it raises a CommandError."""

    why: str

    def __new__(cls, why: str) -> Self:
        """Makes a text that shows in messages that there is no address."""
        made = super().__new__(cls, "(unknown)")
        made.why = why
        return made


def run(name: str, options: argparse.Namespace) -> int:
    """Runs a command to its end; returns the exit status.

    A command whose exit statuses have another meaning has `options.failed`, that of failures.
    """
    status = FAILED
    try:
        if options.asks:
            options = _with_addresses(options)
        found: int | None = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        complain(name, str(error), error.kind, as_json=has_json_errors(options))
        status = error.status
    except BrokenPipeError:  # the reader of the pipe has closed it, as `head` does
        _drop_output()
    except OSError as error:  # errors of sockets are a CommandError by now
        what = error.filename
        if what is None:
            _drop_output()
            what = "the answer cannot be written"
        sentence = f"{what}: {error.strerror or error}"
        complain(name, sentence, "FAILED", as_json=has_json_errors(options))
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
    else:
        return found or 0
    return getattr(options, "failed", status)


def _with_addresses(options: argparse.Namespace) -> argparse.Namespace:
    from tidelog.cli.arguments import with_addresses

    found = with_addresses(options)
    if found.command_config is not None:
        from tidelog.cli.connecting import use_command_config

        use_command_config(found)
    return found


def has_json_errors(options: argparse.Namespace) -> bool:
    """Returns whether errors are JSON: with `--json`, which for `produce` is about its input alone."""
    return bool(options.json) and options.command != "produce"


def complain(name: str, sentence: str, kind: str, *, as_json: bool) -> None:
    """Writes why a command named `name` failed on standard error: a sentence, or an object of JSON."""
    told = as_json_line({"error": kind, "message": sentence})
    sys.stderr.write(f"{told if as_json else f'{name}: {escaped(sentence)}'}\n")


def warn(options: argparse.Namespace, sentence: str) -> None:
    """Writes what a user should know beside the answer on standard error, as `complain` does."""
    if has_json_errors(options):
        sys.stderr.write(as_json_line({"warning": sentence}) + "\n")
        return
    names = ("tidelog", options.command, getattr(options, "action", None))
    sys.stderr.write(f"{' '.join(filter(None, names))}: warning: {escaped(sentence)}\n")


def warn_of_unit(options: argparse.Namespace, option: str, time_given: str | int | None) -> None:
    """Warns of a time that looks like seconds, or another unit, where milliseconds are meant."""
    sentence = None if time_given is None else instants().suspect_unit(time_given)
    if sentence is not None:
        warn(options, f"{option} {sentence}")


def _drop_output() -> None:
    """Discards unwritten output, so that the end of the process does not report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def instants() -> ModuleType:
    """Returns the broker's own parser of times, which is imported late: with it come all settings."""
    from tidelog.config import instants

    return instants


def units() -> ModuleType:
    """Returns the parser of sizes and of settings with units, which is imported late as well."""
    from tidelog.config import units

    return units


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
    """Returns the answer of a broker's HTTP port; a `body` requests a change. Raises CommandError.

    Of several addresses the first one that can be reached is asked. Parameters of the `query` that are
    None are left out. `options` maps a parameter to the option it was given by, if that has another name,
    for the broker's error messages.
    """
    url = "/v1/" + "/".join(quote(part, safe="") for part in path)
    given = urlencode([(name, value) for name, value in query if value is not None])
    method = "GET" if body is None else "POST"
    from tidelog.cli.output import working

    reasons = []
    found = addresses_in(address)
    for each in found:
        client = ControlClient(each, timeout_s=_TIMEOUT_S)
        was_asked = False
        try:
            if each != found[-1]:
                _check_answers(each)
            was_asked = True
            with working(f"waiting for {each}"):
                return client.ask(method, f"{url}?{given}" if given else url, body)
        except ControlError as error:
            status = USAGE if error.name in _MISTAKES else FAILED
            name, colon, rest = str(error).partition(": ")
            sentence = f"{options.get(name, name)}{colon}{rest}"
            if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
                from tidelog.cli.nearest import nearest_topic

                topic = path[1] if path[0] == "topics" else dict(query).get("topic")
                sentence += nearest_topic(client, topic or "")
            raise CommandError(sentence, status, error.name) from None
        except (http.client.HTTPException, ValueError, KeyError, TypeError):
            raise CommandError(
                f"what answers at {each} is not the HTTP port of tidelog: a Kafka port is given as --broker"
            ) from None
        except OSError as error:
            reasons.append(f"http://{each} ({error.strerror or error})")
            if was_asked and body is not None:
                break  # it may have been changed
        finally:
            client.close()
    raise CommandError(
        f"nothing answers at {', '.join(reasons)}: is a broker running there? "
        "--http HOST:PORT names another"
    )


def _check_answers(address: str) -> None:
    """Raises OSError unless the HTTP port answers soon, as that of a broker that hangs does not."""
    client = ControlClient(address, timeout_s=_NEXT_S)
    with contextlib.closing(client), contextlib.suppress(ControlError):
        client.ask("GET", "/v1/clock")


def addresses_in(http: str) -> list[str]:
    """Returns the addresses of HTTP ports that were given or found. Raises CommandError for none."""
    if isinstance(http, Nowhere):
        raise CommandError(http.why)
    found = [each.strip() for each in http.split(",")]
    for each in found:
        check_address("--http", each)
    return found


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
