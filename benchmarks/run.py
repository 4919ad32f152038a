"""Measure tidelog beside Apache Kafka and print ratios: `make bench`, `make bench-full`.

Both brokers are pinned to one CPU, the client to another, and their repetitions alternate, so other
load on the machine affects both. While one is measured, the other does not run, or is stopped
(SIGSTOP). First *fresh*: every repetition starts a broker, which runs the rows of the table in
order. Then *warm*: the brokers of the last repetition continue, each row runs uncounted before it
is measured, and the factors follow. Rows are declared in rows.py. `--full` has more rows and
repetitions, and continues where an earlier run of the same code and scale stopped; its results are
JSON lines. Only loopback is used, all files are in a temporary directory, and only processes
started here are ended.
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
from brokers import (
    KAFKA_VERSION,
    REPOSITORY,
    Broker,
    Kafka,
    Tidelog,
    pause,
    remove,
    resident_mb,
    resume,
)
from compaction_rows import BACKOFF_MS, COMPACTION_ROWS
from group_rows import GROUP_ROWS
from rows import FACTORS, LIFE, LIFE_KEY, TABLE, Figure, Place, Row
from transaction_rows import TRANSACTION_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RESULTS = REPOSITORY / ".benchmarks"
_FREE_DISK = 6 << 30
# With the default a row would wait up to 15 s for the check for logs to compact.
SETTINGS = {"log.cleaner.backoff.ms": str(BACKOFF_MS)}
_SETTLE_S = 0.3
_IDLE_S = 2.0


class Bench:
    """The brokers, a scale, and the results so far."""

    def __init__(self, work: Path, results: table.Results, options: argparse.Namespace) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self.broker_cpu = cpus[0]
        self.work = work
        self.results = results
        self.scale: float = options.scale
        self.repetitions: int = options.repetitions
        self.names: list[str] = options.brokers
        self.failed: list[str] = []
        self.running: dict[str, Broker] = {}
        os.sched_setaffinity(0, set(cpus[1:]) or set(cpus))  # clients' threads inherit it

    def stop(self) -> None:
        """Stops the running brokers, and removes their files."""
        for name in list(self.running):
            self._stop(name)

    def _stop(self, name: str) -> None:
        broker = self.running.pop(name)
        with contextlib.suppress(Exception):
            resume(broker)
        broker.stop()
        remove(self._directory(name))

    def _directory(self, name: str) -> Path:
        return self.work / name

    def _start(self, name: str) -> Broker:
        """Starts a broker on a new directory, after a first start that creates its files."""
        kind = Tidelog if name == "tidelog" else Kafka
        broker = kind(self._directory(name), self.broker_cpu, SETTINGS)
        self.running[name] = broker
        broker.start()
        broker.stop()
        broker.start()
        return broker

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Stops every other broker with SIGSTOP while one is measured."""
        others = [other for key, other in self.running.items() if key != name]
        for other in others:
            pause(other)
        time.sleep(_SETTLE_S)
        try:
            yield
        finally:
            for other in others:
                resume(other)

    # -- fresh ----------------------------------------------------------------------------------

    def fresh(self, rows: Sequence[Row]) -> None:
        """Starts a broker for every repetition, and runs each row once, in order."""
        for repetition in range(self.repetitions):
            for name in self.names:
                if self.results.has(table.FRESH, LIFE_KEY, name, repetition):
                    continue
                if name in self.running:
                    self._stop(name)
                with self._alone(name):
                    self._attempt(f"fresh {name}", self._fresh_once, rows, name, repetition)

    def _fresh_once(self, rows: Sequence[Row], name: str, repetition: int) -> None:
        broker = self._start(name)
        time.sleep(_IDLE_S)
        life = {"start": broker.start_s, "idle": resident_mb(broker)}
        for row in rows:
            self._attempt(f"fresh {row.key} {name}", self._fresh_row, row, broker, repetition)
        life["loaded"] = resident_mb(broker)
        self._keep(table.FRESH, LIFE_KEY, LIFE, name, repetition, life)

    def _fresh_row(self, row: Row, broker: Broker, repetition: int) -> None:
        place = Place(broker, None, self.scale)
        place = place._replace(state=row.prepare(place))
        figures = row.measure(place)
        self._keep(table.FRESH, row.key, row.figures, broker.name, repetition, figures)
        row.clean(place)

    # -- warm -----------------------------------------------------------------------------------

    def warm(self, row: Row) -> None:
        """Measures the missing repetitions of a row, alternating between the brokers."""
        names = [name for name in self.names if not (row.tidelog_only and name != "tidelog")]
        missing = [
            (repetition, name)
            for repetition in range(self.repetitions)
            for name in names
            if not self.results.has(table.WARM, row.key, name, repetition)
        ]
        if missing:
            self._attempt(f"warm {row.key}", self._warm_row, row, missing)

    def _warm_row(self, row: Row, missing: Sequence[tuple[int, str]]) -> None:
        places: dict[str, Place] = {}
        for name in dict.fromkeys(name for _, name in missing):
            with self._alone(name):
                place = Place(self.running.get(name) or self._start(name), None, self.scale)
                places[name] = place._replace(state=row.prepare(place))
                row.measure(places[name])  # uncounted
        for repetition, name in missing:
            with self._alone(name):
                figures = row.measure(places[name])
            self._keep(table.WARM, row.key, row.figures, name, repetition, figures)
        for name, place in places.items():
            with self._alone(name):
                row.clean(place)

    # -- both -----------------------------------------------------------------------------------

    def _attempt(self, what: str, work: Callable[..., None], *arguments: Any) -> None:
        """Runs a measurement; the failure of one row does not affect others."""
        try:
            work(*arguments)
        except Exception as error:
            self.failed.append(f"{what}: {error!r}")
            print(f"FAILED {self.failed[-1]}", file=sys.stderr, flush=True)

    def _keep(
        self,
        state: str,
        key: str,
        declared: Sequence[Figure],
        name: str,
        repetition: int,
        figures: dict[str, float],
    ) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.results.add(state, key, name, repetition, figures, now)
        shown = "  ".join(
            f"{figure.key}={figures[figure.key]:.{figure.digits}f} {figure.unit}"
            for figure in declared
        )
        print(
            f"{now[11:19]} {state} {key:14} {repetition} {name:8} {shown}",
            file=sys.stderr,
            flush=True,
        )


def code() -> str:
    """Returns which code is measured: the commit, and whether the tree has changes."""
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
    add("--skip-fresh", action="store_true", help="warm brokers alone")
    add("--skip-warm", action="store_true", help="fresh brokers alone (and no factors)")
    add("--brokers", default="kafka,tidelog", help="which to measure")
    add("--budget-s", type=float, help="begin no row after this many seconds (default 400)")
    add("--results", type=Path, help="the file of JSON lines")
    options = parser.parse_args(arguments)
    full = options.full
    options.brokers = options.brokers.split(",")
    options.scale = options.scale or (1.0 if full else 0.4)
    options.repetitions = options.repetitions or (7 if full else 3)
    options.budget_s = options.budget_s or (1e9 if full else 400)
    options.results = options.results or RESULTS / ("full.jsonl" if full else "bench.jsonl")
    return options


def _chosen(options: argparse.Namespace, rows: Sequence[Row]) -> list[Row]:
    prefixes = tuple(options.only.split(",")) if options.only else ("",)
    return [
        row
        for row in rows
        if row.key.startswith(prefixes) and (options.full or options.only or not row.full_only)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and prints the tables; returns 1 if a row failed."""
    options = _options(arguments)
    setup = {"scale": options.scale, "code": code(), "kafka": KAFKA_VERSION}
    results = table.Results(options.results, setup, keep=options.full)
    first = _chosen(options, TABLE)
    more = _chosen(options, (*GROUP_ROWS, *TRANSACTION_ROWS, *COMPACTION_ROWS))
    rows = [*first, *more]
    factors = [] if options.skip_factors or options.skip_warm else _chosen(options, FACTORS)
    left_out = []
    began = time.monotonic()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        if shutil.disk_usage(work).free < _FREE_DISK:
            print("needs 6 GB of free disk in the temporary directory", file=sys.stderr)
            return 2
        bench = Bench(Path(work), results, options)
        try:
            met = rows if options.full or options.only else first  # a short run has fewer rows
            if met and not options.skip_fresh:
                bench.fresh(met)
            for row in (*(() if options.skip_warm else rows), *factors):
                if time.monotonic() - began > options.budget_s:
                    left_out.append(row.key)
                else:
                    bench.warm(row)
        finally:
            bench.stop()
    took = time.monotonic() - began
    print(
        f"tidelog {setup['code']} beside Apache Kafka {KAFKA_VERSION}; medians of"
        f" {options.repetitions}; loads at {options.scale:g} of full size;"
        f" {os.cpu_count()} CPUs, Python {platform.python_version()},"
        f" load average {load_before:.1f} before; {took:.0f} s"
    )
    print(table.report(results, rows, LIFE, FACTORS[0], factors))
    for key in left_out:
        print(f"left out for want of time: {key}")
    for line in bench.failed:
        print(f"FAILED {line}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
