"""A stream whose driver and workers are killed: each record is in the copy once, with its time."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.subject import eventually
from tests.pipeline.logs import committed, truth
from tidelog.client import Client
from tidelog.pipeline.replay.delivery import POSITION, TRANSACTIONS
from tidelog.protocol.records.batch import Record, build

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
COUNT = 8_000
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import tidelog.spark
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
brokers, topic, checkpoint, delivery = sys.argv[2:]
builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
tidelog.spark.register(spark)
source = spark.readStream.format("timelog").option("kafka.bootstrap.servers", brokers)
frame = source.option("subscribe", topic).option("maxOffsetsPerTrigger", "2000")
frame = frame.option("startingOffsets", "earliest").load()
writer = frame.writeStream.format("timelog").option("kafka.bootstrap.servers", brokers)
writer = writer.option("topic", topic + "-copy").option("checkpointLocation", checkpoint)
writer = writer.option("delivery", delivery)
for tries_left in (3, 2, 1, 0):
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        break
    except StreamingQueryException as error:  # as tests/pipeline/streams.py says
        if "worker failed to connect back" not in str(error) or not tries_left:
            raise
"""


@pytest.fixture
def source(broker, topic):
    """Two partitions of records whose times are out of order, before 1970 and missing."""
    chance = random.Random(5)
    with Client(broker.bootstrap) as client:
        for name in (topic, f"{topic}-copy"):
            client.create_topic(name, 2, {"retention.ms": "-1"})
        for number in range(COUNT // 500):
            rows = [
                Record(i, chance.randrange(-(10**12), 10**13), b"%d-%d" % (number, i), b"v" * 50)
                for i in range(499)
            ]
            client.produce(topic, number % 2, build([*rows, Record(499, -1, None, b"no time")]))
    return topic


class Run:
    """The program in a process group of its own."""

    def __init__(self, broker, topic, checkpoint, delivery):
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.log = checkpoint.with_suffix(".log").open("ab")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", PROGRAM, str(ROOT), broker.bootstrap),
                *(topic, str(checkpoint), delivery),
            ],
            cwd=checkpoint.parent,
            env={**environ, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
            stdout=self.log,
            stderr=self.log,
        )

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self.log.close()

    def workers(self):
        """The Python processes of Spark in this group, without the driver."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                command = (entry / "cmdline").read_bytes()
                is_ours = self.process.pid in (os.getpgid(pid), os.getsid(pid))
                if is_ours and b"pyspark" in command and b"java" not in command:
                    found.append(pid)
        return [pid for pid in found if pid != self.process.pid]


@pytest.mark.parametrize("delivery", [POSITION, TRANSACTIONS])
def test_driver_and_workers_are_killed(broker, source, tmp_path, delivery):
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    copy = f"{source}-copy"
    checkpoint = tmp_path / "checkpoint"

    def written():
        with Client(broker.bootstrap) as client:
            return sum(client.end_offset(copy, partition) for partition in range(2))

    run = Run(broker, source, checkpoint, delivery)
    try:
        eventually(lambda: written() >= 1, deadline_s=180)
    finally:
        run.kill()  # the driver with all its workers
    assert written() < COUNT, "killed before the end"
    run = Run(broker, source, checkpoint, delivery)
    killed = 0
    try:
        eventually(lambda: written() >= COUNT // 2, deadline_s=180)
        for pid in run.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        run.process.wait(180)  # it ends well if Spark has tried again, or fails if it has not
    finally:
        run.kill()
    assert killed
    if delivery == TRANSACTIONS or written() < COUNT:  # markers count for `written` too
        run = Run(broker, source, checkpoint, delivery)
        try:
            assert run.process.wait(240) == 0
        finally:
            run.kill()
    for partition in range(2):
        original = truth(broker.log_dir / f"{source}-{partition}")
        copied = committed(broker.log_dir / f"{copy}-{partition}")
        assert [(one.timestamp, one.key, one.value) for one in copied] == [
            (one.timestamp, one.key, one.value) for one in original
        ]
        if delivery == POSITION:
            assert [one.offset for one in copied] == [one.offset for one in original]
