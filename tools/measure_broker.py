"""Measures the structure of broker/, and fails where a measure is above its ceiling.

    python tools/measure_broker.py [--check]

A circle is a set of files each of which imports, through others, all the others; imports for types count.
A condition on the mode asks whether the broker is alone or one of several. Ceilings only go down: lower
one with the change that makes it possible.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import grimp

BROKER = Path(__file__).parents[1] / "broker"
CEILINGS = {
    "files in circles": 0,
    "files in the largest circle": 0,
    "conditions on the mode": 0,
}
_MODE = re.compile(
    r"\b(?:cluster|cluster_watch|replication|leading|others|_following) is (?:not )?None"
    r"|\.replicas is (?:not )?None|\breplicas\.waits_for_others\b|\bhas_others\b"
    r"|\bcluster\.is_\w*(?:shared|alone|sole)\b|\bis_(?:sole|only)_member\b"
)


def circles() -> list[set[str]]:
    """Returns the circles of files, each with more than one file."""
    graph = grimp.build_graph("tidelog", cache_dir=None)
    for name in list(graph.modules):
        if not name.startswith("tidelog.broker") and name != "tidelog":
            graph.remove_module(name)
    files = graph.modules - {"tidelog"}
    found: list[set[str]] = []
    for name in sorted(files):
        if not any(name in circle for circle in found):
            circle = graph.find_upstream_modules(name) & graph.find_downstream_modules(name)
            if circle:
                found.append(circle | {name})
    return found


def measures() -> dict[str, int]:
    """Returns every measure."""
    found = [len(circle) for circle in circles()]
    return {
        "files in circles": sum(found),
        "files in the largest circle": max(found, default=0),
        "conditions on the mode": sum(
            len(_MODE.findall(path.read_text())) for path in BROKER.rglob("*.py")
        ),
    }


def main() -> int:
    """Prints the measures; returns 1 if one is above its ceiling and `--check` is given."""
    above = 0
    for name, value in measures().items():
        ceiling = CEILINGS[name]
        above += value > ceiling
        print(f"{name:32} {value:6}  at most {ceiling:6}{'  ABOVE' if value > ceiling else ''}")
    return int(above > 0 and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
