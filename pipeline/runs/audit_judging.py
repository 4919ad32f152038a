"""Judges an audit by files: the limits in one of thresholds, and the report of an earlier audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.pipeline.engine import audit_comparison
from tidelog.pipeline.engine.audit_comparison import ComparisonError
from tidelog.pipeline.engine.thresholds import ThresholdError, Thresholds
from tidelog.pipeline.errors import UsageError
from tidelog.pipeline.report import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipeline.jobs.audit import AuditOptions


class Judge:
    """The files by which an audit is judged; they are read before the log is."""

    def __init__(self, options: AuditOptions) -> None:
        """Reads the files. Raises UsageError."""
        self._file: str | None = options.thresholds
        self._thresholds = None if self._file is None else _thresholds(self._file)
        self._before = None if options.compare is None else _report(Path(options.compare))
        if self._thresholds is not None and self._thresholds.wants_groups and not options.groups:
            raise UsageError(f"--thresholds: {self._file} has limits of groups: give --groups too")

    def judged(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the report with its judgement."""
        thresholds, comparison = None, None
        if self._thresholds is not None:
            thresholds = {
                "file": self._file,
                "broken": [each._asdict() for each in self._thresholds.broken(report)],
            }
            for section in self._thresholds.unused(report):
                output.say(
                    f"{self._file}: nothing that was audited belongs to {section}", is_trouble=True
                )
        if self._before is not None:
            comparison = audit_comparison.compared(self._before, report)
        return {**report, "thresholds": thresholds, "comparison": comparison}


def _thresholds(place: str) -> Thresholds:
    try:
        return Thresholds(Path(place).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--thresholds: {place} cannot be read: {error}") from error
    except ThresholdError as error:
        raise UsageError(f"--thresholds: {place}: {error}") from error


def _report(path: Path) -> dict[str, Any]:
    """Reads report.json, or that of a run's directory."""
    if path.is_dir():
        path /= output.REPORT
    try:
        return audit_comparison.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--compare: {path} cannot be read: {error}") from error
    except ComparisonError as error:
        raise UsageError(f"--compare: {path} is no report of an audit: {error}") from error
