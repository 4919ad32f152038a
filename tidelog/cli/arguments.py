"""The options that several commands have, and what was given to them. A mistake is a CommandError."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.shared import UsageError, check_address, instants, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidelog.client.security import Security

    Command = Callable[[argparse.Namespace], int | None]

HTTP_ADDRESS = "127.0.0.1:8080"
BROKER_ADDRESS = "127.0.0.1:9092"
DEFAULTS = {"command_config": None, "json": False, "asks": False}
"""Of a command. Its actions have the same options without a default, so what is given there counts."""
_VARIABLES: Final = {"broker": "TIDELOG_BROKER", "http": "TIDELOG_HTTP"}
_CONFIG_VARIABLE: Final = "TIDELOG_COMMAND_CONFIG"
_SCHEMES: Final = {"broker": "plaintext", "http": "http"}
_SECURED: Final = "; security.protocol in --command-config FILE asks for TLS and SASL"
_HINTS: Final = {
    "plaintext": "; a Kafka port is given as --broker",
    "http": "; an HTTP port is given as --http",
    "https": "; the HTTP port has no TLS",
    **dict.fromkeys(("ssl", "sasl_ssl", "sasl_plaintext"), _SECURED),
}


class Arguments(argparse.Namespace):
    """What was given to a command. An address that is missing is asked of the other port when it is read.

    So one address is enough, and a command that needs one port asks nothing else.
    """

    security: Security | None = None
    command_config_given_by: str = "--command-config"

    def __getattr__(self, name: str) -> Any:
        """Returns the missing address; raises CommandError if the broker does not say its Kafka port."""
        if name not in _VARIABLES:
            raise AttributeError(name)
        from tidelog.cli import connecting

        if name == "http":
            found = connecting.http_of(self.broker)
        else:
            found = connecting.broker_of(self.http, self.security)
        setattr(self, name, found)
        return found


def add_flag(parser: argparse._ActionsContainer, name: str, what: str, *spellings: str) -> None:
    """Adds an option without a value; other `spellings` of it are accepted, such as Kafka's."""
    parser.add_argument(name, *spellings, action="store_true", help=what)


def add_many(parser: argparse._ActionsContainer, name: str, metavar: str, what: str) -> None:
    """Adds an option that may be given many times."""
    parser.add_argument(name, metavar=metavar, action="append", default=[], help=what)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the options of all commands that ask a broker, whichever of its ports they ask."""
    add_broker(parser)
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option for JSON instead of tables and sentences."""
    what = "the answer as JSON, for scripts"
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=what)


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the broker's two ports. Either is enough where the broker tells the other."""
    what = (
        f"where brokers listen for Kafka's clients ({_VARIABLES['broker']}, else what the HTTP port says, "
        f"else {BROKER_ADDRESS})"
    )
    parser.add_argument(
        "--broker",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        default=argparse.SUPPRESS,
        help=what,
    )
    what = (
        f"where a broker serves HTTP, as its own --http says ({_VARIABLES['http']}, else what the broker "
        f"says, else {HTTP_ADDRESS})"
    )
    parser.add_argument("--http", metavar="HOST:PORT,...", default=argparse.SUPPRESS, help=what)
    what = (
        f"client properties with security settings, as Kafka's tools take them ({_CONFIG_VARIABLE})"
    )
    parser.add_argument("--command-config", metavar="FILE", default=argparse.SUPPRESS, help=what)
    parser.set_defaults(asks=True)


def add_actions(
    parser: argparse.ArgumentParser,
    actions: Mapping[str, tuple[Command, str]],
    add: Callable[[argparse.ArgumentParser], None] = add_common,
    default: str | None = "list",
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yields the actions of a command, each with its parser.

    `actions` are the function and the help of each, and `add` adds the options that all of them have.
    Without an action the command does the `default`.
    """
    add(parser)
    if default is not None:
        parser.set_defaults(action=default, run=actions[default][0])
    adding = parser.add_subparsers(metavar="action", required=default is None)
    for action, (command, what) in actions.items():
        one = adding.add_parser(action, help=what, allow_abbrev=False)
        one.set_defaults(action=action, run=command)
        yield action, one
        add(one)


def add_shift(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the one time that Kafka's protocol cannot express."""
    what = (
        'take 1969-12-31T23:59:59.999Z, which is -1 and means "no time", for the next millisecond'
    )
    add_flag(parser, "--shift", what)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Adds the option that answers the question of `confirm`."""
    add_flag(parser, "--yes", "do not ask")


def add_topic(parser: argparse.ArgumentParser) -> None:
    """Adds options for a topic, and for one or all of its partitions."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", metavar="N", help="one partition alone")


def add_within(parser: argparse.ArgumentParser, longest: str, what: str) -> None:
    """Adds the option that says how long to wait; a number without a unit is seconds."""
    parser.add_argument("--within", metavar="SPAN", default=longest, help=f"{what} ({longest})")


# --- what was given ------------------------------------------------------------------------------


def with_addresses(options: argparse.Namespace) -> Arguments:
    """Returns the options with addresses: those given, else those of the environment, else the defaults.

    If one of both is given, the variable of the other is not read: it may be another broker's. Raises
    CommandError.
    """
    found = Arguments(**vars(options))
    given = {
        name: (f"--{name}", text) for name, text in vars(options).items() if name in _VARIABLES
    }
    if not given:
        given = {
            name: (variable, text)
            for name, variable in _VARIABLES.items()
            if (text := os.environ.get(variable))
        }
    for name, (option, text) in given.items():
        setattr(found, name, _addresses(option, text, _SCHEMES[name]))
    if not given:
        found.broker, found.http = BROKER_ADDRESS, HTTP_ADDRESS
    if found.command_config is None:
        found.command_config = os.environ.get(_CONFIG_VARIABLE) or None
        found.command_config_given_by = _CONFIG_VARIABLE
    return found


def _addresses(option: str, text: str, scheme: str) -> str:
    """Returns addresses without what says that they are plain. Raises CommandError for another text."""
    found = []
    for part in text.split(","):
        before, separator, address = part.strip().rpartition("://")
        if separator and before.lower() != scheme:
            hint = _HINTS.get(before.lower(), "")
            raise UsageError(f"{option} {part.strip()}: expected HOST:PORT{hint}")
        address = address.rstrip("/") if separator else address
        check_address(option, address)
        found.append(address)
    return ",".join(found)


def setting_of(text: str) -> tuple[str, str]:
    """Returns the name and the value of a `--set KEY=VALUE`, which may have a unit. Raises CommandError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set {text}: expected KEY=VALUE")
    return name.strip(), value_given(name.strip(), value)


def value_given(name: str, value: str) -> str:
    """Returns a setting's value as Kafka writes it, without a unit. Raises CommandError."""
    try:
        found: str = units().in_its_unit(name, value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    return found


def size_given(option: str, text: str, low: int = 0) -> int:
    """Returns the number of bytes that an option gives. Raises CommandError for another one than expected."""
    try:
        size: int = units().parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if size < low:
        raise UsageError(f"{option} {text}: expected a number from {low} on")
    return size


def wait_given(options: argparse.Namespace) -> float:
    """Returns the seconds that `--within` gives: a number of them, or a span. Raises CommandError."""
    text = options.within
    if text.isascii() and text.isdecimal():
        return float(text)
    return span_given("--within", text, expected="a span such as 90s or 2h, or seconds") / 1000


def number_given(option: str, text: str, low: int = 0, high: int | None = None) -> int:
    """Returns the number that an option gives. Raises CommandError for another one than expected."""
    number = int(text[:99]) if text.isascii() and text.isdecimal() else -1
    if number < low or (high is not None and number > high):
        expected = f"{low} on" if high is None else f"{low} to {high}"
        raise UsageError(f"{option} {text}: expected a number from {expected}")
    return number


def partition_given(options: argparse.Namespace) -> int | None:
    """Returns the partition that `--partition` names, if it does. Raises CommandError."""
    return None if options.partition is None else number_given("--partition", options.partition)


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
        raise UsageError(f"{option}: {error}") from None
    if span_ms < low_ms or (high_ms is not None and span_ms > high_ms):
        raise UsageError(f"{option} {text}: expected {expected}")
    return span_ms
