"""A program of Spark that streams one topic into another; `streaming.py` starts and kills it.

    streaming_program.py timelog BROKERS TOPIC COPY CHECKPOINT OFFSETS
    streaming_program.py kafka BROKERS TOPIC COPY CHECKPOINT OFFSETS JARS

It prints "begun" before the query starts and "done" when the topic is copied. Then it waits for the
end of its standard input, so that its processes can still be measured. OFFSETS is the size of a
micro-batch.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

import tidelog.spark

# Without these Spark's own source is half as fast.
TUNED = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": str(16 << 20)}
# Spark adds up the size of an Arrow batch after each row, but where the limit is the largest number.
UNLIMITED = ("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))


def begin(spark: SparkSession, kind: str, given: list[str]) -> Any:
    """Starts the query of `timelog`, or of Spark's own source and sink."""
    brokers, topic, copy, checkpoint, offsets = given
    source = spark.readStream.format(kind).option("kafka.bootstrap.servers", brokers)
    source = source.option("subscribe", topic).option("maxOffsetsPerTrigger", offsets)
    source = source.option("startingOffsets", "earliest")
    if kind == "timelog":
        frame = source.load()
    else:
        frame = source.options(**TUNED).option("includeHeaders", "true").load()
        frame = frame.select("key", "value", "partition", "headers")
    sink = frame.writeStream.format(kind).option("kafka.bootstrap.servers", brokers)
    # The offsets of the copy are compared: transactions would leave markers between them.
    own = ("includeHeaders", "true") if kind == "kafka" else ("delivery", "position")
    sink = sink.option(*own)
    sink = sink.option("topic", copy).option("checkpointLocation", checkpoint)
    return sink.trigger(availableNow=True).start()


def main() -> None:
    """Runs the query to its end."""
    kind, given, jars = sys.argv[1], sys.argv[2:7], "".join(sys.argv[7:])
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config(*UNLIMITED)
    spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
    tidelog.spark.register(spark)
    print("begun", flush=True)
    begin(spark, kind, given).awaitTermination()
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
