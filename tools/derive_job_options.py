"""Writes the options of each job at the end of its page in docs/pipeline/, from their declarations.

`python tools/derive_job_options.py` writes the pages. With `--check` it writes nothing and exits
with status 1 if a page is stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.pipeline import cli
from tidelog.pipeline import options as shared
from tools.derived import write_or_check

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = ROOT / "docs" / "pipeline"
_BEGIN = (
    "<!-- Derived from the declarations of the options by `make derive`; do not edit below. -->"
)
_HEAD = ("| option | meaning |", "|---|---|")


def page(job: str) -> str:
    """Returns the page of a job with its options."""
    text = (PAGES / f"{job}.md").read_text(encoding="utf-8")
    return f"{text.partition(_BEGIN)[0].rstrip()}\n\n{_BEGIN}\n\n{options(job)}"


def options(job: str) -> str:
    """Returns the section about the options of a job."""
    (jobs,) = _choices(cli.parser_of(job))
    lines = ["## Every option", "", *_HEAD, *_rows(jobs[job])]
    run = argparse.ArgumentParser()
    shared.add_run(run)
    shared.add_verbose(run, default=False)
    rows = list(_rows(run))
    for choices in _choices(jobs[job]):
        for name, parser in choices.items():
            own = [row for row in _rows(parser) if row not in rows]
            lines += ["", f"`{job} {name}` has those about how to run, and:", "", *_HEAD, *own]
    return "\n".join([*lines, ""])


def _choices(parser: argparse.ArgumentParser) -> Iterator[dict[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor a name for these
            yield action.choices


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - as above
        if action.help == argparse.SUPPRESS or "-h" in action.option_strings:
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            continue
        value = ""
        if action.option_strings and action.nargs != 0:
            value = f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
        names = ", ".join(f"`{name}{value}`" for name in action.option_strings)
        needed = " (needed)" if action.required and action.option_strings else ""
        cells = (names or f"`{action.metavar}`", (action.help or "") + needed)
        yield "| {} | {} |".format(*(cell.replace("|", "\\|") for cell in cells))


if __name__ == "__main__":
    sys.exit(max(write_or_check(PAGES / f"{job}.md", page(job)) for job in cli.JOBS))
