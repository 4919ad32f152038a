"""What commands print: JSON, lines, tables, and times as text for people."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from tidelog.cli.escaping import escaped, escaped_lines
from tidelog.cli.shared import instants

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence

_LEAST_WRAPPED = 26  # a time and what follows it
_WIDE = 500  # columns without a terminal
_FOLDED = 100  # columns of sentences
_SHOWN_AFTER_S = 1.0


def print_json(value: Any) -> None:
    """Prints one line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_lines(*lines: str) -> None:
    """Prints lines of text; what is not printable in one, line breaks too, is escaped."""
    sys.stdout.write("".join(f"{escaped(line)}\n" for line in lines))


def print_answer(options: argparse.Namespace, value: Any, *lines: str) -> None:
    """Prints an answer: with `--json` its value, else lines of text."""
    if options.json:
        print_json(value)
    else:
        print_lines(*lines)


def print_folded(text: str, *, indent: str = "") -> None:
    """Prints a sentence in lines of bounded length, all but the first one indented."""
    print_lines(
        *textwrap.wrap(
            text,
            _FOLDED,
            initial_indent=indent,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    wraps: str | None = None,
    lines: Sequence[str] = (),
) -> None:
    """Prints a table, in which None is "-".

    A column whose name begins with ">" is right-aligned, that in `wraps` is folded, and cells of those in
    `lines` may have line breaks. Nothing is cut off: a narrow terminal breaks the lines itself. What else
    is not printable in a cell is escaped.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column.removeprefix(">"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=column != wraps,
            overflow="fold",
            min_width=_LEAST_WRAPPED if column == wraps else None,
        )
    for row in rows:
        cells = zip(columns, ("-" if cell is None else str(cell) for cell in row), strict=True)
        table.add_row(
            *(escaped_lines(cell) if name in lines else escaped(cell) for name, cell in cells)
        )
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE
    console = Console(file=sys.stdout, width=_WIDE, highlight=False, markup=False)
    needed = console.measure(table).minimum
    console.print(table, width=max(width, needed), soft_wrap=False)


def shown(answer: dict[str, Any], name: str, missing: str = "-") -> str:
    """Returns a time as text for people; in milliseconds if an older broker has no text for it."""
    if answer[f"{name}_ms"] is None:
        return missing
    text: str | None = answer[name]
    return str(answer[f"{name}_ms"]) if text is None else text.replace(".000Z", "Z")


def span_of(span_ms: int) -> str:
    """Returns a span of time as text for people: its two largest units."""
    text: str = instants().to_span(span_ms)
    return text


def instant_of(time_ms: int) -> str:
    """Returns a time as text for people: ISO 8601 in UTC, without milliseconds that are 0."""
    text: str = instants().to_iso(time_ms)
    return text.replace(".000Z", "Z")


@contextlib.contextmanager
def bar(total: int, *, of_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on standard error, for a terminal; yields a function to advance it."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        """The number of things a second, once it is known."""

        def render(self, task: progress.Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    rate: tuple[progress.ProgressColumn, ...] = (progress.MofNCompleteColumn(), Rate())
    if of_bytes:
        rate = (progress.DownloadColumn(), progress.TransferSpeedColumn())
    columns = (progress.BarColumn(), *rate, progress.TimeRemainingColumn())
    console = Console(stderr=True)
    with progress.Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown_bar:
        task = shown_bar.add_task("", total=total)
        yield lambda count: shown_bar.advance(task, count)


@contextlib.contextmanager
def bar_beside_output(total: int, *, of_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar as `bar` does, unless the terminal shows what the command prints as it goes."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield lambda _: None
        return
    with bar(total, of_bytes=of_bytes) as advance:
        yield advance


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error, for a terminal, what a command waits for, when a second has passed."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer

    shown_status: list[Any] = []

    def show() -> None:
        from rich.console import Console

        status = Console(stderr=True).status(escaped(what))
        status.start()
        shown_status.append(status)

    timer = Timer(_SHOWN_AFTER_S, show)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for status in shown_status:
            status.stop()
