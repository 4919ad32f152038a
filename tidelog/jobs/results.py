"""What a job returns to a program: its status and report, readable as text and as a notebook's page."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_FINDINGS = 1
_FRAME_PX = 640
"""The height of a frame where the notebook does not let it take that of its content."""
_FIT = "const px=this.contentDocument.documentElement.scrollHeight;if(px)this.style.height=px+'px'"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job that ran to its end.

    `run` is its name, `directory` where it left its files. `report` has the contents of
    report.json, and is empty for a dry run and where the job refused to write. `text` is what the
    command prints.
    """

    job: str
    run: str
    status: int
    directory: Path
    report: Mapping[str, Any]
    text: str
    draw: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @property
    def page(self) -> str | None:
        """The report as a document of HTML, drawn now; None where a job has none."""
        return None if self.draw is None else self.draw()

    @property
    def has_findings(self) -> bool:
        """Whether the job has findings: exit status 1 of the command."""
        return self.status == _FINDINGS

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """Returns the page for a notebook, in a frame: its styles concern nothing else there.

        The frame runs no script, and takes the height of the page where the notebook allows it.
        """
        page = self.page
        if page is None:
            return f"<pre>{html.escape(self.text)}</pre>"
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-same-origin"'
            f' title="{html.escape(self.job)}" onload="{html.escape(_FIT)}"'
            f' style="width:100%;height:{_FRAME_PX}px;border:0"></iframe>'
        )

    def _all(self, name: str) -> tuple[Mapping[str, Any], ...]:
        found: Sequence[Mapping[str, Any]] = self.report.get(name, ())
        return tuple(found)

    def _number(self, name: str) -> int:
        return int(self.report.get(name, 0))


class AuditResult(Result):
    """The result of an audit."""

    __slots__ = ()

    @property
    def findings(self) -> tuple[Mapping[str, Any], ...]:
        """The findings, each with `level` (bad, warn or info), `topic` and `title`."""
        return self._all("findings")

    @property
    def topics(self) -> tuple[Mapping[str, Any], ...]:
        """The numbers of each topic."""
        return self._all("topics")


class WhatifResult(Result):
    """The result of a what-if."""

    __slots__ = ()

    @property
    def broken_guards(self) -> tuple[Mapping[str, Any], ...]:
        """The guards that are broken: `guard`, `policy`, `limit` and `value`."""
        return self._all("broken_guards")

    @property
    def topics(self) -> tuple[Mapping[str, Any], ...]:
        """What each policy deletes of each topic."""
        return self._all("topics")


class CopyResult(Result):
    """The result of a mirror, a restore or a backfill."""

    __slots__ = ()

    @property
    def records(self) -> int:
        """The number of records that the target has of this run."""
        return self._number("records")

    @property
    def partitions(self) -> tuple[Mapping[str, Any], ...]:
        """The counts of each partition."""
        return self._all("partitions")


class ArchiveResult(Result):
    """The result of an archive run."""

    __slots__ = ()

    @property
    def records(self) -> int:
        """The number of records archived."""
        return self._number("records")

    @property
    def files(self) -> int:
        """The number of files written."""
        return self._number("files")


class VerifyResult(Result):
    """The result of comparing an archive with its manifests."""

    __slots__ = ()

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences that say what is wrong; none if the archive is sound."""
        return tuple(self.report.get("findings", ()))


class CompactResult(Result):
    """The result of merging the small files of an archive."""

    __slots__ = ()

    @property
    def replaced(self) -> int:
        """The number of files that were replaced."""
        return self._number("replaced")

    @property
    def made(self) -> int:
        """The number of files that replace them."""
        return self._number("made")


class FailoverResult(Result):
    """The result of a failover."""

    __slots__ = ()

    @property
    def partitions(self) -> tuple[Mapping[str, Any], ...]:
        """Where the group continues in each partition, and what is lost, missing or read again."""
        return self._all("partitions")

    @property
    def is_applied(self) -> bool:
        """Whether the offsets were committed."""
        return bool(self.report.get("is_applied", False))
