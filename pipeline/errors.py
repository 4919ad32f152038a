"""Errors that end a job, each with a sentence for the user as its message, and the exit statuses.

A job returns OK or FINDINGS. A `UsageError` becomes USAGE, a `Refused` FINDINGS, any other
`PipelineError` FAILED.
"""

from __future__ import annotations

from typing import Any, Final

OK: Final = 0
FINDINGS: Final = 1  # the job ran, and has findings
USAGE: Final = 2
FAILED: Final = 3


class PipelineError(Exception):
    """A job failed; the message alone explains it to the user."""


class UsageError(PipelineError):
    """The command line asks for something impossible."""


class Refused(PipelineError):
    """A job has changed nothing, because of what it found.

    The job has said what it found, so the command prints no more. `result` is its result for a
    program that called it, which then can read the same.
    """

    result: Any = None


class SetupError(PipelineError):
    """Something is not installed, or its version does not fit."""
