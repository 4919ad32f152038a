"""Runs a job for a program: its options are the keywords of a function, its output is a result."""

from __future__ import annotations

import functools
import inspect
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from tidelog.jobs.results import Result
from tidelog.pipeline import cli
from tidelog.pipeline.declaring import Options, keyword_of
from tidelog.pipeline.errors import FAILED, FINDINGS, PipelineError, Refused, UsageError
from tidelog.pipeline.options import AUTO, INLINE, RunOptions
from tidelog.pipeline.report.output import collected
from tidelog.pipeline.secured import with_command_configs
from tidelog.pipeline.source.splits import NotThere
from tidelog.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.pipeline.report.output import Output

_OPTION: Final = re.compile(r"--([a-z][a-z-]+)")
_RENAMED: Final = MappingProxyType({"brokers": "broker", "to_brokers": "to_broker"})
"""Older keywords, which are still taken."""
_SESSION: Final = (
    "`spark` is a SparkSession to use for everything; without one, what is small runs in",
    "this process, and Spark is started for the rest. Raises JobError.",
)

P = ParamSpec("P")
R = TypeVar("R", bound=Result)


def function(options: Callable[P, Options], result: type[R]) -> Callable[P, R]:
    """Returns the function that runs the job of a class of options; its keywords are the fields."""
    kind: Any = options
    name = kind.job if kind.action is None else f"{kind.job}_{kind.action}"
    signature = signature_of(kind)

    def run(*args: P.args, **keywords: P.kwargs) -> R:
        renamed = {_RENAMED.get(name, name): each for name, each in keywords.items()}
        if len(renamed) < len(keywords):
            older = next(one for one, now in _RENAMED.items() if {one, now} <= keywords.keys())
            raise UsageError(f"{older} and {_RENAMED[older]} are one keyword: give one of them")
        try:
            given = signature.bind(*args, **renamed)
        except TypeError as error:
            raise UsageError(_unbound(name, signature, renamed, error)) from error
        return call(kind(*given.args, **given.kwargs), name, result)

    run.__name__ = run.__qualname__ = name
    run.__module__ = "tidelog.jobs"
    run.__doc__ = described(kind)
    run.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return run


def call(options: Options, name: str, result: type[R]) -> R:
    """Runs a job; returns what it did.

    Raises PipelineError, with the sentence that the command would print; Refused, with its result,
    if the job has changed nothing because of what it found.
    """
    options = with_command_configs(options)
    if options.spark is not None and isinstance(options, RunOptions):
        _refuse_contradictions(options)
    with collected() as output:
        try:
            with cli.session_of(options) as session:
                status = cli.module_of(options.job).run(options, session)
        except Refused as refusal:
            refusal.result = result(*_outcome(options, name, FINDINGS, output))
            raise
        except PipelineError:
            raise
        except NotThere as error:
            raise UsageError(str(error)) from error
        except Exception as error:
            raise PipelineError(cli.explained(error)) from error
    if status == FAILED:
        raise PipelineError("; ".join(output.trouble) or output.text)
    return result(*_outcome(options, name, status, output))


def _outcome(options: Any, name: str, status: int, output: Output) -> tuple[Any, ...]:
    """Returns the fields of a Result."""
    draw = None if output.page is None else functools.partial(output.page, output.report)
    place = Path(options.out) / options.run
    return name, options.run, status, place, output.report, output.text, draw


def _refuse_contradictions(options: RunOptions) -> None:
    """Raises UsageError for options that a SparkSession of the caller's decides already."""
    if options.master not in {None, AUTO, INLINE}:
        raise UsageError(
            f"master={options.master} and spark are both given: the session has a master"
        )
    if options.conf:
        raise UsageError("conf and spark are both given: set it where the session is built")


def signature_of(kind: type[Options]) -> inspect.Signature:
    """Returns the signature of the function: what is needed first."""
    made = inspect.signature(kind).parameters
    parameters = [made["spark"].replace(default=None, annotation="SparkSession | None")]
    for one in kind.shown():
        default = False if one.is_flag else inspect.Parameter.empty if one.is_needed else None
        parameters.append(made[one.name].replace(default=default, annotation=one.takes))
    parameters.sort(key=lambda one: (one.kind, one.default is not one.empty))
    return inspect.Signature(parameters)


def _unbound(
    name: str, signature: inspect.Signature, keywords: Mapping[str, Any], error: TypeError
) -> str:
    """Returns the sentence for arguments that do not fit the function, with the nearest keyword."""
    for one in keywords:
        if one not in signature.parameters:
            meant = did_you_mean(one, signature.parameters)
            return f"{name} has no keyword {one}{meant or f' (see help(tidelog.jobs.{name}))'}"
    return f"{name}: {error}"


def described(kind: type[Options]) -> str:
    """Returns the docstring of the function for a job: the job's own, and its keywords."""
    keywords = (
        f"{one.name}: {_OPTION.sub(lambda found: keyword_of(found[1]), one.meaning)}"
        for one in kind.shown()
    )
    return "\n".join([kind.description().strip(), "", *_SESSION, "", *keywords])
