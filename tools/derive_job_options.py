"""Writes the options of each job at the end of its page in docs/pipeline/, from their declarations.

`python tools/derive_job_options.py` writes the pages. With `--check` it writes nothing and exits
with status 1 if a page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.pipeline import cli
from tidelog.pipeline.options import RunOptions
from tools.derived import write_or_check

if TYPE_CHECKING:
    from tidelog.pipeline.declaring import Option

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
    kind = cli.options_of(job)
    lines = ["## Every option", "", *_HEAD, *map(_row, kind.shown())]
    shared = {one.name for one in RunOptions.shown()}
    for name, action in kind.actions.items():
        own = [_row(one) for one in action.shown() if one.name not in shared]
        lines += ["", f"`{job} {name}` has those about how to run, and:", "", *_HEAD, *own]
    return "\n".join([*lines, ""])


def _row(one: Option[Any, Any]) -> str:
    value = "" if one.is_flag else f" {one.metavar or '|'.join(one.choices or ())}"
    names = ", ".join(f"`{name}{value}`" for name in one.spellings) or f"`{one.metavar}`"
    needed = " (needed)" if one.is_needed and one.spellings else ""
    return "| {} | {} |".format(
        *(cell.replace("|", "\\|") for cell in (names, one.meaning + needed))
    )


if __name__ == "__main__":
    sys.exit(max(write_or_check(PAGES / f"{job}.md", page(job)) for job in cli.JOBS))
