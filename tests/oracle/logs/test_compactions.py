"""A hundred random logs, cleaned by Apache Kafka 3.9.1 and compacted by tidelog: the same records are left.

Then Kafka's DumpLogSegments reads every segment that tidelog has compacted, and Kafka serves its directories.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle import wire
from tests.oracle.apache_kafka import find_java, jar_directory
from tests.oracle.brokers import PROBE, Tidelog, wait_for_leaders
from tests.oracle.logs import compactions
from tests.oracle.logs.compactions import CHECKPOINT, LOGS_EACH, TOPICS, Broker, names

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "3.9.1"
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.cleaner.delete.retention.ms": "0",
}


class Played:
    """What both brokers have left after each part, and what Kafka made of tidelog's directories."""

    def __init__(self, kafka, tidelog, keep):
        base_ms = time.time_ns() // 1_000_000 - 3_600_000
        self.parts, self.writers = compactions.written(base_ms)
        self.ends = self._ends()
        theirs, ours = (
            Broker(name, one.bootstrap, one.log_dir)
            for name, one in (("kafka", kafka), (compactions.TIDELOG, tidelog))
        )
        with ThreadPoolExecutor(2) as pool:
            self.kafka, self.tidelog = pool.map(self._fill_and_clean, (theirs, ours))
            self.early = list(pool.map(compactions.early, (theirs, ours)))
        self.given_up = [compactions.given_up(one) for one in (theirs, ours)]
        tidelog.stop()
        self.log_dir = shutil.copytree(tidelog.log_dir, keep)
        shutil.rmtree(self.log_dir / f"{PROBE}-0")  # it was not compacted
        kafka.stop()
        self.brought_back = self._bring_back(kafka)

    def _fill_and_clean(self, broker):
        return list(compactions.fill_and_clean(broker, self.parts, self.ends))

    def _ends(self):
        """Up to where each log is to be clean after each part: before the last record of it."""
        found = []
        offset = dict.fromkeys(names(), 0)
        for rounds in self.parts:
            for sets in rounds:
                for name, data in sets.items():
                    offset[name] += int.from_bytes(data[23:27], "big") + 1
            found.append({name: end - 1 for name, end in offset.items()})
        return found

    def _bring_back(self, kafka):
        """Have Kafka open what tidelog has compacted, in the place of its own directories."""
        for topic, index in names():
            there = kafka.log_dir / f"{topic}-{index}"
            identity = (there / "partition.metadata").read_bytes()
            shutil.rmtree(there)
            shutil.copytree(self.log_dir / there.name, there)
            (there / "partition.metadata").write_bytes(identity)
        for name in (CHECKPOINT, "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
            (kafka.log_dir / name).unlink(missing_ok=True)  # so it recovers every segment
        kafka.start()
        with wire.Connection(kafka.bootstrap, timeout_s=60) as connection:
            wait_for_leaders(connection, dict.fromkeys(TOPICS, LOGS_EACH))
            return {name: compactions.left(connection, name) for name in names()}


@pytest.fixture(scope="module")
def played(apache_kafka, tmp_path_factory):
    ours = Tidelog(tmp_path_factory.mktemp("tidelog"), SETTINGS)
    with apache_kafka(KAFKA, **SETTINGS) as theirs, ours:
        return Played(theirs, ours, tmp_path_factory.mktemp("kept") / "data")


def test_the_same_records_are_left(played, summarize):
    found = [
        one
        for part, (theirs, ours) in enumerate(zip(played.kafka, played.tidelog, strict=True))
        for one in compactions.differences(part, theirs, ours)
    ]
    summarize(
        f"compaction by Apache Kafka {KAFKA} and tidelog",
        f"{len(names())} logs, {sum(len(one.written) for one in played.writers.values())} records written,"
        f" left {[sum(map(len, one.values())) for one in played.kafka]} and"
        f" {[sum(map(len, one.values())) for one in played.tidelog]}, logs that differ {len(found)}",
    )
    assert not found, "\n" + "\n".join(map(str, found[:20]))


def test_it_was_compacted_and_the_last_value_of_every_key_is_there(played):
    for name, writer in played.writers.items():
        rows = played.tidelog[-1][name]
        assert len(rows) < len(writer.written) / 2, name
        last = {row.key: row.value for row in rows}
        expected = {key: value for key, value in writer.last_values().items() if value is not None}
        assert {key: value for key, value in last.items() if value is not None} == expected
        assert len({row.offset for row in rows}) == len(rows)


def test_tombstones_go_where_they_may_and_stay_where_they_may_not(played):
    """Those of the first part; or nothing would have been seen of delete.retention.ms."""
    count = {
        topic: sum(
            row.value is None and row.offset < played.ends[0][topic, index]
            for index in range(LOGS_EACH)
            for row in played.tidelog[-1][topic, index]
        )
        for topic in TOPICS
    }
    assert count["kept"] > 0
    assert [count[topic] for topic in TOPICS if topic != "kept"] == [0] * (len(TOPICS) - 1)


def test_times_before_1970_are_compacted_where_kafka_gives_up(played):
    """Kafka cannot write a record with such a time; it leaves its log as it is, for good."""
    theirs, ours = played.early
    assert played.given_up == [True, False]
    assert [row.time for row in theirs[:12]] == [-77_000 + i for i in range(12)]
    assert [(row.offset, row.key, row.time) for row in ours[:3]] == [
        (9 + i, b"key-%d" % i, -77_000 + 9 + i) for i in range(3)
    ]
    assert [row.offset for row in ours[3:]] == [12, 13]


@pytest.mark.parametrize("change", ["lost", "too many", "moved", "value", "time"])
def test_an_injected_difference_is_caught(played, change):
    ours = copy.deepcopy(played.tidelog[-1])
    name = ("gone", 7)
    rows = ours[name]
    if change == "lost":
        del rows[1]
    elif change == "too many":
        rows.insert(1, rows[1]._replace(offset=rows[1].offset - 1))
    elif change == "moved":
        rows[1] = rows[1]._replace(offset=rows[1].offset - 1)
    elif change == "value":
        rows[1] = rows[1]._replace(value=b"another")
    else:
        rows[1] = rows[1]._replace(time=rows[1].time + 1)
    before = compactions.differences(1, played.tidelog[-1], played.tidelog[-1])
    (found,) = compactions.differences(1, played.tidelog[-1], ours)
    assert (before, found.name) == ([], name)


def test_kafka_serves_what_tidelog_has_compacted(played):
    assert not compactions.differences(1, played.brought_back, played.tidelog[-1])


def test_dump_log_segments_has_no_complaint(played, summarize):
    """Of logs it wants to read every record, of indexes that they lead to what they say."""
    logs = sorted(played.log_dir.glob("*-*/*.log"))
    indexes = sorted(played.log_dir.glob("*-*/*.index")) + sorted(
        played.log_dir.glob("*-*/*.timeindex")
    )
    shown = []
    for paths, options in ((logs, ["--deep-iteration"]), (indexes, ["--verify-index-only"])):
        command = [find_java(), "-Xmx256m", "-cp", f"{jar_directory(KAFKA)}/*"]
        # All in one argument, which must not be too long.
        names = ",".join(str(path.relative_to(played.log_dir)) for path in paths)
        run = subprocess.run(
            [*command, "kafka.tools.DumpLogSegments", *options, "--files", names],
            cwd=played.log_dir,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=200,
        )
        shown.append(run.stdout)
    records = shown[0].count("\n| offset: ")
    assert records == sum(map(len, (*played.tidelog[-1].values(), played.early[1])))
    for word in ("Found ", "ismatch", "isvalid: false", "non-consecutive", "Exception"):
        assert word not in shown[0] + shown[1], word
    assert shown[1].count("Dumping ") == len(indexes)
    summarize("DumpLogSegments of what was compacted", f"{len(logs)} segments, {records} records")
