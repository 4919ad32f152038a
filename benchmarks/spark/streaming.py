"""A stream through our source and our sink, killed and compared record by record: `make bench-streaming`.

    .venv/bin/python benchmarks/spark/streaming.py --records 10000000 --seed 1

One tidelog broker has the topic and its copies; records have 100 bytes of value, and times that are
out of order, before 1970 or missing. Three programs of Spark (local[2], the same micro-batches)
stream it, one after the other:

    killed   `timelog` to `timelog`; twice the driver and twice a worker of Python are killed by id,
             when the copy has as many records as the seed says, and the driver is started again
    timelog  the same, and nothing is killed
    kafka    Spark's own Kafka source, tuned, and sink, which gives every record the present time

Each copy is compared with the topic: offset, time, key, value and headers of every record. Rates are
records per second by the clock, and per second of CPU of driver, JVM and workers (not the broker),
from the query's start to its end; the start of Spark is not counted, but for what was killed.
The exit status is 1 if a record of `timelog` differs, 3 if a requirement is not available.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import streaming_copies as copies
from pipeline_source import cpu_seconds

from tests.pipeline import spark_kafka
from tidelog.client import Client
from tidelog.process import BrokerProcess

PROGRAM = Path(__file__).with_name("streaming_program.py")
TOPIC = "readings"
KILLED, OURS, SPARK = "killed", "timelog", "kafka"
KILLS = ("driver", "driver", "worker", "worker")
_LOOK_S = 0.1
_PATIENCE_S = 3600
_END_S = 60
_STARTS = 20


class Rate(NamedTuple):
    """How long a stream took, and the CPU time of its processes (None: some were killed)."""

    clock_s: float
    cpu_s: float | None


class Kill(NamedTuple):
    """What to kill as soon as the copy has so many records."""

    at: int
    what: str


class Program:
    """A running program of Spark: the driver, its JVM and its workers."""

    def __init__(self, kind: str, given: list[str], log: Path) -> None:
        environ = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), kind, *given],
                env={**environ, "PYSPARK_PYTHON": sys.executable},
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def told(self, within_s: float) -> str | None:
        """Returns the next line, None if there is none in time, and an empty text at the end."""
        ready, _, _ = select.select([self.process.stdout], [], [], within_s)
        return self.process.stdout.readline().decode().strip() if ready else None

    def family(self) -> dict[int, tuple[int, bytes]]:
        """Returns the parent and the command of each process below the driver, by its id."""
        every = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                every[int(path.name)] = parent, (path / "cmdline").read_bytes()
        below, found = {self.process.pid}, {}
        while below:
            below = {pid for pid, (parent, _) in every.items() if parent in below}
            found |= {pid: every[pid] for pid in below}
        return found

    def kill_driver(self) -> None:
        """Kills the program and its JVM; the workers end with them."""
        pids = [self.process.pid]
        pids += [pid for pid, (_, command) in self.family().items() if b"java" in command]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.close()

    def kill_worker(self, chance: random.Random) -> bool:
        """Kills a worker of Python, if there is one now."""
        family = self.family()
        python = {pid for pid, (_, command) in family.items() if b"pyspark" in command}
        python -= {pid for pid in python if b"java" in family[pid][1]}
        # The daemon's children are workers; the daemon itself is a child of the JVM.
        workers = sorted(pid for pid in python if family[pid][0] in python)
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
            return True
        return False

    def close(self) -> None:
        """Lets the program end, and waits for it; one that is still busy is killed."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Bench(NamedTuple):
    """The broker, a directory for checkpoints, and how much is streamed."""

    broker: BrokerProcess
    work: Path
    count: int
    micro_batches: int
    seed: int

    def start(self, kind: str, copy: str) -> Program:
        """Starts a program that continues `copy`."""
        given = [self.broker.bootstrap, TOPIC, copy, str(self.work / f"checkpoint-{copy}")]
        given.append(str(max(self.count // self.micro_batches, 1)))
        if kind == SPARK:
            given.append(",".join(map(str, spark_kafka.jars())))
        return Program(kind, given, self.work / f"{copy}.log")

    def create(self, copy: str) -> None:
        """Creates the topic of a copy."""
        with Client(self.broker.bootstrap) as client:
            client.create_topic(copy, copies.PARTITIONS, {"retention.ms": "-1"})

    def failed(self, copy: str) -> SystemExit:
        """Returns the exit of a program that failed, with its last words."""
        words = (self.work / f"{copy}.log").read_text(errors="replace")[-3000:]
        return SystemExit(f"{words}\n{copy}: the program failed")

    def unkilled(self, kind: str) -> Rate:
        """Streams once, undisturbed."""
        copy = f"copy-{kind}"
        self.create(copy)
        program = self.start(kind, copy)
        try:
            if program.told(_PATIENCE_S) != "begun":
                raise self.failed(copy)
            began_s, used_s = time.monotonic(), cpu_seconds(program.process.pid)
            if program.told(_PATIENCE_S) != "done":
                raise self.failed(copy)
            clock_s = time.monotonic() - began_s
            return Rate(clock_s, cpu_seconds(program.process.pid) - used_s)
        finally:
            program.close()

    def plan(self, chance: random.Random) -> list[Kill]:
        """Returns the kills in their order."""
        whats = chance.sample(KILLS, len(KILLS))
        moments = sorted(chance.sample(range(2, 90), len(KILLS)))
        return [Kill(self.count * at // 100, what) for at, what in zip(moments, whats, strict=True)]

    def killed(self) -> Rate:
        """Streams while driver and workers are killed; exits if it ends before all of the kills."""
        copy = f"copy-{KILLED}"
        self.create(copy)
        chance = random.Random(self.seed)
        kills, began_s = self.plan(chance), time.monotonic()
        with Client(self.broker.bootstrap) as client:
            for _ in range(_STARTS):
                program = self.start(OURS, copy)
                try:
                    if self._watched(program, client, kills, chance):
                        break
                finally:
                    program.close()
            else:
                raise self.failed(copy)
        if kills:
            raise SystemExit(f"the stream ended before {len(kills)} of {len(KILLS)} kills")
        return Rate(time.monotonic() - began_s, None)

    def _watched(
        self, program: Program, client: Client, kills: list[Kill], chance: random.Random
    ) -> bool:
        """Kills when it is time to; returns whether the stream is done, or False if it died."""
        copy = f"copy-{KILLED}"
        while True:
            line = program.told(_LOOK_S)
            if line == "done":
                return True
            if line == "":
                print("  the driver ended by itself", file=sys.stderr, flush=True)
                return False
            written = sum(client.end_offset(copy, one) for one in range(copies.PARTITIONS))
            if not kills or written < kills[0].at:
                continue
            is_driver = kills[0].what == "driver"
            if not is_driver and not program.kill_worker(chance):
                continue
            kill = kills.pop(0)
            text = f"  killed: a {kill.what} at {written:,} of {self.count:,} records"
            print(text, file=sys.stderr, flush=True)
            if is_driver:
                program.kill_driver()
                return False


def _shown(count: int, rate: Rate) -> str:
    text = f"{count / rate.clock_s / 1e3:6.0f} k/s by the clock"
    return text + (f", {count / rate.cpu_s / 1e3:6.0f} k/s of CPU" if rate.cpu_s else "")


def measure(bench: Bench, names: list[str]) -> bool:
    """Streams and compares; returns whether our copies are equal to the topic."""
    rates, is_equal = {}, True
    for name in names:
        rates[name] = bench.killed() if name == KILLED else bench.unkilled(name)
        found = copies.compare(bench.broker.log_dir, TOPIC, f"copy-{name}")
        print(f"{name:8} {_shown(bench.count, rates[name])}; {found.records:,} records:")
        print(
            f"{'':8} {found.lost} lost, {found.doubled} doubled, {found.reordered} reordered,"
            f" {found.wrong_times} wrong times; {found.differing} differ",
            flush=True,
        )
        if name != SPARK and (found.differing or found.records != bench.count):
            is_equal = False
    if OURS in rates and SPARK in rates:
        ours, own = rates[OURS], rates[SPARK]
        print(f"timelog / Spark: {own.clock_s / ours.clock_s:.2f} x by the clock,", end=" ")
        print(f"{own.cpu_s / ours.cpu_s:.2f} x for each second of CPU")
    return is_equal


def main() -> int:
    """Runs what is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--micro-batches", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    names = [KILLED, OURS, SPARK]
    parser.add_argument("--only", choices=names, action="append", help="one of the three")
    options = parser.parse_args()
    usable = spark_kafka.fetch()
    if not usable:
        print(usable.reason, file=sys.stderr)
        return 3
    step = copies.PARTITIONS * copies.PER_BATCH
    count = max(options.records // step, 1) * step
    began_s, load = time.monotonic(), os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work,
        BrokerProcess(Path(work) / "broker") as broker,
    ):
        copies.fill(broker.bootstrap, TOPIC, count, options.seed)
        print(f"{time.monotonic() - began_s:.0f} s to fill the topic", file=sys.stderr)
        bench = Bench(broker, Path(work), count, options.micro_batches, options.seed)
        is_equal = measure(bench, options.only or names)
    print(
        f"{count:,} records of {copies.VALUE} bytes in {copies.PARTITIONS} partitions,"
        f" {options.micro_batches} micro-batches, seed {options.seed}; {os.cpu_count()} CPUs, Python"
        f" {platform.python_version()}, load average {load:.1f} before,"
        f" {os.getloadavg()[0]:.1f} after; {time.monotonic() - began_s:.0f} s"
    )
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
