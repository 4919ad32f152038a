"""The audit beside a Spark SQL query that computes the same from a topic of Apache Kafka 3.9.1.

    .venv/bin/python benchmarks/spark/pipeline_audit.py --records 2000000

One Spark session (local[2]) runs both, in turns: the query through Spark's own Kafka source, tuned
as its users tune it, and the audit by fetching from the broker and from its log directory. The
query returns a row for each partition and hour of event time: records, the largest and 50, 99 and
99.9 % of lateness against the running maximum, out of order, future, negative, missing, wrong
units, least and largest time. The audit returns that and more. The start of Spark is not counted;
the first turn is dropped. Rates are records per second of wall time, medians; `alone` is the audit
in one process without Spark, by its CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

from brokers import KAFKA_VERSION, REPOSITORY

from tests.oracle.apache_kafka import ApacheKafka, available
from tests.pipeline import spark_kafka
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.session import TaskSession
from tidelog.protocol.records.batch import Record, build

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "audited"
NOW_MS = 1_795_000_000_000
PARTITIONS, BATCH, VALUE = 4, 500, 100
HOUR_MS, DAY_MS = 3_600_000, 86_400_000

QUERY = f"""
with times as (
  select partition, offset, unix_millis(timestamp) as at, length(key) + length(value) as size from records
), judged as (
  select *, at = -1 as missing, at < -1 as negative, at > {NOW_MS} + 60000 as future,
    abs(at - {NOW_MS}) > 315576000000 and (
      abs(at * 1000 - {NOW_MS}) <= 315576000000 or abs(at / 1000 - {NOW_MS}) <= 315576000000
      or abs(at / 1000000 - {NOW_MS}) <= 315576000000) as suspect
  from times
), late as (
  select *, greatest(max(case when missing or future or suspect then null else at end) over (
    partition by partition order by offset rows between unbounded preceding and current row) - at, 0) as late
  from judged
)
select partition, floor(at / {HOUR_MS}) as hour, count(*), sum(size), min(at), max(at),
  count_if(late > 0), max(late), percentile_approx(late, array(0.5, 0.99, 0.999), 10000),
  count_if(missing), count_if(negative), count_if(future), count_if(suspect)
from late group by partition, hour
"""


def load(bootstrap: str, records: int) -> int:
    """Fills the topic: jittered times, some hours late, few of them wrong; returns the count."""
    key, value = b"key-%04d", b"v" * VALUE
    done = 0
    with Client(bootstrap) as client:
        own = {"retention.ms": "-1", "segment.bytes": str(64 << 20)}
        client.create_topic(TOPIC, PARTITIONS, own, replication_factor=1)
        span = 2 * DAY_MS
        for number in range(records // BATCH):
            at = NOW_MS - span + span * number * BATCH // records
            late = 2 * HOUR_MS if number % 97 == 0 else 0
            made = [
                Record(i, at - late - (i * 7919 + number) % 1500, key % (i % 100), value, ())
                for i in range(BATCH)
            ]
            client.produce(TOPIC, number % PARTITIONS, build(made), acks=1)
            done += BATCH
    return done


def asked(session: TaskSession, bootstrap: str) -> list[Any]:
    """Runs the query in Spark SQL, through its own source."""
    frame = (
        session.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("kafka.max.poll.records", "50000")
        .option("kafka.max.partition.fetch.bytes", str(16 << 20))
        .load()
    )
    frame.createOrReplaceTempView("records")
    return list(session.spark.sql(QUERY).collect())


def audited(session: TaskSession, where: list[str], out: Path, run: str) -> dict[str, Any]:
    """Runs the job as the command line does; returns its report."""
    given = [
        "audit",
        "--topics",
        TOPIC,
        "--out",
        str(out),
        "--run",
        run,
        "--at",
        str(NOW_MS),
        *where,
    ]
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        options = cli.parser_of("audit").parse_args(given)
        audit.run(options, session)
    report: dict[str, Any] = json.loads((out / run / "report.json").read_text())
    return report


def agree(rows: list[Any], report: dict[str, Any]) -> None:
    """Exits if the results of the query and the audit differ."""
    found = report["topics"][0]["summary"]
    queried = {
        "records": sum(row[2] for row in rows),
        "out_of_order": sum(row[6] for row in rows),
        "latest": max(row[7] or 0 for row in rows),
    }
    mine = {
        "records": found["records"],
        "out_of_order": found["out_of_order"],
        "latest": found["lateness_ms"]["max"],
    }
    if queried != mine:
        raise SystemExit(f"the query says {queried}, the audit {mine}")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    for usable in (available(KAFKA_VERSION), spark_kafka.fetch()):
        if not usable:
            print(usable.reason, file=sys.stderr)
            return 3
    os.chdir(REPOSITORY)
    jars = ",".join(str(jar) for jar in spark_kafka.jars())
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench.") as directory,
        ApacheKafka(KAFKA_VERSION, Path(directory) / "kafka") as kafka,
        TaskSession("bench", master="local[2]", conf=[("spark.jars", jars)]) as session,
    ):
        out = Path(directory) / "out"
        count = load(kafka.bootstrap, options.records)
        whole = ["--logs", str(kafka.log_dir), "--upto", "log-end"]
        logs = [*whole, "--no-retention"]
        names = ("Spark SQL", "audit, broker", "audit, logs", "and retention")
        took: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(options.repetitions + 1):
            query_s, rows = timed(lambda: asked(session, kafka.bootstrap))
            fetched_s, report = timed(
                lambda: audited(session, ["--brokers", kafka.bootstrap], out, f"b{turn}")
            )
            agree(rows, report)
            read_s, report = timed(lambda: audited(session, logs, out, f"l{turn}"))
            agree(rows, report)
            whole_s, _ = timed(lambda: audited(session, whole, out, f"w{turn}"))
            for name, seconds in zip(took, (query_s, fetched_s, read_s, whole_s), strict=True):
                if turn:
                    took[name].append(seconds)
                print(f"turn {turn}: {name} {seconds:.1f} s", file=sys.stderr)
        alone = TaskSession("bench", master="inline")
        cpu_s = []
        for turn in range(options.repetitions):
            begun = time.process_time()
            audited(alone, logs, out, f"a{turn}")
            cpu_s.append(time.process_time() - begun)
    base = statistics.median(took["Spark SQL"])
    print(f"\n{count:,} records, {PARTITIONS} partitions, load {os.getloadavg()[0]:.1f}")
    for name, seconds in took.items():
        median = statistics.median(seconds)
        print(f"{name:<16} {count / median:>12,.0f} records/s  {base / median:>6.1f} x Spark SQL")
    print(f"{'alone, logs':<16} {count / statistics.median(cpu_s):>12,.0f} records/s of one core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
