"""The jobs as functions of Python, read from the parsers of their commands.

A keyword is a long option of the command, with `_` for `-` (and at the end where the name is a word
of Python: `from_`); a positional argument has its own name.
"""

from __future__ import annotations

import argparse
import inspect
import json
import keyword
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from tidelog.command_line import Parser
from tidelog.pipeline import cli
from tidelog.pipeline.errors import UsageError
from tidelog.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

MOVED: Final = ("restore", "archive", "backfill", "failover", "mirror", "whatif", "audit")
SPARK: Final = "spark"
Append: Final = argparse._AppendAction  # noqa: SLF001 - argparse gives it no public name
_SubParsers: Final = argparse._SubParsersAction  # noqa: SLF001 - as above
_OPTION: Final = re.compile(r"--([a-z][a-z-]+)")


RENAMED: Final = MappingProxyType({"brokers": "broker", "to_brokers": "to_broker"})
"""Older keywords, which are still taken."""


class Call(NamedTuple):
    """A job as a program calls it; `action` is a part of it with options of its own."""

    job: str
    action: str | None = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.job if self.action is None else f"{self.job}_{self.action}"


CALLS: Final = (
    *(Call(job) for job in cli.JOBS if job not in MOVED),
    Call("archive", "verify"),
    Call("archive", "compact"),
)


class _Parser(Parser):
    """Raises UsageError, which names the keywords of Python."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        sentence = self.sentence(message)
        raise UsageError(_OPTION.sub(lambda found: keyword_of(found[1]), sentence))


def keyword_of(option: str) -> str:
    """Returns the keyword for an option without its dashes."""
    name = option.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def arguments_of(one: Call) -> dict[str, argparse.Action]:
    """Returns the parser's argument for each keyword of a job, those without a default first."""
    found: dict[str, argparse.Action] = {}
    for action in _part_of(one)._actions:  # noqa: SLF001 - argparse has no other way to list them
        option = action.option_strings[0].lstrip("-") if action.option_strings else action.dest
        is_shown = action.dest != "help" and action.help != argparse.SUPPRESS
        if is_shown and not isinstance(action, _SubParsers):
            found[keyword_of(option)] = action
    return dict(sorted(found.items(), key=lambda pair: not pair[1].required))


def signature_of(one: Call) -> inspect.Signature:
    """Returns the signature of the function for a job."""
    kinds = inspect.Parameter
    parameters = [kinds(SPARK, kinds.KEYWORD_ONLY, default=None, annotation="SparkSession | None")]
    for name, action in arguments_of(one).items():
        is_needed = action.required
        parameters.append(
            kinds(
                name,
                kinds.POSITIONAL_OR_KEYWORD if not action.option_strings else kinds.KEYWORD_ONLY,
                default=kinds.empty if is_needed else _default(action),
                annotation=_annotation(action, is_needed=is_needed),
            )
        )
    parameters.sort(key=lambda each: (each.kind, each.default is not kinds.empty))
    return inspect.Signature(parameters)


def unbound(
    name: str, signature: inspect.Signature, keywords: Mapping[str, Any], error: TypeError
) -> str:
    """Returns the sentence for arguments that do not fit the function, with the nearest keyword."""
    for one in keywords:
        if one not in signature.parameters:
            meant = did_you_mean(one, signature.parameters)
            return f"{name} has no keyword {one}{meant or f' (see help(tidelog.jobs.{name}))'}"
    return f"{name}: {error}"


def described(one: Call) -> str:
    """Returns the docstring of the function for a job: the job's own, and its keywords."""
    lines = [(_part_of(one).description or "").strip(), ""]
    lines.append(
        "`spark` is a SparkSession to use for everything; without one, what is small runs in"
    )
    lines.append("this process, and Spark is started for the rest. Raises JobError.")
    lines.append("")
    for name, action in arguments_of(one).items():
        if action.help:
            lines.append(f"{name}: {_OPTION.sub(lambda found: keyword_of(found[1]), action.help)}")
    return "\n".join(lines)


def _default(action: argparse.Action) -> Any:
    return False if action.nargs == 0 else None


def _annotation(action: argparse.Action, *, is_needed: bool) -> str:
    if action.nargs == 0:
        return "bool"
    kind = "Values"
    if action.choices is not None:
        kind = f"Literal[{', '.join(json.dumps(one) for one in action.choices)}]"
    elif isinstance(action, Append):
        kind = "Values | Mapping[str, Value]"
        if str(action.metavar).startswith("NAME:"):  # settings under a name
            kind = "Values | Mapping[str, Mapping[str, Value]]"
    return kind if is_needed else f"{kind} | None"


def parser_of(one: Call) -> argparse.ArgumentParser:
    """Returns the parser of a job."""
    parser = _Parser(prog=one.name, allow_abbrev=False)
    cli.add_options(parser, one.job)
    return parser


def _part_of(one: Call) -> argparse.ArgumentParser:
    """Returns the parser of a job's action, or of the job where it is called without one."""
    parser = parser_of(one)
    if one.action is None:
        return parser
    (actions,) = (each for each in parser._actions if isinstance(each, _SubParsers))  # noqa: SLF001
    choices: Mapping[str, argparse.ArgumentParser] = actions.choices
    return choices[one.action]
