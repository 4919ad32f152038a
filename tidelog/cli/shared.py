"""The common parts of commands that ask a running broker: address, answers, tables and errors.

They ask over HTTP what Kafka's protocol cannot express; cluster.py has the rest. The broker parses
times as the user wrote them, by its own clock. Exit status: 0 for success, 1 for failure, 2 for a
mistake in the command line. Every mistake is one sentence on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tidelog.cli.escaping import escaped, escaped_lines
from tidelog.control import ControlClient, ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

FAILED, USAGE = 1, 2

HTTP_ADDRESS = "127.0.0.1:8080"
BROKER_ADDRESS = "127.0.0.1:9092"
NONE = -1  # the offset if nothing is found

_TIMEOUT_S = 600.0  # a log that another program wrote is read once before it is explained
_MISTAKES = frozenset({"BAD_REQUEST", "BAD_TIME", "BAD_OFFSET", "NO_TIME", "INVALID_CONFIG"})
_LEAST_WRAPPED = 26  # a time and what follows it
_WIDE = 500  # columns without a terminal
_BROKEN_PIPE = 1


class CommandError(Exception):
    """A command failed: a sentence, the exit status, and the broker's error name."""

    def __init__(self, sentence: str, status: int = FAILED, name: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.name = name


def add_common(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Adds the options that all these commands have.

    `again`: a parent command has them too, and values given there count.
    """
    add_http(parser, again=again)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS if again else False,
        help="the answer as JSON, for scripts",
    )


def add_http(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Adds the option for the broker's HTTP port; `again` as in add_common."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS if again else HTTP_ADDRESS,
        help=f"where a broker serves HTTP, as its own --http says ({HTTP_ADDRESS})",
    )


def add_broker(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Adds the options for the broker's Kafka port; `again` as in add_common."""
    parser.add_argument(
        "--broker",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS if again else BROKER_ADDRESS,
        help=f"where a broker listens for Kafka's clients ({BROKER_ADDRESS})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        default=argparse.SUPPRESS if again else None,
        help="client properties with security settings, as Kafka's tools take them",
    )


def add_actions(
    parser: argparse.ArgumentParser, described: Mapping[str, str]
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yields the sub-commands of a command, each with its parser; without one the command lists."""
    add_broker(parser)
    add_common(parser)
    parser.set_defaults(action="list")
    actions = parser.add_subparsers(metavar="action")
    for action, text in described.items():
        one = actions.add_parser(action, help=text, allow_abbrev=False)
        one.set_defaults(action=action)
        yield action, one
        add_broker(one, again=True)
        add_common(one, again=True)


def add_shift(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the one time that Kafka's protocol cannot express."""
    parser.add_argument(
        "--shift",
        action="store_true",
        help='take 1969-12-31T23:59:59.999Z, which is -1 and means "no time", for the next millisecond',
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Adds the option that answers the question of `confirm`."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add_topic(parser: argparse.ArgumentParser) -> None:
    """Adds options for a topic, and for one or all of its partitions."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", metavar="N", help="one partition alone")


def run(
    name: str, command: Callable[[argparse.Namespace], None], options: argparse.Namespace
) -> int:
    """Runs a command to its end; returns the exit status."""
    try:
        if getattr(options, "command_config", None) is not None:
            from tidelog.cli.connecting import use_command_config

            use_command_config(options)
        command(options)
        sys.stdout.flush()
    except CommandError as error:
        sys.stderr.write(f"tidelog {name}: {escaped(str(error))}\n")
        return error.status
    except BrokenPipeError:  # the reader of the pipe has closed it, as `head` does
        drop_output()
        return _BROKEN_PIPE
    except OSError as error:  # errors of files and sockets are a CommandError by now
        drop_output()
        sys.stderr.write(
            f"tidelog {name}: the answer cannot be written: {error.strerror or error}\n"
        )
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write(f"tidelog {name}: interrupted\n")
        return FAILED
    return 0


def run_action(
    name: str,
    actions: Mapping[str, Callable[[argparse.Namespace], None]],
    options: argparse.Namespace,
) -> int:
    """Runs the chosen sub-command of a command to its end; returns the exit status."""
    return run(f"{name} {options.action}", actions[options.action], options)


def drop_output() -> None:
    """Discards unwritten output, so that the end of the process does not report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- asking --------------------------------------------------------------------------------------


def ask(
    address: str,
    *path: str,
    query: Iterable[tuple[str, str | None]] = (),
    options: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns the answer of the broker's HTTP port; parameters that are None are left out.

    `options` maps a parameter to the option it was given by, if that has another name, for the
    broker's error messages. Raises CommandError.
    """
    given = urlencode([(name, value) for name, value in query if value is not None])
    url = "/v1/" + "/".join(quote(part, safe="") for part in path) + (f"?{given}" if given else "")
    return _request(address, "GET", url, None, options)


def change(address: str, *path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Requests a change over the broker's HTTP port; returns the answer. Raises CommandError."""
    url = "/v1/" + "/".join(quote(part, safe="") for part in path)
    return _request(address, "POST", url, body, {})


def _request(
    address: str,
    method: str,
    url: str,
    body: Mapping[str, Any] | None,
    options: Mapping[str, str],
) -> dict[str, Any]:
    check_address("--http", address)
    client = ControlClient(address, timeout_s=_TIMEOUT_S)
    try:
        return client.ask(method, url, body)
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


def setting_of(text: str) -> tuple[str, str]:
    """Returns the name and the value of a `--set KEY=VALUE`. Raises CommandError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CommandError(f"--set {text}: expected KEY=VALUE", USAGE)
    return name.strip(), value


def check_number(what: str, text: str | None) -> None:
    """Raises CommandError unless the text is None or a number from 0 on."""
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise CommandError(f"{what} {text}: expected a number from 0 on", USAGE)


def check_address(option: str, address: str) -> None:
    """Raises CommandError unless it is HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65_536):
        raise CommandError(f"{option} {address}: expected HOST:PORT", USAGE)


# --- output --------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Prints one line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_lines(*lines: str) -> None:
    """Prints lines of text; what is not printable in one, line breaks too, is escaped."""
    sys.stdout.write("".join(f"{escaped(line)}\n" for line in lines))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    wraps: str | None = None,
    lines: Sequence[str] = (),
) -> None:
    """Prints a table.

    The columns in `right` are right-aligned, that in `wraps` is folded, and cells of those in
    `lines` may have line breaks. Nothing is cut off: a narrow terminal breaks the lines itself. What else
    is not printable in a cell is escaped.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column != wraps,
            overflow="fold",
            min_width=_LEAST_WRAPPED if column == wraps else None,
        )
    for row in rows:
        cells = zip(columns, row, strict=True)
        table.add_row(
            *(escaped_lines(cell) if name in lines else escaped(cell) for name, cell in cells)
        )
    width = _WIDE
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    console = Console(file=sys.stdout, width=_WIDE, highlight=False, markup=False)
    needed = console.measure(table).minimum
    console.print(table, width=max(width, needed), soft_wrap=False)


def shown(answer: dict[str, Any], name: str, missing: str = "-") -> str:
    """Returns a time as text for people; in milliseconds if an older broker has no text for it."""
    if answer[f"{name}_ms"] is None:
        return missing
    text: str | None = answer[name]
    return str(answer[f"{name}_ms"]) if text is None else text.replace(".000Z", "Z")


def span_of(span_ms: int) -> str:
    """Returns a span of time as text for people: its two largest units."""
    text: str = instants().to_span(span_ms)
    return text


def instant_of(time_ms: int) -> str:
    """Returns a time as text for people: ISO 8601 in UTC, without milliseconds that are 0."""
    text: str = instants().to_iso(time_ms)
    return text.replace(".000Z", "Z")


def span_given(
    option: str,
    text: str,
    low_ms: int = 0,
    high_ms: int | None = None,
    *,
    expected: str = "a span from 0 on",
) -> int:
    """Returns the span that an option gives, in ms. Raises CommandError for another one than expected."""
    try:
        span_ms: int = instants().parse_duration(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", USAGE) from None
    if span_ms < low_ms or (high_ms is not None and span_ms > high_ms):
        raise CommandError(f"{option} {text}: expected {expected}", USAGE)
    return span_ms


@contextlib.contextmanager
def bar(total: int, *, of_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on standard error, for a terminal; yields a function to advance it."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        """The number of things a second, once it is known."""

        def render(self, task: progress.Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    rate: tuple[progress.ProgressColumn, ...] = (progress.MofNCompleteColumn(), Rate())
    if of_bytes:
        rate = (progress.DownloadColumn(), progress.TransferSpeedColumn())
    columns = (progress.BarColumn(), *rate, progress.TimeRemainingColumn())
    console = Console(stderr=True)
    with progress.Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown_bar:
        task = shown_bar.add_task("", total=total)
        yield lambda count: shown_bar.advance(task, count)


# --- asking first, and times ----------------------------------------------------------------------


def confirm(question: str, *, refusal: str, declined: str, yes: bool) -> None:
    """Asks before an action that cannot be undone; refuses without a terminal.

    Raises CommandError.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(refusal, USAGE)
    sys.stderr.write(f"{escaped(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(declined)


def instants() -> ModuleType:
    """Returns the broker's own parser of times, which is imported late: with it come all settings."""
    from tidelog.config import instants

    return instants
