"""`tidelog pipeline JOB ...`: jobs on Spark, in a process that can import our packages.

Thin: it opens the house and hands the rest of the command line over. PySpark starts spark-submit itself, for
whatever `--master` says.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE_ERROR = 2


def main(argv: Sequence[str]) -> int:
    """Run a job; returns the exit status."""
    from tidelog._house import HouseError, open_house

    try:
        open_house()
    except HouseError as error:
        print(f"tidelog pipeline: {error}", file=sys.stderr)  # noqa: T201 - there is no log
        return _USAGE_ERROR
    from pipeline.cli import main as run_job

    return run_job(argv)
