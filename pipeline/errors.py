"""Errors that end a job, each with a sentence for the user as its message, and the exit statuses.

A job returns OK or FINDINGS. A `UsageError` becomes USAGE, a `Refused` FINDINGS, any other
`PipelineError` FAILED.

A program sees an error by the name under which it can import it (`public`), and not by that of the
module which defines it. Pickles name it so too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_E = TypeVar("_E", bound=Exception)

OK: Final = 0
FINDINGS: Final = 1  # the job ran, and has findings
USAGE: Final = 2
FAILED: Final = 3


def public(module: str, name: str | None = None) -> Callable[[type[_E]], type[_E]]:
    """Returns a decorator that names an error by a public module, which must have it.

    In our own processes, where our packages have their short names, it changes nothing: the class
    there is another one than that of the public module.
    """

    def named(kind: type[_E]) -> type[_E]:
        if kind.__module__.startswith("tidelog."):
            kind.__module__ = module
            kind.__name__ = kind.__qualname__ = name or kind.__name__
        return kind

    return named


@public("tidelog.jobs", "JobError")
class PipelineError(Exception):
    """A job failed; the message alone explains it to the user."""


@public("tidelog.jobs")
class UsageError(PipelineError):
    """The command line asks for something impossible."""


@public("tidelog.jobs")
class Refused(PipelineError):
    """A job has changed nothing, because of what it found.

    The job has said what it found, so the command prints no more. `result` is its result for a
    program that called it, which then can read the same.
    """

    result: Any = None


@public("tidelog.jobs")
class SetupError(PipelineError):
    """Something is not installed, or its version does not fit."""
