"""Rows of `neighbour.py` against tidelog and Apache Kafka, one after the other, with the same clients.

The table has what a neighbour waits for its answers in ms, and the most memory that the process of the
broker took. Kafka runs with the heap of its own start script, 1 GB, so most of its memory is Java's own.
Both brokers run on one CPU, and each row starts its own.

    python benchmarks/hostile/beside_kafka.py                  the rows that Kafka serves in seconds
    python benchmarks/hostile/beside_kafka.py tags flood-500   some of them
    python benchmarks/hostile/beside_kafka.py --only kafka tags
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

from brokers import Kafka, Tidelog
from neighbour import ROWS, attack_with, neighbour, peak_mb
from printing import add_json, print_each

if TYPE_CHECKING:
    from brokers import Broker

_PAUSE_S = 0.5
_BROKERS = {"tidelog": Tidelog, "kafka": Kafka}
# Without those that make thousands of topics: each partition has two files of 10 MB in Kafka.
_COMPARED = (
    "quiet",
    "tags",
    "elements",
    "allowed",
    "describe",
    "flood-20",
    "flood-100",
    "flood-500",
)


class Beside(NamedTuple):
    """What one row has shown on one broker. Times are in ms; NaN where nobody was served."""

    row: str
    broker: str
    p50_ms: float
    p99_ms: float
    longest_ms: float
    peak_mb: float
    heard: str


def measure(row: str, name: str, clients: int) -> Beside:
    """Starts a broker, lets the hostile clients of a row loose on it, and stops it."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"max.connections": "2000"}
        broker: Broker = _BROKERS[name](Path(directory), cpu=0, settings=settings)
        broker.start()
        try:
            with neighbour(broker.port) as waits:
                time.sleep(_PAUSE_S)  # some waits before it, and some after it
                heard = attack_with(ROWS[row], broker.port, clients)
                time.sleep(_PAUSE_S)
            most_mb = peak_mb(broker.pid)
        finally:
            broker.stop()
    times = [waits[len(waits) * part // 100] for part in (50, 99)] + waits[-1:] if waits else []
    p50_ms, p99_ms, longest_ms = times or [float("nan")] * 3
    shown = row if clients == 1 else f"{row} x {clients}"
    return Beside(shown, name, p50_ms, p99_ms, longest_ms, most_mb, heard)


def main() -> None:
    """Measures the rows that are asked for, and prints a line for each broker."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--only", choices=_BROKERS, help="measure one broker")
    parser.add_argument("--clients", type=int, default=1, help="how many do the same at once")
    add_json(parser)
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    found = (
        measure(row, name, options.clients)
        for row in options.rows or _COMPARED
        for name in ([options.only] if options.only else _BROKERS)
    )
    head = f"{'row':14} {'broker':8} {'p50':>8} {'p99':>8} {'longest':>9} {'MB':>6}  heard"
    print_each(found, head, _line, as_json=options.json)


def _line(seen: Beside) -> str:
    return (
        f"{seen.row:14} {seen.broker:8} {seen.p50_ms:8.1f} {seen.p99_ms:8.1f} "
        f"{seen.longest_ms:9.1f} {seen.peak_mb:6.0f}  {seen.heard}"
    )


if __name__ == "__main__":
    main()
