"""The options that several commands have, and what was given to them. A mistake is a CommandError."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.shared import UsageError, instants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Command = Callable[[argparse.Namespace], int | None]

HTTP_ADDRESS = "127.0.0.1:8080"
BROKER_ADDRESS = "127.0.0.1:9092"
DEFAULTS = {"http": HTTP_ADDRESS, "broker": BROKER_ADDRESS, "command_config": None, "json": False}
"""Of a command. Its actions have the same options without a default, so what is given there counts."""


def add_flag(parser: argparse._ActionsContainer, name: str, what: str) -> None:
    """Adds an option without a value."""
    parser.add_argument(name, action="store_true", help=what)


def add_many(parser: argparse._ActionsContainer, name: str, metavar: str, what: str) -> None:
    """Adds an option that may be given many times."""
    parser.add_argument(name, metavar=metavar, action="append", default=[], help=what)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the options of all commands that ask a broker over HTTP."""
    add_http(parser)
    add_json(parser)


def add_http(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the broker's HTTP port."""
    what = f"where a broker serves HTTP, as its own --http says ({HTTP_ADDRESS})"
    parser.add_argument("--http", metavar="HOST:PORT", default=argparse.SUPPRESS, help=what)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option for JSON instead of tables and sentences."""
    what = "the answer as JSON, for scripts"
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=what)


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the broker's Kafka port."""
    what = f"where a broker listens for Kafka's clients ({BROKER_ADDRESS})"
    parser.add_argument("--broker", metavar="HOST:PORT", default=argparse.SUPPRESS, help=what)
    what = "client properties with security settings, as Kafka's tools take them"
    parser.add_argument("--command-config", metavar="FILE", default=argparse.SUPPRESS, help=what)


def add_all(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that ask a broker over Kafka's protocol and over HTTP."""
    add_broker(parser)
    add_common(parser)


def add_actions(
    parser: argparse.ArgumentParser,
    actions: Mapping[str, tuple[Command, str]],
    add: Callable[[argparse.ArgumentParser], None] = add_all,
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


def add_within(parser: argparse.ArgumentParser, seconds: int, what: str) -> None:
    """Adds the option that says how long to wait."""
    parser.add_argument(
        "--within", metavar="SECONDS", default=str(seconds), help=f"{what} ({seconds})"
    )


# --- what was given ------------------------------------------------------------------------------


def setting_of(text: str) -> tuple[str, str]:
    """Returns the name and the value of a `--set KEY=VALUE`. Raises CommandError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set {text}: expected KEY=VALUE")
    return name.strip(), value


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
