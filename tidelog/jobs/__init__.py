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
from tidelog.pipeline.errors import PipelineError as JobError
from tidelog.pipeline.errors import Refused, SetupError, UsageError
from tidelog.pipeline.jobs.archive import ArchiveOptions, CompactOptions, VerifyOptions
from tidelog.pipeline.jobs.audit import AuditOptions
from tidelog.pipeline.jobs.backfill import BackfillOptions
from tidelog.pipeline.jobs.failover import FailoverOptions
from tidelog.pipeline.jobs.mirror import MirrorOptions
from tidelog.pipeline.jobs.restore import RestoreOptions
from tidelog.pipeline.jobs.whatif import WhatifOptions

audit = function(AuditOptions, AuditResult)
whatif = function(WhatifOptions, WhatifResult)
archive = function(ArchiveOptions, ArchiveResult)
archive_verify = function(VerifyOptions, VerifyResult)
archive_compact = function(CompactOptions, CompactResult)
restore = function(RestoreOptions, CopyResult)
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
