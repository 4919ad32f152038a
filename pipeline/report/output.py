"""What a job says and leaves: printed for a command, collected for a program that runs the job.

    with collected() as output:
        status = job.run(options, session)
    output.text, output.report

Jobs print nothing themselves: they call `say` and `leave`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

REPORT: Final = "report.json"
PAGE: Final = "report.html"


@dataclass(slots=True)
class Output:
    """The output of one job: its lines, those about trouble, its report and the report's page."""

    lines: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    report: Mapping[str, Any] = field(default_factory=dict)
    page: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join([*self.lines, *self.trouble])


_output: ContextVar[Output | None] = ContextVar("output", default=None)


@contextlib.contextmanager
def collected() -> Iterator[Output]:
    """Collects the output of the job that runs in this block, in this thread."""
    token = _output.set(Output())
    try:
        found = _output.get()
        assert found is not None
        yield found
    finally:
        _output.reset(token)


def progress_stream() -> TextIO:
    """Returns where progress is shown: standard error, but in a program only if it is a terminal."""
    if _output.get() is None or sys.stderr.isatty():
        return sys.stderr
    return io.StringIO()


def say(text: object, *, is_trouble: bool = False) -> None:
    """Says a line; `is_trouble` sends it to standard error."""
    output = _output.get()
    if output is None:
        print(text, file=sys.stderr if is_trouble else sys.stdout)
    else:
        (output.trouble if is_trouble else output.lines).append(str(text))


def leave(
    report: Mapping[str, Any],
    directory: Path,
    kind: str,
    page: Callable[[Mapping[str, Any]], str] | None = None,
) -> list[Path]:
    """Writes report.json, and report.html by `page`; returns the files. Raises OSError.

    `kind` is that of --report: "none" writes no file, "json" no page. Files appear when they are
    complete.
    """
    output = _output.get()
    if output is not None:
        output.report, output.page = report, page
    written = []
    if kind != "none":
        written.append(_write(directory / REPORT, json.dumps(report, indent=1) + "\n"))
    if kind == "html" and page is not None:
        written.append(_write(directory / PAGE, page(report)))
    return written


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)
    return path
