"""Writes the table of Spark's versions in docs/pipeline/running.md, from their declaration.

`python tools/derive_spark_versions.py` writes it. With `--check` it writes nothing and exits with
status 1 if it is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.pipeline.spark_versions import FITTING
from tools.derived import between, write_or_check

PAGE = ROOT / "docs" / "pipeline" / "running.md"
_BEGIN = "<!-- Derived from pipeline/spark_versions.py by `make derive`; do not edit. -->\n"
_END = "<!-- The end of what is derived. -->"
_COLUMNS = {"kafka": "Kafka connector", "iceberg": "Iceberg's runtime", "delta": "Delta"}


def page() -> str:
    """Returns the page with the table."""
    lines = [f"| PySpark | {' | '.join(_COLUMNS.values())} |", f"|---{'|---' * len(_COLUMNS)}|"]
    for one in FITTING:
        cells = [f"`{one.packages[name]}`" if name in one.packages else "none" for name in _COLUMNS]
        lines.append(f"| {one.spark} | {' | '.join(cells)} |")
    return between(PAGE, _BEGIN, _END, "\n{}\n\n".format("\n".join(lines)))


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
