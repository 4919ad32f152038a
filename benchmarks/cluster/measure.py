"""Measure three brokers beside three of Apache Kafka: `make bench-cluster`, also in `make bench`.

Both clusters run on all CPUs. Each row runs uncounted until the Java brokers are warm, then its
repetitions alternate between the clusters; the ratio is taken repetition by repetition. The cluster
that is not measured is idle. Free memory is touched before each repetition of a row (pages.py). At the
end, one, two and three brokers of tidelog are compared by the clock. Only loopback is used, all files
are in a temporary directory, and only processes started here are ended.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (0, 1, 2)]

import table
from brokers import KAFKA_VERSION, remove
from cluster_rows import CORES, LIFE, ROWS, ClusterRow, requests_per_s
from clusters import Cluster, KafkaCluster, TidelogCluster, cpu_s, memory_mb
from pages import touch_free_memory
from run import RESULTS, code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_IDLE_S = 3.0


class Bench:
    """The clusters, and the results so far."""

    def __init__(self, work: Path, results: table.Results, options: argparse.Namespace) -> None:
        self._work, self._results = work, results
        self._scale: float = options.scale
        self._repetitions: int = options.repetitions
        self._names: list[str] = options.clusters
        self._began = time.monotonic()
        self._budget_s: float = options.budget_s
        self.clusters: dict[str, Cluster] = {}
        self.failed: list[str] = []
        self.left_out: list[str] = []

    def start(self) -> None:
        """Starts the clusters; tidelog some times, on empty directories, for its figures."""
        for name in self._names:
            for repetition in range(self._repetitions if name == "tidelog" else 1):
                self._stop(name)
                directory = self._work / name
                remove(directory)
                made = TidelogCluster(directory) if name == "tidelog" else KafkaCluster(directory)
                self.clusters[name] = made
                made.start()
                time.sleep(_IDLE_S if name == "tidelog" else 5 * _IDLE_S)
                life = {"ready": made.start_s, "memory": memory_mb(made)}
                before, began = cpu_s(made), time.perf_counter()
                time.sleep(_IDLE_S)
                life["idle"] = (cpu_s(made) - before) / (time.perf_counter() - began) * 1e3
                if isinstance(made, TidelogCluster):
                    made.ask_http()
                    life["asked"] = memory_mb(made)
                self._keep("life", name, repetition, life)
        self._began = time.monotonic()

    def row(self, row: ClusterRow) -> None:
        """Measures a row on both clusters, in turn."""
        names = [name for name in self._names if name == "tidelog" or not row.tidelog_only]
        prepared: dict[str, Any] = {}
        for name in names:
            prepared[name] = row.prepare(self.clusters[name])
            for _ in range(row.warm_up if name == "kafka" else 1):
                row.measure(self.clusters[name], prepared[name], self._scale)
        for repetition in range(self._repetitions):
            for name in names:
                touch_free_memory()
                figures = row.measure(self.clusters[name], prepared[name], self._scale)
                self._keep(row.key, name, repetition, figures)

    def loaded(self) -> None:
        """Notes the memory after all loads."""
        for name, cluster in self.clusters.items():
            self._keep("loaded", name, 0, {"loaded": memory_mb(cluster)})

    def cores(self) -> None:
        """Measures how many requests one, two and three brokers serve in a second; no other cluster runs."""
        self.stop()
        for repetition in range(self._repetitions):
            figures = {}
            for figure in CORES:
                directory = self._work / f"cores-{figure.key}"
                cluster = TidelogCluster(directory, int(figure.key))
                try:
                    cluster.start()
                    figures[figure.key] = requests_per_s(cluster, self._scale)
                finally:
                    cluster.stop()
                    remove(directory)
            self._keep("cores", "tidelog", repetition, figures)

    def attempt(self, what: str, work: Callable[..., None], *arguments: Any) -> None:
        """Runs a measurement; the failure of one row does not affect others."""
        if time.monotonic() - self._began > self._budget_s:
            self.left_out.append(what)
            return
        try:
            work(*arguments)
        except Exception as error:
            self.failed.append(f"{what}: {error!r}")
            print(f"FAILED {self.failed[-1]}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Stops all clusters."""
        for name in list(self.clusters):
            self._stop(name)

    def _stop(self, name: str) -> None:
        cluster = self.clusters.pop(name, None)
        if cluster is not None:
            cluster.stop()

    def _keep(self, key: str, name: str, repetition: int, figures: dict[str, float]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._results.add(table.FRESH, key, name, repetition, figures, now)
        shown = "  ".join(f"{key}={value:.3f}" for key, value in figures.items())
        print(f"{now[11:19]} {key:10} {repetition} {name:8} {shown}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and prints the tables; returns 1 if a row failed."""
    parser = argparse.ArgumentParser(description="three brokers beside three of Apache Kafka")
    add = parser.add_argument
    add("--scale", type=float, default=0.4, help="how much of each load (default 0.4)")
    add("--repetitions", type=int, default=3, help="how often (default 3)")
    add("--only", default="", help="rows whose key begins with one of these, separated by commas")
    add("--clusters", default="kafka,tidelog", help="which to measure")
    add(
        "--budget-s",
        type=float,
        default=220,
        help="begin no row so long after the starts (default 220)",
    )
    add("--results", type=Path, default=RESULTS / "cluster.jsonl", help="the file of JSON lines")
    options = parser.parse_args(arguments)
    options.clusters = options.clusters.split(",")
    only = tuple(options.only.split(","))
    setup = {"scale": options.scale, "code": code(), "kafka": KAFKA_VERSION}
    results = table.Results(options.results, setup, keep=False)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        bench = Bench(Path(work), results, options)
        try:
            bench.start()
            for row in ROWS:
                if row.key.startswith(only):
                    bench.attempt(row.key, bench.row, row)
            bench.loaded()
            if "cores".startswith(only) and "tidelog" in options.clusters:
                bench.attempt("cores", bench.cores)
        finally:
            bench.stop()
    print(
        f"tidelog {setup['code']}, 3 brokers, beside 3 of Apache Kafka {KAFKA_VERSION}, warm; medians"
        f" of {options.repetitions}; loads at {options.scale:g} of full size; {os.cpu_count()} CPUs,"
        f" Python {platform.python_version()}, load average {load_before:.1f} before;"
        f" {time.monotonic() - began:.0f} s"
    )
    declared = [(row.key, figure) for row in ROWS for figure in row.figures]
    declared += [("loaded" if figure.key == "loaded" else "life", figure) for figure in LIFE]
    declared += [("cores", figure) for figure in CORES]
    print(f"\n{table.plain(results, declared)}\n")
    for what in bench.left_out:
        print(f"left out for want of time: {what}")
    for line in bench.failed:
        print(f"FAILED {line}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
