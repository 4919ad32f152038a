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

from tidelog.pipeline.timelog.spark_options import SINK, SOURCE
from tools.derived import between, write_or_check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.pipeline.timelog.spark_options import Meaning

BEGIN = "<!-- Derived from the declarations of the options by `make derive`; do not edit. -->"
END = "<!-- End of what is derived. -->"
PAGES = {
    ROOT / "docs" / "pipeline" / "source.md": ("source", SOURCE),
    ROOT / "docs" / "pipeline" / "sink.md": ("sink", SINK),
}


def table(what: str, options: Mapping[str, Meaning]) -> str:
    """Returns the table of the options of Spark's source or sink."""
    lines = ["", f"| option of Spark's {what} | in `timelog` |", "|---|---|"]
    for meaning, names in groupby(options, options.__getitem__):
        quoted = ", ".join(
            "any other `kafka.*`" if one == "kafka.*" else f"`{one}`" for one in names
        )
        lines.append(f"| {quoted} | {'; '.join(filter(None, meaning))} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(
        max(
            write_or_check(page, between(page, BEGIN, END, table(*of)))
            for page, of in PAGES.items()
        )
    )
