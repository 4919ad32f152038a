"""The jobs of `tidelog pipeline` for a program: a notebook, or a scheduler's task.

    import tidelog.jobs

    result = tidelog.jobs.audit(broker="localhost:9092", topics="orders")
    if result.has_findings:
        print(result)

Keyword arguments are the options of the command, with `_` for `-` (`from_` for `--from`). `spark` is
a SparkSession to use for everything; without one, what is small runs in this process, and Spark is
started for the rest. A value may be text as on the command line, a number, a path, a datetime with
its zone, a timedelta, a list for an option with commas or one that may be given often, and a
dictionary for KEY=VALUE. A result prints as the command's lines, and shows its page in a notebook.

A job that fails raises JobError with one sentence. Of its kinds, UsageError means that the arguments
do not fit, and Refused that the job has changed nothing because of what it found.
Importing this package imports neither PySpark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.jobs.calling import function
from tidelog.jobs.results import (
    ArchiveResult,
    AuditResult,
    CompactResult,
    CopyResult,
    FailoverResult,
    Result,
    VerifyResult,
    WhatifResult,
)
from tidelog.pipeline.calls import keywords as _keywords
from tidelog.pipeline.calls.call import call as _call
from tidelog.pipeline.errors import PipelineError as JobError
from tidelog.pipeline.errors import Refused, SetupError, UsageError
from tidelog.pipeline.jobs.audit import AuditOptions
from tidelog.pipeline.jobs.backfill import BackfillOptions
from tidelog.pipeline.jobs.failover import FailoverOptions
from tidelog.pipeline.jobs.mirror import MirrorOptions
from tidelog.pipeline.jobs.whatif import WhatifOptions

if TYPE_CHECKING:
    from collections.abc import Callable


def _function(name: str, result: type[Result]) -> Callable[..., Any]:
    """Returns the function that runs a job, with the signature of its options."""
    (one,) = (each for each in _keywords.CALLS if each.name == name)
    signature = _keywords.signature_of(one)

    def run(*args: Any, **keywords: Any) -> Any:
        keywords = {_keywords.RENAMED.get(name, name): each for name, each in keywords.items()}
        try:
            given = signature.bind(*args, **keywords).arguments
        except TypeError as error:
            raise UsageError(_keywords.unbound(name, signature, keywords, error)) from error
        try:
            return result(*_call(one, given.pop(_keywords.SPARK, None), given))
        except Refused as refusal:
            refusal.result = refusal.result and result(*refusal.result)
            raise

    run.__name__ = run.__qualname__ = name
    run.__module__ = __name__
    run.__doc__ = _keywords.described(one)
    run.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return run


audit = function(AuditOptions, AuditResult)
whatif = function(WhatifOptions, WhatifResult)
archive = _function("archive", ArchiveResult)
archive_verify = _function("archive_verify", VerifyResult)
archive_compact = _function("archive_compact", CompactResult)
restore = _function("restore", CopyResult)
mirror = function(MirrorOptions, CopyResult)
failover = function(FailoverOptions, FailoverResult)
backfill = function(BackfillOptions, CopyResult)

__all__ = [
    "ArchiveResult",
    "AuditResult",
    "CompactResult",
    "CopyResult",
    "FailoverResult",
    "JobError",
    "Refused",
    "Result",
    "SetupError",
    "UsageError",
    "VerifyResult",
    "WhatifResult",
    "archive",
    "archive_compact",
    "archive_verify",
    "audit",
    "backfill",
    "failover",
    "mirror",
    "restore",
    "whatif",
]
