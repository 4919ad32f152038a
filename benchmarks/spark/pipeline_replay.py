"""How fast records are replayed: from one broker to another, and the encoder alone.

    .venv/bin/python benchmarks/spark/pipeline_replay.py --records 1000000 --kafka

Two tidelog brokers run on this machine; with `--kafka` Apache Kafka 3.9.1 is also a target, with
transactions. The task that Spark distributes runs in this process: Spark adds the same cost for any
number of records. `per core` divides by the CPU time of the task, `by the clock` has both brokers
on the same cores. Medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

from brokers import KAFKA_VERSION

from tests.oracle.apache_kafka import ApacheKafka, available
from tidelog.client import Client
from tidelog.pipeline.replay.delivery import POSITION, TRANSACTIONS, Delivery
from tidelog.pipeline.replay.log_source import LogSource
from tidelog.pipeline.replay.replay import Task, replay_partition
from tidelog.pipeline.replay.transactions import ensure_progress_topic
from tidelog.pipeline.source.access import plan
from tidelog.pipeline.source.splits import Selection
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.column_batches import BatchProducer, encode_batches
from tidelog.protocol.records.columns import ColumnBuffers, RecordSelection, append_set
from tidelog.protocol.records.layout import Compression

BATCH, VALUE = 5_000, 100
KEEP = {"retention.ms": "-1"}


def records():
    return [
        Record(n, 1_700_000_000_000 + n, b"key-%d" % n, (b"%d" % n).rjust(VALUE, b"x"))
        for n in range(BATCH)
    ]


def encoding(count: int, codec: Compression) -> float:
    """Returns the records encoded in a second of CPU."""
    columns = ColumnBuffers()
    append_set(build(records()) * (count // BATCH), columns, RecordSelection(limit=1 << 40))
    began_s = time.process_time()
    for _ in encode_batches(
        columns,
        0,
        columns.record_count,
        producer=BatchProducer(1, 0),
        base_sequence=0,
        compression=codec,
    ):
        pass
    return columns.record_count / (time.process_time() - began_s)


def replaying(source: str, target: str, mode: str, number: int) -> tuple[float, float]:
    """Returns the records replayed in a second of the task's CPU, and of wall-clock time."""
    topic = f"copy-{mode}-{number}"
    with Client(target) as client:
        client.create_topic(topic, 1, KEEP)
        if mode == TRANSACTIONS:
            ensure_progress_topic(client)
        producer_id, _ = client.init_producer_id()
    selection = Selection(topics=("source",))
    task = Task(
        brokers=target,
        topic=topic,
        partition=0,
        delivery=Delivery(mode, f"bench/{topic}", 0, producer_id),
        source=LogSource(tuple(plan(selection, brokers=source)), selection),
        source_topic="source",
        source_partition=0,
    )
    outcome = replay_partition(task)
    assert outcome.error is None, outcome.error
    return outcome.count / outcome.cpu_seconds, outcome.count / outcome.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as a target too")
    options = parser.parse_args()
    rows: dict[str, object] = {}
    for codec in Compression:
        rate = statistics.median(encoding(min(options.records, 200_000), codec) for _ in range(3))
        rows[f"encode {codec.name.lower()} per core"] = round(rate)
        print(f"encode {codec.name.lower():8s} {rate / 1e6:8.2f} M records/s per core", flush=True)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = stack.enter_context(BrokerProcess(directory / "source"))
        targets = [(POSITION, stack.enter_context(BrokerProcess(directory / "target")).bootstrap)]
        if options.kafka:
            usable = available(KAFKA_VERSION)
            if not usable:
                print(usable.reason, file=sys.stderr)
                return 1
            kafka = stack.enter_context(ApacheKafka(KAFKA_VERSION, directory / "kafka"))
            targets.append((TRANSACTIONS, kafka.bootstrap))
        with Client(source.bootstrap) as client:
            client.create_topic("source", 1, KEEP)
            data = build(records())
            for _ in range(options.records // BATCH):
                client.produce("source", 0, data)
        for mode, target in targets:
            replaying(source.bootstrap, target, mode, 0)  # warm
            seen = [replaying(source.bootstrap, target, mode, n + 1) for n in range(options.repeat)]
            per_core = statistics.median(one[0] for one in seen)
            by_clock = statistics.median(one[1] for one in seen)
            rows[f"replay by {mode} per core"] = round(per_core)
            rows[f"replay by {mode} by the clock"] = round(by_clock)
            print(
                f"replay by {mode:14s} {per_core / 1e3:8.0f} k records/s per core,"
                f" {by_clock / 1e3:6.0f} k by the clock",
                flush=True,
            )
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
