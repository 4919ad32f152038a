"""What a type checker knows of the jobs' functions; `make types` checks this file, and nothing runs it.

Each `type: ignore` stands for an error that has to be found: an unused one is an error itself.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import tidelog.jobs
from tidelog.jobs import AuditResult, CompactResult, CopyResult, WhatifResult

if TYPE_CHECKING:
    from tidelog.pipeline.jobs.audit import AuditOptions


def fits(moment: dt.datetime, spark: object) -> None:
    audit = tidelog.jobs.audit(
        logs=[Path("a"), "b"], from_=moment, to="now", margin=dt.timedelta(minutes=1), at=5
    )
    assert_type(audit, AuditResult)
    assert_type(tidelog.jobs.archive_compact("a", file_bytes="1m", spark=spark), CompactResult)
    copy = tidelog.jobs.mirror(broker="a:1", to_broker="b:1", set={"retention.ms": -1})
    assert_type(copy, CopyResult)
    assert_type(copy.records, int)
    policy = {"week": {"retention.ms": "7d"}}
    assert_type(tidelog.jobs.whatif(logs="a", policy=policy), WhatifResult)


def does_not_fit() -> None:
    tidelog.jobs.mirror(broker="a:1")  # type: ignore[call-arg]
    tidelog.jobs.archive_compact()  # type: ignore[call-arg]
    tidelog.jobs.audit(log="a")  # type: ignore[call-arg]
    tidelog.jobs.audit(logs="a", no_retention="yes")  # type: ignore[arg-type]
    tidelog.jobs.audit(logs="a", upto="end")  # type: ignore[arg-type]


def parsed(options: AuditOptions) -> None:
    assert_type(options.logs, tuple[str, ...])
    assert_type(options.margin, int)
    assert_type(options.conf, tuple[tuple[str, str], ...])
