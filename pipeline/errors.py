"""Errors that end a job, each with a sentence for the user as its message, and the exit statuses.

A job returns OK or FINDINGS. A `UsageError` becomes USAGE, any other `PipelineError` FAILED.
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
FINDINGS: Final = 1  # it ran, and there is something to look at
USAGE: Final = 2
FAILED: Final = 3


class PipelineError(Exception):
    """Something failed; nothing below needs to be looked at to understand it."""


class UsageError(PipelineError):
    """The command line asks for what cannot be meant."""


class SetupError(PipelineError):
    """Something is not installed, or of a version that will not do."""
