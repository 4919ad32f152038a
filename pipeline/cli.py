"""`tidelog pipeline JOB ...`: one sub-command for each job, declared once in `JOBS`.

A job is a module that imports neither PySpark nor pyarrow, with a class of options (`OPTIONS`, see
`declaring`), and `run(options, session) -> status`. The docstring of the module is the help text of the
job. argparse only splits the line into texts; the class parses them. Exit
status: 0 done, 1 done with findings, 2 a mistake in the command line, or what it names does not
exist; 3 failed with one sentence of explanation (`--verbose` shows where, and Spark's log).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

from tidelog.client import ClientError
from tidelog.command_line import Parser
from tidelog.pipeline.declaring import Option, OptionError, Options
from tidelog.pipeline.errors import FAILED, FINDINGS, USAGE, PipelineError, Refused, UsageError
from tidelog.pipeline.options import RunOptions
from tidelog.pipeline.secured import with_command_configs
from tidelog.pipeline.session import TaskSession
from tidelog.pipeline.source.splits import NotThere, SourceError
from tidelog.pipeline.spark_start import INSTALL, kept_log
from tidelog.text import with_signed_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Each job is a module in pipeline/jobs, and has a line of help.
JOBS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "audit": "what the timestamps of a log are worth",
        "whatif": "what a retention policy would delete, before it is set",
        "archive": "a topic to Parquet by event date, exactly once",
        "restore": "an archive to a topic, times and partitions kept",
        "mirror": "one cluster to another, keys, headers, partitions and event times kept",
        "failover": "a group's offsets on the mirror of what it read",
        "backfill": "a table to a topic, with event times of its own",
    }
)
_EXAMPLES: Final = """examples:

  tidelog pipeline audit --broker localhost:9092 --topics orders
  tidelog pipeline mirror --broker a:9092 --to-broker b:9092 --topics orders --create --run first
  tidelog pipeline archive --help"""
_OURS: Final = (PipelineError, ClientError, SourceError)
_IN_WORKERS: Final = "tidelog."
"""How the names of errors of ours begin in a trace of Spark."""
_KILLED: Final = 128  # plus the number of the signal, as in a shell


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived: the job is ended as by Ctrl-C."""


class _Job(Protocol):
    OPTIONS: type[Options]

    def run(self, options: Any, session: TaskSession) -> int:
        """Runs the job; returns the exit status."""


class Deprecated(argparse.Action):
    """An option that still works, is in no help, and says on standard error what stands for it."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, *, instead: str, **more: Any
    ) -> None:
        super().__init__(option_strings, dest, **{**more, "help": argparse.SUPPRESS})
        self._instead = instead

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Stores the value, and says the sentence."""
        setattr(namespace, self.dest, values)
        sys.stderr.write(f"{parser.prog}: {option_string} is deprecated: {self._instead}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a job; returns the exit status. `argv` does not include the name of the program."""
    options = options_from(sys.argv[1:] if argv is None else argv)
    return USAGE if options is None else run(options)


def options_from(argv: Sequence[str]) -> Options | None:
    """Returns the options of a job by a command line; without a job prints the help and returns None.

    Exits with status 2 after the sentence about a mistake.
    """
    arguments = with_signed_values(list(argv))
    parser = parser_of(arguments[0] if arguments else None)
    texts, unknown = parser.parse_known_args(arguments)
    part = parser.part(texts.job, getattr(texts, "action", None))
    if unknown:
        part.refuse(unknown)
    if texts.job is None:
        parser.print_help(sys.stderr)
        return None
    kind = options_of(texts.job)
    kind = kind.actions.get(getattr(texts, "action", None) or "", kind)
    names = {one.name for one in kind.declared()}
    try:
        return kind(**{name: text for name, text in vars(texts).items() if name in names})
    except OptionError as error:
        part.error(f"argument {error.option.spelled}: {error.reason}")
    except UsageError as error:
        part.error(str(error))


def options_of(job: str) -> type[Options]:
    """Returns the class with the options of a job."""
    return module_of(job).OPTIONS


def run(options: Options) -> int:
    """Runs a job whose options are parsed; returns the exit status."""
    job = module_of(options.job)
    try:
        options = with_command_configs(options)
        with _terminable(), session_of(options) as session:
            return job.run(options, session)
    except Refused:
        return FINDINGS
    except KeyboardInterrupt as stop:
        number = signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT
        print(
            f"tidelog pipeline {options.job}: stopped by {number.name}: repeat the same --run to continue",
            file=sys.stderr,
        )
        return _KILLED + number
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - a page of Java tells nobody anything
        if options.verbose:
            traceback.print_exc()
        print(f"tidelog pipeline {options.job}: {explained(error)}", file=sys.stderr)
        return USAGE if isinstance(error, (UsageError, NotThere)) else FAILED


def session_of(options: Options) -> TaskSession:
    """Returns the session that the options ask for."""
    master, conf = (options.master, options.conf) if isinstance(options, RunOptions) else (None, ())
    return TaskSession(
        options.job, master=master, conf=conf, spark=options.spark, is_verbose=options.verbose
    )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Lets SIGTERM end a job in order, with Spark; outside the main thread it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_number: int, _frame: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def explained(error: BaseException) -> str:
    """Returns the sentence of an error; of one that is not ours, with the place of Spark's log."""
    is_ours = isinstance(error, _OURS) or _said_in_worker(error) is not None
    log = None if is_ours else kept_log()
    return sentence(error) + ("" if log is None else f" (Spark's log: {log})")


def sentence(error: BaseException) -> str:
    """Returns an error as one line.

    Our own errors keep their words, also those of a worker that Spark wraps. Of another error in
    Java it is what Java says; others begin with their type.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name.partition('.')[0]} is not installed: {INSTALL}"
    lines = [line.strip() for line in str(error).splitlines()]
    if isinstance(error, (*_OURS, OSError)):
        return " ".join(filter(None, lines))
    said = _said_in_worker(error)
    if said is not None:
        return said
    for line in lines:
        if line.startswith(": "):  # what Java says, behind Py4J's own line
            return line[2:]
    return f"{type(error).__name__}: {next(filter(None, lines), 'no reason given')}"


def _said_in_worker(error: BaseException) -> str | None:
    """Returns the message of the error of ours that ended a query: it is a line of a Java trace."""
    for line in str(error).splitlines():
        name, colon, said = line.strip().partition(": ")
        if colon and name.startswith(_IN_WORKERS) and name.replace(".", "").isidentifier():
            return said
    return None


def parser_of(job: str | None) -> Parser:
    """Returns the parser of the whole command line; only the options of `job` are added."""
    parser = Parser(
        prog="tidelog pipeline",
        description="Jobs over the logs of Kafka clusters that keep time. Exit status: 0 done,"
        " 1 findings, 2 usage, 3 failed.",
        epilog=_EXAMPLES,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB")
    for name, described in JOBS.items():
        one = jobs.add_parser(name, help=described, allow_abbrev=False)
        if name == job:
            add_options(one, options_of(name))
    return parser


def add_options(parser: argparse.ArgumentParser, options: type[Options]) -> None:
    """Adds a job's description, options and actions to its parser, which leaves values as texts."""
    parser.description = options.description()
    groups: dict[str | None, Any] = {None: parser}
    rivals: Any = None
    for option in options.declared():
        if option.section not in groups:
            groups[option.section] = parser.add_argument_group(option.section)
        place = groups[option.section]
        if option.name in options.one_of:
            if rivals is None:
                rivals = place.add_mutually_exclusive_group(required=options.needs_one)
            place = rivals
        place.add_argument(*(option.spellings or [option.name]), **_argument(option))
    if options.actions:
        actions = parser.add_subparsers(dest="action", metavar="action")
        for name, one in options.actions.items():
            add_options(actions.add_parser(name, help=one.summary, allow_abbrev=False), one)


def _argument(option: Option[Any, Any]) -> dict[str, Any]:
    """Returns how argparse takes the texts of an option; what is not given is not in its result."""
    found: dict[str, Any] = {"help": option.meaning, "default": argparse.SUPPRESS}
    if option.spellings:
        found |= {"dest": option.name, "required": option.is_needed}
    elif not option.is_needed:
        found["nargs"] = "?"
    if option.is_flag:
        return {**found, "action": "store_true"}
    if option.instead is not None:
        found |= {"action": Deprecated, "instead": option.instead}
    elif option.is_repeated:
        found["action"] = "append"
    return {**found, "metavar": option.metavar, "choices": option.choices}


def module_of(name: str) -> _Job:
    """Returns the module of a job."""
    return cast("_Job", importlib.import_module(f".jobs.{name}", __package__))
