"""Writes the tables of Spark's options in docs/pipeline/source.md and sink.md, from their declarations.

`python tools/derive_spark_options.py` writes the pages. With `--check` it writes nothing and exits
with status 1 if a page is stale.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.pipeline.sink import sink_options
from tidelog.pipeline.timelog import names
from tidelog.pipeline.timelog.spark_options import SAME, SINK, SOURCE
from tools.derived import between, write_or_check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipeline.timelog.spark_options import Meaning

BEGIN = "<!-- Derived from the declarations of the options by `make derive`; do not edit. -->"
END = "<!-- End of what is derived. -->"
PAGES = {
    ROOT / "docs" / "pipeline" / "source.md": ("source", SOURCE, names.ALIASES),
    ROOT / "docs" / "pipeline" / "sink.md": ("sink", SINK, sink_options.ALIASES),
}


def table(what: str, options: Mapping[str, Meaning], aliases: Mapping[str, str]) -> str:
    """Returns the table of the options of Spark's source or sink; `aliases` are our names of them."""
    lines = ["", f"| option of Spark's {what} | in `timelog` |", "|---|---|"]
    for meaning, group in groupby(options, options.__getitem__):
        given = ", ".join(_named(one, aliases) for one in group)
        colon = "; " if meaning.kind == SAME else ": "
        lines.append(f"| {given} | {colon.join(filter(None, meaning))} |")
    return "\n".join([*lines, ""])


def _named(name: str, aliases: Mapping[str, str]) -> str:
    if name == "kafka.*":
        return "any other `kafka.*`"
    return f"`{name}` (`{aliases[name]}`)" if name in aliases else f"`{name}`"


if __name__ == "__main__":
    sys.exit(
        max(
            write_or_check(page, between(page, BEGIN, END, table(*of)))
            for page, of in PAGES.items()
        )
    )
