"""Compare trees of this repository side by side: rows of three brokers each, in alternating runs.

`trees.py --rows latency,all-100 TREE TREE`: all brokers run at the same time, one tree's at a time
does work. The ratio is taken repetition by repetition, to the first tree; load on the machine changes
it less than it changes the figures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (0, 1, 2)]

from cluster_rows import ROWS
from clusters import TidelogCluster

if TYPE_CHECKING:
    from collections.abc import Sequence


def _ratio(first: Sequence[float], second: Sequence[float]) -> float:
    return statistics.median(b / a for a, b in zip(first, second, strict=True))


def main() -> None:
    """Prints a line for each figure: the medians, and the ratios to the first tree."""
    parser = argparse.ArgumentParser(description="three brokers of each of several trees")
    add = parser.add_argument
    add("trees", nargs="+", type=Path, help="directories with a tree, its kernels compiled")
    add("--rows", default="latency", help="keys of rows, separated by commas")
    add("--repetitions", type=int, default=9)
    add("--scale", type=float, default=0.15, help="how much of each load")
    options = parser.parse_args()
    rows = [row for row in ROWS if row.key in options.rows.split(",")]
    with tempfile.TemporaryDirectory(prefix="tidelog-trees-") as work:
        clusters = [
            TidelogCluster(Path(work) / str(number), tree=tree.resolve())
            for number, tree in enumerate(options.trees)
        ]
        try:
            for cluster in clusters:
                cluster.start()
            for row in rows:
                prepared = [row.prepare(cluster) for cluster in clusters]
                runs: list[list[dict[str, float]]] = [[] for _ in clusters]
                for repetition in range(options.repetitions + 1):
                    for number in sorted(range(len(clusters)), reverse=bool(repetition % 2)):
                        figures = row.measure(clusters[number], prepared[number], options.scale)
                        if repetition:  # the first run warms up
                            runs[number].append(figures)
                for figure in row.figures:
                    values = [[run[figure.key] for run in each] for each in runs]
                    shown = [
                        f"{statistics.median(each):10.3f} ({_ratio(values[0], each):.3f})"
                        for each in values
                    ]
                    print(f"{figure.title:50} {figure.unit:5}", *shown, flush=True)
        finally:
            for cluster in clusters:
                cluster.stop()


if __name__ == "__main__":
    main()
