"""Measure the logs themselves beside Apache Kafka: `make bench-logs`, `--small` in `make bench`.

Rows are declared in log_rows.py. Repetitions alternate between the brokers; each starts its own
broker, pinned to one CPU, with the client on another. The ratio is taken repetition by repetition.
Results are kept as JSON lines: without `--small` a run continues where an earlier one of the same
code and sizes stopped. Only loopback is used, all files are in a temporary directory, and only
processes started here are ended.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import table
from brokers import KAFKA_VERSION, remove
from log_rows import FULL, ROWS, SMALL, LogRow, Scale, Site
from run import RESULTS, code

if TYPE_CHECKING:
    from collections.abc import Sequence

_FREE_DISK = 8 << 30


class Logs:
    """Measures rows, repetition by repetition, and adds them to the results."""

    def __init__(self, work: Path, results: table.Results, scale: Scale, names: list[str]) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self.cpu = cpus[0]
        self.work = work
        self.results = results
        self.scale = scale
        self.names = names
        self.failed: list[str] = []
        os.sched_setaffinity(0, set(cpus[1:]) or set(cpus))

    def measure(self, row: LogRow, repetitions: int) -> None:
        """Measures the missing repetitions of a row, alternating between the brokers."""
        missing = [
            (repetition, name)
            for repetition in range(repetitions)
            for name in self.names
            if not self.results.has(table.FRESH, row.key, name, repetition)
        ]
        if not missing:
            return
        place = self.work / f"forged-{row.key}"
        forged = row.forge(place, self.scale) if row.forge else None
        for repetition, name in missing:
            try:
                self._once(row, name, repetition, forged)
            except Exception as error:  # the failure of one row does not affect others
                self.failed.append(f"{row.key} {name}: {error!r}")
                print(f"FAILED {self.failed[-1]}", file=sys.stderr, flush=True)
        remove(place)

    def _once(self, row: LogRow, name: str, repetition: int, forged: Path | None) -> None:
        site = Site(name, self.cpu, self.work / name, forged, self.scale)
        began = time.monotonic()
        try:
            figures = row.measure(site)
        finally:
            remove(site.directory)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.results.add(table.FRESH, row.key, name, repetition, figures, now)
        shown = "  ".join(f"{key}={value:.4g}" for key, value in figures.items())
        took = time.monotonic() - began
        print(
            f"{now[11:19]} {row.key:10} {repetition} {name:8} {took:4.0f} s  {shown}",
            file=sys.stderr,
            flush=True,
        )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="tidelog's logs beside Apache Kafka's")
    add = parser.add_argument
    add("--small", action="store_true", help="small logs, for a run of about a minute")
    add("--only", default="", help="rows whose key begins with one of these, separated by commas")
    add("--brokers", default="kafka,tidelog", help="which to measure")
    add("--repetitions", type=int, help="how often (default 3; with --small 1)")
    add("--lookup-records", type=int, help=f"records to look up in (default {FULL[0]:,})")
    add("--partitions", type=int, help=f"how many partitions (default {FULL.partitions:,})")
    add("--kafka-partitions", type=int, help=f"the same for Kafka ({FULL.kafka_partitions:,})")
    add("--results", type=Path, help="the file of JSON lines")
    options = parser.parse_args(arguments)
    name = "logs-small.jsonl" if options.small else "logs.jsonl"
    options.results = options.results or RESULTS / name
    options.repetitions = options.repetitions or (1 if options.small else 3)
    return options


def _scale(options: argparse.Namespace) -> Scale:
    scale = SMALL if options.small else FULL
    given = {
        name: getattr(options, name)
        for name in ("lookup_records", "partitions", "kafka_partitions")
        if getattr(options, name)
    }
    return scale._replace(**given)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and prints the table; returns 1 if a row failed."""
    options = _options(arguments)
    scale = _scale(options)
    setup = {"scale": scale._asdict(), "code": code(), "kafka": KAFKA_VERSION}
    results = table.Results(options.results, setup, keep=not options.small)
    prefixes = tuple(options.only.split(",")) if options.only else ("",)
    rows = [row for row in ROWS if row.key.startswith(prefixes)]
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        if shutil.disk_usage(work).free < _FREE_DISK:
            print("needs 8 GB of free disk in the temporary directory", file=sys.stderr)
            return 2
        logs = Logs(Path(work), results, scale, options.brokers.split(","))
        for row in rows:
            logs.measure(row, options.repetitions)
    print(
        f"tidelog {setup['code']} beside Apache Kafka {KAFKA_VERSION}; medians of"
        f" {options.repetitions}; {scale.lookup_records:,} records to look up in,"
        f" {scale.partitions:,} partitions (Kafka {scale.kafka_partitions:,});"
        f" {os.cpu_count()} CPUs, Python {platform.python_version()},"
        f" load average {load_before:.1f} before; {time.monotonic() - began:.0f} s\n"
    )
    print(table.plain(results, [(row.key, figure) for row in rows for figure in row.figures]))
    for line in logs.failed:
        print(f"FAILED {line}")
    return 1 if logs.failed else 0


if __name__ == "__main__":
    sys.exit(main())
