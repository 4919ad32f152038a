"""The command line of `tidelog`.

`tidelog serve` runs a broker in this process until SIGTERM or SIGINT. When clients can connect, it
prints one line to standard output, `ready listeners=... http=... control=... cluster=... pid=...`.
`tidelog serve --brokers N` runs N brokers as processes, and prints one line `ready brokers=N ...` for
all. The log goes to standard error. Exit status: 0 after a normal stop, 1 if it could not start or
crashed, 2 for a mistake in the command line or the settings, which it reports in one sentence.

The other commands, most of which ask a running broker, have the exit status 0 for success, 1 for failure
or findings, 2 for a mistake in the command line; the modules of some say more. With `--json` what failed
is an object on standard error, `{"error": NAME, "message": SENTENCE}`.

`tidelog pipeline JOB ...` runs jobs on Spark. Exit status: 0 done, 1 done with findings, 2 a
mistake in the command line, 3 failed.

A command imports only what it needs, so that it starts fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from tidelog import __version__
from tidelog.cli.brokers.serve import DESCRIPTION, add_serve, run_serve
from tidelog.command_line import USAGE, Parser
from tidelog.text import with_signed_values

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# Most of these ask a running broker. A module has the function add_NAME, for its options; then the help.
_ASKING = {
    "dump": ("dump", "show and judge files of a log"),
    "topics": ("topics", "list, describe, create, delete and alter topics"),
    "configs": ("configs", "show and change settings, and say first what a change would delete"),
    "quotas": ("quotas", "show and change what users, clients and addresses may take"),
    "groups": (
        "groups.command",
        "list, describe, reset and delete consumer groups; lag in records and in time",
    ),
    "transactions": (
        "transactions.command",
        "list, describe and abort transactions, and find those that hang",
    ),
    "produce": ("produce", "write records: lines, or JSON lines with times, keys and headers"),
    "consume": ("consume", "read records with both their times, from a time or an offset on"),
    "explain": ("times.explain", "why segments are still there, and when they are deleted"),
    "scrub": ("scrub", "read closed segments again, and find batches that consumers stop at"),
    "doctor": ("times.doctor", "what is wrong with times, and which command helps"),
    "offsets": ("times.offsets", "the first offset at or after a time, or appended then"),
    "times": ("times.offsets", "when a record happened, and when it was appended"),
    "clock": (
        "times.clock",
        "what the broker's clock shows, how far it is trusted, and to accept a leap of it",
    ),
    "cluster": (
        "brokers.status",
        "who leads what and which replicas lag, what is wrong, rolling restarts, and even loads",
    ),
    "broker": ("brokers.remove", "take a broker out of the cluster: move its partitions away"),
    "adopt": ("brokers.adopt", "begin a cluster with the directories of a Kafka cluster"),
    "delete-records": ("delete_records", "delete the records before a time"),
    "completion": ("help.completion", "the script that completes commands in bash, zsh or fish"),
}
_TOPIC_OPTIONS = frozenset({"-t", "--topic"})
_TOPIC_AFTER = {  # how many words stand before TOPIC
    **dict.fromkeys(
        ("consume", "delete-records", "doctor", "explain", "offsets", "produce", "times"), 1
    ),
    **dict.fromkeys(("clock", "configs", "topics", "transactions"), 2),
    "groups": 3,
}
_VALUED = frozenset(  # options that may stand before TOPIC, and have a value in the next word
    {
        *(
            "-b",
            "--bootstrap-server",
            "--broker",
            "--by",
            "--command-config",
            "--directory",
            "--from-file",
        ),
        *("--http", "--shift-by", "--to-offset", "--to-time"),
    }
)
_FILES = frozenset({"file", "from_file"})  # options whose file names may be any bytes

_HELP = frozenset({"-h", "--help"})
_FAILED = 1


class _JsonParser(Parser):
    """Reports a mistake as JSON."""

    def error(self, message: str) -> NoReturn:
        """Prints the object and exits with status 2."""
        from tidelog.cli.shared import complain

        complain(self.prog, self.sentence(message), "USAGE", as_json=True)
        self.exit(USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (without the program's name); returns the exit status."""
    arguments = _with_topic_first(with_signed_values(sys.argv[1:] if argv is None else argv))
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    command = arguments[0] if arguments else None
    if command == "pipeline":  # it has its own sub-commands and options
        return _pipeline(arguments[1:])
    if arguments[:2] == [
        "completion",
        "words",
    ]:  # what a shell asks: any text, also that of options
        from tidelog.cli.help.completion import print_words

        return print_words(arguments[2:])
    # For `produce` it is about the input.
    parser = parser_of(command, as_json="--json" in arguments and command != "produce")
    if not _HELP.isdisjoint(arguments):
        from tidelog.cli.help import add_help

        add_help(parser)
    elif command is not None and command.startswith("-"):
        names = parser.parts()
        if later := next((each for each in arguments if each in names), None):
            told = f"options stand after the command, tidelog {later} {command}"
            parser.error(f"there is no command {command!r}: {told}")
    options, unknown = parser.parse_known_args(arguments)
    part = parser.part(options.command, getattr(options, "action", None))
    if unknown:
        part.refuse(unknown, parser.part(options.command).parts())
    if options.command is None:
        from tidelog.cli.help import add_help

        add_help(parser)
        parser.print_help(sys.stderr)
        return USAGE
    if options.command == "serve":
        return run_serve(options)
    from tidelog.cli.shared import complain, run

    if sys.stdout is None:
        complain(part.prog, "standard output is closed", "FAILED", as_json=options.json)
        return _FAILED
    for name, value in vars(options).items():
        if name not in _FILES:
            setattr(options, name, _as_text(part, value))
    return run(part.prog, options)


def _with_topic_first(arguments: list[str]) -> list[str]:
    """Puts the topic of kcat's `-t TOPIC`, or Kafka's `--topic TOPIC`, where the command expects it."""
    place = _TOPIC_AFTER.get(arguments[0]) if arguments else None
    if place is None:
        return arguments
    left: list[str] = []
    topics: list[str] = []
    given = iter(arguments)
    for each in given:
        name, equals, topic = each.partition("=")
        if name in _TOPIC_OPTIONS and (topic := topic if equals else next(given, "")):
            topics.append(topic)
        else:
            left.append(each)
    at = _place_after(left, place) if topics else 0
    return [*left[:at], *topics, *left[at:]]


def _place_after(arguments: Sequence[str], words: int) -> int:
    """Returns where an argument stands that comes after so many words, options not counted."""
    at = 1
    for _ in range(words - 1):
        while at < len(arguments) and arguments[at].startswith("-"):
            at += 2 if arguments[at] in _VALUED else 1
        at += 1
    return at


def _as_text(parser: argparse.ArgumentParser, value: Any) -> Any:
    """Returns an argument as UTF-8 text in any locale; exits with status 2 if it is not text."""
    if isinstance(value, list):
        return [_as_text(parser, each) for each in value]
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        return parser.error(f"{value.encode(errors='backslashreplace').decode()} is not UTF-8")


def parser_of(command: str | None = None, *, as_json: bool = False) -> Parser:
    """Returns the parser of one command, or, if there is none of that name, of the whole command line.

    That has the options of `serve` alone. With `as_json` mistakes are reported as JSON.
    """
    kind = _JsonParser if as_json else Parser
    parser = kind(prog="tidelog", description="A Kafka-protocol broker whose subject is time.")
    parser.add_argument("--version", action="version", version=f"tidelog {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    if command in _ASKING:
        from tidelog.cli.arguments import DEFAULTS

        module, described = _ASKING[command]
        asking = commands.add_parser(command, help=described, allow_abbrev=False)
        asking.description = f"{described[0].upper()}{described[1:]}."
        asking.set_defaults(**DEFAULTS)
        functions = importlib.import_module(f"tidelog.cli.{module}")
        getattr(functions, f"add_{command.replace('-', '_')}")(asking)
        return parser
    serve = commands.add_parser(
        "serve", help="run a broker, or several", description=DESCRIPTION, allow_abbrev=False
    )
    add_serve(serve)
    if command != "serve":
        for name, (_, described) in _ASKING.items():
            commands.add_parser(name, help=described)
        commands.add_parser(
            "pipeline", help="jobs on Spark that keep time: audit, mirror, backfill ..."
        )
    return parser


def _pipeline(arguments: Sequence[str]) -> int:
    """Runs a job on Spark; it has its own sub-commands and options."""
    from tidelog.pipeline.cli import main

    return main(arguments)
