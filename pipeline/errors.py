"""Errors that end a job, each with a sentence for the user as its message, and the exit statuses.

A job returns OK or FINDINGS. A `UsageError` becomes USAGE, a `Refused` FINDINGS, any other
`PipelineError` FAILED.

A program sees an error by the name under which it can import it (`client.errors.public`), and not by that of
the module which defines it.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.client.errors import public

OK: Final = 0
FINDINGS: Final = 1  # the job ran, and has findings
USAGE: Final = 2
FAILED: Final = 3


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
