"""Runs a job for a program: `call(audit, spark, {"logs": "/data", "upto": "log-end"})`.

Values go through the parser of the command as text, so both faces accept the same and refuse the
same.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline import cli
from tidelog.pipeline.calls.keywords import Append, Call, arguments_of, parser_of
from tidelog.pipeline.errors import FAILED, FINDINGS, PipelineError, Refused, UsageError
from tidelog.pipeline.options import AUTO, INLINE, new_run_id
from tidelog.pipeline.report.output import collected
from tidelog.pipeline.secured import use_command_configs
from tidelog.pipeline.source.splits import NotThere

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tidelog.pipeline.report.output import Output

_TABLE: Final = "table"


class Outcome(NamedTuple):
    """What a job did: the fields of `tidelog.jobs.results.Result`."""

    job: str
    run: str
    status: int
    directory: Path
    report: Mapping[str, Any]
    text: str
    draw: Callable[[], str] | None


def call(one: Call, spark: Any, given: Mapping[str, Any]) -> Outcome:
    """Runs a job; returns what it did. None means that an argument was not given.

    Raises PipelineError, with the sentence that the command would print; Refused, with its outcome
    as `result`, if the job has changed nothing because of what it found.
    """
    frame = given.get(_TABLE)
    if frame is not None and hasattr(frame, "sparkSession"):  # Spark's, which has no text
        given = {name: value for name, value in given.items() if name != _TABLE}
        spark = spark or frame.sparkSession
    else:
        frame = None
    options = options_of(one, given)
    options.frame = frame
    if spark is not None:
        _refuse_contradictions(options)
    options.run = options.run or new_run_id(one.action or one.job, time.time_ns() // 1_000_000)
    with collected() as output:
        try:
            with cli.session_of(options, spark) as session:
                status = cli.module_of(one.job).run(options, session)
        except Refused as refusal:
            refusal.result = _outcome(one, options, FINDINGS, output)
            raise
        except PipelineError:
            raise
        except NotThere as error:
            raise UsageError(str(error)) from error
        except Exception as error:
            raise PipelineError(cli.explained(error)) from error
    if status == FAILED:
        raise PipelineError("; ".join(output.trouble) or output.text)
    return _outcome(one, options, status, output)


def _outcome(one: Call, options: argparse.Namespace, status: int, output: Output) -> Outcome:
    return Outcome(
        job=one.name,
        run=options.run,
        status=status,
        directory=Path(options.out) / options.run,
        report=output.report,
        text=output.text,
        draw=None if output.page is None else functools.partial(output.page, output.report),
    )


def _refuse_contradictions(options: argparse.Namespace) -> None:
    """Raises UsageError for options that a SparkSession of the caller's decides already."""
    if getattr(options, "master", None) not in {None, AUTO, INLINE}:
        raise UsageError(
            f"master={options.master} and spark are both given: the session has a master"
        )
    if getattr(options, "conf", None):
        raise UsageError("conf and spark are both given: set it where the session is built")


def options_of(one: Call, given: Mapping[str, Any]) -> argparse.Namespace:
    """Returns the parsed options. Raises UsageError."""
    known = arguments_of(one)
    line = [] if one.action is None else [one.action]
    places: list[str] = []
    for name, value in given.items():
        if value is None:
            continue
        action = known[name]
        if not action.option_strings:
            places.append(_text(value))
        elif action.nargs == 0:
            line += [action.option_strings[0]] if value else []
        else:
            line += [f"{action.option_strings[0]}={text}" for text in _texts(action, value)]
    options = parser_of(one).parse_args([*line, *places])
    options.job = one.job
    use_command_configs(options)
    return options


def _texts(action: argparse.Action, value: Any) -> list[str]:
    """Returns a value as the texts of one option, or of several for one that may be given often."""
    if not isinstance(action, Append):
        return [_text(value)]
    if isinstance(value, Mapping):
        return [_pair(key, one) for key, one in value.items()]
    if isinstance(value, (str, os.PathLike)):
        return [_text(value)]
    return [_text(one) for one in value]


def _pair(key: str, value: Any) -> str:
    """Returns KEY=VALUE, or NAME:KEY=VALUE,... for settings that have a name (`policy`)."""
    if isinstance(value, Mapping):
        return f"{key}:" + ",".join(f"{name}={_text(one)}" for name, one in value.items())
    return f"{key}={_text(value)}"


def _text(value: Any) -> str:
    """Returns a value as the command line has it. Raises UsageError for a time without a zone."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise UsageError(f"{value.isoformat()} has no time zone: give the datetime one")
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return str(value // dt.timedelta(milliseconds=1))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ",".join(_text(one) for one in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
