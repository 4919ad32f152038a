"""Measure tidelog beside Apache Kafka and print ratios: `make bench`, `make bench-full`.

Both brokers run at once, pinned to the same CPU, the client on another; while one is measured the other
is stopped (SIGSTOP), and the repetitions alternate, so what else happens on the machine hits both. Rows
are declared in rows.py. `--full` does more rows and repetitions and goes on where an earlier run of the
same code and scale stopped; its results are JSON lines. Nothing but loopback is used, everything written
lies in a temporary directory, and only processes started here are ended.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import table
from brokers import KAFKA_VERSION, REPOSITORY, Broker, Kafka, Tidelog, pause, remove, resume
from rows import FACTORS, TABLE, Place, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = REPOSITORY / ".benchmarks"
_FREE_DISK = 6 << 30
_SETTLE_S = 0.3


class Bench:
    """Two running brokers, a scale, and the results so far."""

    def __init__(self, work: Path, results: table.Results, options: argparse.Namespace) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self.broker_cpu = cpus[0]
        self.work = work
        self.results = results
        self.scale: float = options.scale
        self.repetitions: int = options.repetitions
        self.names: list[str] = options.brokers
        self.running: dict[str, Broker] = {}
        os.sched_setaffinity(0, set(cpus[1:]) or set(cpus))  # clients' threads inherit it

    def make(self, name: str, directory: str) -> Broker:
        """A broker that has not been started yet."""
        kind = Tidelog if name == "tidelog" else Kafka
        return kind(self.work / f"{directory}-{name}", self.broker_cpu)

    def stop(self) -> None:
        """Stop the brokers that run."""
        for broker in self.running.values():
            with contextlib.suppress(Exception):
                resume(broker)
            broker.stop()
        self.running.clear()

    @contextlib.contextmanager
    def alone(self, name: str) -> Any:
        """Stop every other broker in its tracks while one is measured."""
        others = [other for key, other in self.running.items() if key != name]
        for other in others:
            pause(other)
        if name in self.running:
            resume(self.running[name])
            time.sleep(_SETTLE_S)
        try:
            yield
        finally:
            for other in others:
                resume(other)

    def row(self, row: Row) -> None:
        """Measure what is missing of a row, alternating between the brokers."""
        names = [name for name in self.names if not (row.tidelog_only and name != "tidelog")]
        missing = [
            (repetition, name)
            for repetition in range(self.repetitions)
            for name in names
            if not self.results.has(row, name, repetition)
        ]
        if not missing:
            return
        if row.own_brokers:
            for repetition, name in missing:
                self._on_fresh_broker(row, repetition, name)
            return
        for name in self.names:
            if name not in self.running:
                with self.alone(name):
                    broker = self.make(name, "main")
                    self.running[name] = broker
                    broker.start()
        places = {}
        for name in {name for _, name in missing}:
            with self.alone(name):
                place = Place(self.running[name], None, self.scale)
                places[name] = place._replace(state=row.prepare(place))
        for repetition, name in missing:
            with self.alone(name):
                self._keep(row, name, repetition, row.measure(places[name]))
        for name, place in places.items():
            with self.alone(name):
                row.clean(place)

    def _on_fresh_broker(self, row: Row, repetition: int, name: str) -> None:
        """A row about a broker's life: started on a directory that has been started on before."""
        broker = self.make(name, "life")
        with self.alone(""):
            try:
                broker.start()
                broker.stop()
                broker.start()
                self._keep(row, name, repetition, row.measure(Place(broker, None, self.scale)))
            finally:
                broker.stop()
                remove(self.work / f"life-{name}")

    def _keep(self, row: Row, name: str, repetition: int, figures: dict[str, float]) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.results.add(row, name, repetition, figures, now)
        shown = "  ".join(
            f"{figure.key}={figures[figure.key]:.{figure.digits}f} {figure.unit}"
            for figure in row.figures
        )
        print(
            f"{now[11:19]} {row.key:14} {repetition} {name:8} {shown}", file=sys.stderr, flush=True
        )


def _code() -> str:
    """Which code is measured: the commit, and whether the tree was changed since."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run(
        [git, "describe", "--always", "--dirty"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="tidelog beside Apache Kafka, as ratios")
    add = parser.add_argument
    add("--full", action="store_true", help="every factor, more repetitions, resumable")
    add("--scale", type=float, help="how much of each load (default 0.4; with --full 1)")
    add("--repetitions", type=int, help="how often (default 3; with --full 7)")
    add("--only", default="", help="rows whose key begins with one of these, separated by commas")
    add("--skip-factors", action="store_true", help="the table alone")
    add("--brokers", default="kafka,tidelog", help="which to measure")
    add("--budget-s", type=float, help="begin no row after this many seconds (default 440)")
    add("--results", type=Path, help="the file of JSON lines")
    options = parser.parse_args(arguments)
    full = options.full
    options.brokers = options.brokers.split(",")
    options.scale = options.scale or (1.0 if full else 0.4)
    options.repetitions = options.repetitions or (7 if full else 3)
    options.budget_s = options.budget_s or (1e9 if full else 440)
    options.results = options.results or RESULTS / ("full.jsonl" if full else "bench.jsonl")
    return options


def _chosen(options: argparse.Namespace) -> list[Row]:
    every = [*TABLE, *(() if options.skip_factors else FACTORS)]
    prefixes = tuple(options.only.split(",")) if options.only else ("",)
    return [
        row
        for row in every
        if row.key.startswith(prefixes) and (options.full or options.only or not row.full_only)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the tables; 1 if a row failed."""
    options = _options(arguments)
    setup = {"scale": options.scale, "code": _code(), "kafka": KAFKA_VERSION}
    results = table.Results(options.results, setup, keep=options.full)
    chosen = _chosen(options)
    failed = []
    left_out = []
    began = time.monotonic()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        if shutil.disk_usage(work).free < _FREE_DISK:
            print("needs 6 GB of free disk in the temporary directory", file=sys.stderr)
            return 2
        bench = Bench(Path(work), results, options)
        try:
            for row in chosen:
                if time.monotonic() - began > options.budget_s:
                    left_out.append(row.key)
                    continue
                try:
                    bench.row(row)
                except Exception as error:  # one row's failure is its own
                    failed.append(f"{row.key}: {error!r}")
                    print(f"FAILED {failed[-1]}", file=sys.stderr, flush=True)
        finally:
            bench.stop()
    took = time.monotonic() - began
    print(
        f"tidelog {setup['code']} beside Apache Kafka {KAFKA_VERSION}; medians of"
        f" {options.repetitions}; loads at {options.scale:g} of full size;"
        f" {os.cpu_count()} CPUs, Python {platform.python_version()},"
        f" load average {load_before:.1f} before; {took:.0f} s\n"
    )
    print(table.compare(results, [row for row in TABLE if row in chosen]))
    shown = [row for row in FACTORS if row in chosen]
    if shown:
        print("\n" + table.factors(results, FACTORS[0], shown))
    for key in left_out:
        print(f"left out for want of time: {key}")
    for line in failed:
        print(f"FAILED {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
