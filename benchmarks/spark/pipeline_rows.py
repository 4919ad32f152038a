"""The pipeline beside stock Spark, all from one topic of Apache Kafka 3.9.1: `make bench-pipeline`.

    .venv/bin/python benchmarks/spark/pipeline_rows.py --records 1000000 --repetitions 3

One Spark session (local[2]) runs both, in turns, so other load on the machine affects both. The
start of Spark is not counted, and the first turn is dropped.

    read     whole rows counted, measured and their times compared, through Spark's own Kafka source as
             its users tune it, and through `timelog`, over the wire and from the log directory
    audit    the job beside a query of Spark SQL that computes less, and must have the same sums; as the
             command runs it by default (small audits in this process), and once on Spark at any size
    replay   `mirror` to a tidelog broker, beside Spark's source and sink, which drops the times. Per
             core are the CPU seconds of the tasks; for Spark those of everything it does

Rates are records per second of wall-clock time, and per second of CPU of all of Spark: driver, JVM,
workers (not the brokers). Ratios are tidelog / Spark, turn by turn, then their median. `--full`
does more, and continues where an earlier run of the same code and size stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import pipeline_audit as audits
import table
from brokers import KAFKA_VERSION, REPOSITORY
from pipeline_source import QUERY, TUNED, cpu_seconds
from rows import Figure, Goal
from run import RESULTS, code

from tests.oracle.apache_kafka import ApacheKafka, available
from tests.pipeline import spark_kafka
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.options import AUTO, DEFAULT_MASTER
from tidelog.pipeline.session import TaskSession
from tidelog.process import BrokerProcess
from tidelog.spark import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPARK, OURS = "spark", "tidelog"
CLOCK, CPU, CORE = "clock", "cpu", "core"
_WARM_UP = -1  # the turn that is dropped


def _figures(title: str, goal: Goal | None = None) -> tuple[Figure, ...]:
    return (
        Figure(CLOCK, f"{title}, by the clock", "k/s", 0, goal),
        Figure(CPU, f"{title}, for each second of CPU", "k/s", 0),
    )


_READ = Goal(">= 1 x", ratio_min=1)
_AUDIT = Goal(">= 10 x", ratio_min=10)
_REPLAY = Goal(">= 200 k/s", at_least=200)
DECLARED = {
    "read-brokers": _figures("read (record level), over the wire", _READ),
    "read-logs": _figures("read (record level), log directory", _READ),
    "audit-brokers": _figures("audit, over the wire", _AUDIT),
    "audit-logs": _figures("audit, log directory, without retention", _AUDIT),
    "audit-whole": _figures("audit, log directory, retention tried too", _AUDIT),
    "audit-on-spark": _figures("audit, over the wire, on Spark whatever the size", _AUDIT),
    "replay": (*_figures("replay"), Figure(CORE, "replay, for each core", "k/s", 0, _REPLAY)),
}
# A Spark figure without variants is measured once, and shown beside each variant of ours.
_BASES = {"read": "read-", "audit": "audit-", "replay": "replay"}


class Bench(NamedTuple):
    """The brokers' addresses and directories, and the Spark session."""

    session: TaskSession
    source: str
    log_dir: Path
    target: str
    out: Path
    count: int

    def measured(self, work: Callable[[], float]) -> dict[str, float]:
        """Returns one turn's rates in thousands of records; `work` returns CPU seconds or 0."""
        jvm = self.session.spark._jvm.java.lang.ProcessHandle.current().pid()
        own_s, below_s, began_s = time.process_time(), cpu_seconds(jvm), time.monotonic()
        tasks_s = work()
        took_s = time.monotonic() - began_s
        used_s = time.process_time() - own_s + cpu_seconds(jvm) - below_s
        spent = {CLOCK: took_s, CPU: used_s, CORE: tasks_s}
        # The seconds of a worker that ends before its parent counts it are lost.
        return {key: self.count / value / 1e3 for key, value in spent.items() if value > 0}

    # -- read -----------------------------------------------------------------------------------

    def _kafka(self) -> Any:
        source = self.session.spark.read.format("kafka").options(**TUNED)
        source = source.option("kafka.bootstrap.servers", self.source)
        return source.option("subscribe", audits.TOPIC).option("includeHeaders", "true").load()

    def _counted(self, frame: Any) -> float:
        """Reads all of it, and exit if records are missing."""
        (found,) = frame.selectExpr(*QUERY).collect()
        if (found[0], found[1]) != (self.count, self.count * audits.VALUE):
            raise SystemExit(f"{found} was read, of {self.count} records")
        return 0.0

    def read_spark(self) -> float:
        """Reads through Spark's own source."""
        return self._counted(self._kafka())

    def read_brokers(self) -> float:
        """Reads through `timelog`, over the wire."""
        source = self.session.spark.read.format("timelog").option("brokers", self.source)
        source = source.option("maxPartitionOffsets", str(max(self.count // 8, 1)))
        return self._counted(source.option("topics", audits.TOPIC).load())

    def read_logs(self) -> float:
        """Reads through `timelog`, from the directory."""
        source = self.session.spark.read.format("timelog").option("upto", "log-end")
        source = source.option("maxPartitionBytes", "32m").option("topics", audits.TOPIC)
        return self._counted(source.load(str(self.log_dir)))

    # -- audit ----------------------------------------------------------------------------------

    def audit_spark(self, rows: list[Any]) -> float:
        """Runs the query, and stores its rows in `rows`."""
        rows[:] = audits.asked(self.session, self.source)
        return 0.0

    def audit(self, rows: list[Any], name: str, master: str, *where: str) -> float:
        """Runs the job; exit if its result and that of the query differ."""
        session = TaskSession("bench", master=master, spark=self.session.spark)
        report = audits.audited(session, list(where), self.out, name)
        audits.agree(rows, report)
        return 0.0

    # -- replay ---------------------------------------------------------------------------------

    def replay_spark(self, topic: str) -> float:
        """Copies from Spark's source to Spark's sink."""
        with Client(self.target) as client:
            client.create_topic(topic, audits.PARTITIONS, {"retention.ms": "-1"})
        frame = self._kafka().select("key", "value", "partition", "headers")
        sink = frame.write.format("kafka").option("kafka.bootstrap.servers", self.target)
        sink.option("topic", topic).option("includeHeaders", "true").save()
        self._arrived(topic)
        return 0.0

    def replay(self, topic: str) -> float:
        """Runs `mirror`, with times; returns the CPU seconds of its tasks.

        By position: markers of transactions would count as records that arrived.
        """
        given = ["mirror", "--brokers", self.source, "--to-brokers", self.target]
        given += ["--topics", audits.TOPIC, "--rename", f"{audits.TOPIC}={topic}", "--create"]
        given += ["--out", str(self.out), "--run", topic, "--report", "json"]
        given += ["--delivery", "position"]
        options = cli.parser_of("mirror").parse_args(given)
        with contextlib.redirect_stdout(Path(os.devnull).open("w")):
            status = cli.module_of("mirror").run(options, self.session)
        if status:
            raise SystemExit(f"mirror ended with {status}")
        self._arrived(topic)
        report = json.loads((self.out / topic / "report.json").read_text())
        return float(report["worker_cpu_seconds"])

    def _arrived(self, topic: str) -> None:
        with Client(self.target) as client:
            ends = sum(client.end_offset(topic, n) for n in range(audits.PARTITIONS))
            if ends != self.count:
                raise SystemExit(f"{ends} records arrived, of {self.count}")

    # -- all ------------------------------------------------------------------------------------

    def turn(self, number: int) -> Iterator[tuple[str, str, dict[str, float]]]:
        """Runs each once, alternating; yields (row or group of rows, program, figures)."""
        rows: list[Any] = []
        logs = ("--logs", str(self.log_dir), "--upto", "log-end")
        name = f"n{number + 1}"
        yield "read", SPARK, self.measured(self.read_spark)
        yield "read-brokers", OURS, self.measured(self.read_brokers)
        yield "read-logs", OURS, self.measured(self.read_logs)
        yield "audit", SPARK, self.measured(lambda: self.audit_spark(rows))
        for row, where in (
            ("audit-brokers", (AUTO, "--brokers", self.source)),
            ("audit-logs", (AUTO, *logs, "--no-retention")),
            ("audit-whole", (AUTO, *logs)),
            ("audit-on-spark", (DEFAULT_MASTER, "--brokers", self.source)),
        ):
            run = f"{row}-{name}"
            yield row, OURS, self.measured(lambda: self.audit(rows, run, *where))
        yield "replay", SPARK, self.measured(lambda: self.replay_spark(f"spark-{name}"))
        yield "replay", OURS, self.measured(lambda: self.replay(f"tidelog-{name}"))


def measure(bench: Bench, results: table.Results, turns: list[int]) -> None:
    """Runs the missing turns, after one that is dropped."""
    for number in (_WARM_UP, *turns):
        for row, who, figures in bench.turn(number):
            shown = "  ".join(f"{key} {value:,.0f} k/s" for key, value in figures.items())
            counted = "" if number >= 0 else " (not counted)"
            print(f"turn {number} {row:14} {who:8} {shown}{counted}", file=sys.stderr, flush=True)
            if number < 0:
                continue
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            begins = _BASES.get(row, row) if who == SPARK else row
            for key in DECLARED:
                if key.startswith(begins) if who == SPARK else key == row:
                    results.add(table.FRESH, key, who, number, figures, now)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="more of all, resumable")
    parser.add_argument("--records", type=int, help="default 1000000; with --full 4000000")
    parser.add_argument("--repetitions", type=int, help="default 3; with --full 7")
    parser.add_argument("--results", type=Path, help="the file of JSON lines")
    options = parser.parse_args()
    full = options.full
    options.records = options.records or (4_000_000 if full else 1_000_000)
    options.records -= options.records % (audits.BATCH * audits.PARTITIONS)
    options.repetitions = options.repetitions or (7 if full else 3)
    name = "pipeline-full.jsonl" if full else "pipeline.jsonl"
    options.results = options.results or RESULTS / name
    return options


def main() -> int:
    """Runs and prints the table; returns 3 if a requirement is not available."""
    options = _options()
    for usable in (available(KAFKA_VERSION), spark_kafka.fetch()):
        if not usable:
            print(usable.reason, file=sys.stderr)
            return 3
    setup = {"records": options.records, "code": code(), "kafka": KAFKA_VERSION}
    results = table.Results(options.results, setup, keep=options.full)
    turns = [
        number
        for number in range(options.repetitions)
        if not all(
            results.has(table.FRESH, row, who, number) for row in DECLARED for who in (SPARK, OURS)
        )
    ]
    os.chdir(REPOSITORY)
    jars = ",".join(str(jar) for jar in spark_kafka.jars())
    began_s, load_before = time.monotonic(), os.getloadavg()[0]
    if turns:
        with (
            tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work,
            ApacheKafka(KAFKA_VERSION, Path(work) / "kafka") as kafka,
            BrokerProcess(Path(work) / "target") as target,
            TaskSession("bench", master="local[2]", conf=[("spark.jars", jars)]) as session,
        ):
            count = audits.load(kafka.bootstrap, options.records)
            register(session.spark)
            place = (kafka.bootstrap, kafka.log_dir, target.bootstrap, Path(work) / "runs", count)
            measure(Bench(session, *place), results, turns)
    print(
        f"tidelog {setup['code']} beside Spark on local[2], both from Apache Kafka {KAFKA_VERSION};"
        f" medians of {options.repetitions}; {options.records:,} records of {audits.VALUE} bytes in"
        f" {audits.PARTITIONS} partitions; {os.cpu_count()} CPUs, Python"
        f" {platform.python_version()}, load average {load_before:.1f} before,"
        f" {os.getloadavg()[0]:.1f} after; {time.monotonic() - began_s:.0f} s\n"
    )
    declared = [(row, figure) for row, figures in DECLARED.items() for figure in figures]
    print(table.plain(results, declared, base=SPARK, title="Spark"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
