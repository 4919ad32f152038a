"""The audit of Apache Kafka: its broker, its directory while it runs, and a copy of that, all the same."""

import itertools
import shutil
from pathlib import Path

import pytest

from tests.pipeline.jobs.test_audit import HOUR, NOW, audit, check, odd_times
from tidelog.client import Client
from tidelog.protocol.records.batch import Record, build

pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.oracle

GZIP, LZ4, ZSTD = 1, 3, 4


def filled(client, topic, settings):
    """Write batches of odd times; return the records as a recount wants them."""
    client.create_topic(topic, 2, settings | {"retention.ms": "-1"}, replication_factor=1)
    rows = {(topic, 0): [], (topic, 1): []}
    for number in range(9):
        for (_, part), records in rows.items():
            times = odd_times(NOW + number * 20 * 60_000, number)
            made = [Record(i, time, b"k", b"v" * 50, ()) for i, time in enumerate(times)]
            compression = (0, GZIP, LZ4, ZSTD)[number % 4]
            data = build(made, compression=compression)
            stamp = client.produce(topic, part, data).append_time_ms
            for time in times:
                seen, stamped = (time, False) if stamp == -1 else (stamp, True)
                records.append((len(records), seen, stamp, stamped, -1, 0))
    return rows


def what_goes_meanwhile(directory, names):
    """What the broker may rename or remove while its directory is copied: all but the topics filled here."""
    is_partition = (Path(directory) / "partition.metadata").exists()
    return [
        name
        for name in names
        if name.endswith(".tmp") or not (is_partition or name.startswith("odd-"))
    ]


def test_its_broker_its_directory_and_a_copy_say_the_same(kafka, tmp_path):
    with Client(kafka.bootstrap) as client:
        rows = filled(client, "odd-times", {"segment.bytes": "2000"})
        rows |= filled(client, "odd-stamps", {"message.timestamp.type": "LogAppendTime"})
    copy = tmp_path / "copy"
    shutil.copytree(kafka.log_dir, copy, ignore=what_goes_meanwhile)
    reports = []
    for number, where in enumerate(
        (
            ["--brokers", kafka.bootstrap],
            ["--logs", str(kafka.log_dir), "--upto", "log-end"],
            ["--logs", str(copy), "--upto", "log-end", "--split-bytes", "700"],
        )
    ):
        status, report = audit(tmp_path, *where, "--topics", "odd-.*", run=f"r{number}")
        assert status == 1
        assert check(report, rows, known=False) == 2
        reports.append(report)
    for one, other in itertools.pairwise(reports):
        for mine, theirs in zip(one["topics"], other["topics"], strict=True):
            for name in ("summary", "late_curve", "plot", "safe_windows"):
                skipped = {"bytes"} if one is reports[0] else set()  # a broker may re-cut its sets
                assert _without(mine[name], skipped) == _without(theirs[name], skipped), name
    by_name = {topic["topic"]: topic for topic in reports[2]["topics"]}
    assert by_name["odd-stamps"]["safe_windows"]["basis"] == "stamp"
    assert by_name["odd-times"]["safe_windows"]["basis"] == "lateness"
    policies = {each["policy"]: each for each in by_name["odd-times"]["retention"]}
    assert all(each["is_estimated"] for each in policies.values())
    # A time from the future, and one in microseconds: on Kafka nothing behind them goes.
    held = by_name["odd-times"]["pinned"]
    assert held
    assert {each["timestamp_ms"] for each in held} <= {
        time for records in rows.values() for _, time, *_ in records if time > NOW + 6 * HOUR
    }


def _without(value, names):
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if name not in names}
