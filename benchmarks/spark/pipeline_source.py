"""How fast the pipeline reads: decoding on one core, and rows into Spark beside Spark's own source.

    python benchmarks/spark/pipeline_source.py                  decoding alone: no Java needed
    python benchmarks/spark/pipeline_source.py --spark          and rows into Spark, from a tidelog broker
    python benchmarks/spark/pipeline_source.py --spark --kafka  and from Apache Kafka 3.9.1

The records have 100 bytes of value and a key of 10. Decoding is CPU time of one process, the best
of --repeat. Spark's rows are wall time on local[2], the median, and CPU time of the JVM and its
workers, the least: count, sum of value sizes, first and last time.

Spark's own source is tuned (50,000 records a poll, 16 MB a fetch): without that it is half as fast.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

from tests.oracle.apache_kafka import ApacheKafka
from tests.pipeline import spark_kafka
from tidelog.client import Client
from tidelog.pipeline.session import TaskSession
from tidelog.pipeline.source.access import plan, read
from tidelog.pipeline.source.reading import HEADERS, RECORDS, TIMES, ReadOptions
from tidelog.pipeline.source.splits import LOG_END, Selection
from tidelog.process import BrokerProcess
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import Record, build

PER_BATCH = 400
SEGMENT_BYTES = 64 << 20
START_MS = 1_700_000_000_000
CODECS = {"none": 0, "lz4": 3, "zstd": 4}
QUERY = (
    "count(*)",
    "sum(length(value))",
    "min(unix_millis(timestamp))",
    "max(unix_millis(timestamp))",
)
TUNED = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": str(16 << 20)}


def batch(codec: int, number: int) -> bytes:
    """Returns one batch; half of each value is incompressible."""
    records = [
        Record(
            i,
            START_MS + number * PER_BATCH + i,
            b"key-%06d" % (number * 7919 % 10**6),
            (b"%016x" % (hash((number, i)) & (2**64 - 1)) * 3 + b" " * 52)[:100],
        )
        for i in range(PER_BATCH)
    ]
    return build(records, compression=codec)


def batches(codec: int, count: int):
    """Yields a few batches at ascending offsets, which are before the CRC and so can be changed."""
    made = [batch(codec, number) for number in range(8)]
    for number in range(count // PER_BATCH):
        yield (number * PER_BATCH).to_bytes(8, "big") + made[number % 8][8:]


def write_log(directory: Path, codec: int, count: int) -> None:
    """Writes a partition's segments."""
    directory.mkdir(parents=True)
    file, size = None, 0
    for number, one in enumerate(batches(codec, count)):
        if file is None or size + len(one) > SEGMENT_BYTES:
            if file is not None:
                file.close()
            file, size = (directory / f"{number * PER_BATCH:020d}.log").open("wb"), 0
        file.write(one)
        size += len(one)
    file.close()


def decode(root: Path, count: int, repeat: int) -> None:
    """Prints records per CPU second for each depth."""
    splits = plan(Selection(upto=LOG_END), logs=[str(root)])
    for name, depth, verify in (
        ("headers of batches", HEADERS, False),
        ("times", TIMES, True),
        ("times, CRC unchecked", TIMES, False),
        ("records", RECORDS, True),
    ):
        spent = []
        for _ in range(repeat):
            begin, found = time.process_time(), 0
            for split in splits:
                for columns in read(split, ReadOptions(depth=depth, verify_crc=verify)):
                    if depth == HEADERS:
                        found += int(columns.batches[:, 12].sum())
                    elif depth == TIMES:
                        found += len(columns.timestamp_ms)
                    else:
                        found += len(columns.key) and len(columns.value)
            spent.append(time.process_time() - begin)
            assert found == count
        print(f"  {name:24} {count / min(spent) / 1e6:8.2f} M records/s")


def produce(bootstrap: str, topic: str, codec: int, count: int, partitions: int) -> None:
    """Fills a topic."""
    with Client(bootstrap) as client:
        client.create_topic(topic, partitions, {"retention.ms": "-1"})
        for number, one in enumerate(batches(codec, count)):
            client.produce(topic, number % partitions, bytes(8) + one[8:])


def cpu_seconds(root: int) -> float:
    """Returns the CPU time of a process and its descendants, including those that have ended."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    below, ticks = {root}, 0
    while below:
        ticks += sum(stats[pid][1] for pid in below if pid in stats)
        below = {pid for pid, (parent, _) in stats.items() if parent in below}
    return ticks / os.sysconf("SC_CLK_TCK")


def rows(name: str, frame, count: int, repeat: int) -> tuple[float, float]:
    """Prints and returns rows per second, and per CPU second, of a whole read.

    `frame` makes the data frame, `name` labels the line. The read is done `repeat` times: the median
    of the seconds and the smallest of the CPU seconds count. Every read must have `count` rows.
    """
    spent, busy = [], []
    for _ in range(repeat):
        made = frame()
        jvm = made.sparkSession._jvm.java.lang.ProcessHandle.current().pid()
        begin, before = time.monotonic(), cpu_seconds(jvm)
        (found,) = made.selectExpr(*QUERY).collect()
        spent.append(time.monotonic() - begin)
        busy.append(cpu_seconds(jvm) - before)
        assert found[0] == count, found
        assert found[1] == 100 * count, found
    rate, dense = count / statistics.median(spent), count / min(busy)
    print(f"  {name:32} {rate / 1e3:8.0f} k rows/s {dense / 1e3:8.0f} k rows/CPU s", flush=True)
    return rate, dense


def in_spark(
    arguments: argparse.Namespace, spark, name: str, bootstrap: str, log_dir: Path
) -> None:
    """Compares the sources over one broker."""
    for codec, number in (("none", 0), ("lz4", 3)):
        topic = f"bench-{codec}"
        count = arguments.records // PER_BATCH * PER_BATCH
        produce(bootstrap, topic, number, count, 4)
        print(f"{name}, {count} records, {codec}:")
        own = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        own = own.option("subscribe", topic).options(**TUNED).option("includeHeaders", "true")
        ours = spark.read.format("timelog").option("topics", topic)
        mine = spark.read.format("timelog").option("topics", topic).option("brokers", bootstrap)
        mine = mine.option("maxPartitionOffsets", str(max(count // 8, 1)))
        ours = ours.option("upto", "log-end").option("maxPartitionBytes", "32m")
        repeat = arguments.repeat
        base = rows("spark-sql-kafka, tuned", own.load, count, repeat)
        files = rows("timelog, log directory", lambda: ours.load(str(log_dir)), count, repeat)
        wire = rows("timelog, brokers", mine.load, count, repeat)
        print(
            f"  ratio: {files[0] / base[0]:.2f} from files, {wire[0] / base[0]:.2f} from brokers;"
        )
        print(f"  by CPU {files[1] / base[1]:.2f} from files, {wire[1] / base[1]:.2f} from brokers")


def spark_rows(arguments: argparse.Namespace) -> None:
    """Starts Spark and the brokers, and compares."""
    from tidelog.spark import register

    fetched = spark_kafka.fetch()
    if not fetched:
        sys.exit(fetched.reason)
    jars = ",".join(map(str, spark_kafka.jars()))
    with (
        tempfile.TemporaryDirectory() as work,
        TaskSession("bench", master="local[2]", conf=[("spark.jars", jars)]) as session,
    ):
        register(session.spark)
        with BrokerProcess(Path(work) / "tidelog") as broker:
            in_spark(arguments, session.spark, "tidelog", broker.bootstrap, broker.log_dir)
        if arguments.kafka:
            with ApacheKafka("3.9.1", Path(work) / "kafka") as kafka:
                in_spark(arguments, session.spark, "Kafka 3.9.1", kafka.bootstrap, kafka.log_dir)


def main() -> None:
    """Runs the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="rows into Spark too; needs Java")
    parser.add_argument("--kafka", action="store_true", help="from Apache Kafka 3.9.1 too")
    arguments = parser.parse_args()
    print(f"decoding, {kernels.IMPLEMENTATION} kernels, one core:")
    count = arguments.records // PER_BATCH * PER_BATCH
    for codec, number in CODECS.items():
        with tempfile.TemporaryDirectory() as work:
            write_log(Path(work) / "bench-0", number, count)
            print(f" {codec}, {count} records of 100 bytes:")
            decode(Path(work), count, arguments.repeat)
    if arguments.spark:
        spark_rows(arguments)


if __name__ == "__main__":
    main()
