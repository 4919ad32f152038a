"""The audit as a command: brokers and directories, every format, runs again, what it leaves, its status."""

import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

import tidelog.jobs
from tests.pipeline.archive.archives import some, with_logs
from tests.pipeline.engine.test_audit import recount
from tests.pipeline.logs import Writer
from tidelog.client import Client, GroupOffset
from tidelog.pipeline import cli
from tidelog.pipeline.engine.audit import UNKNOWN, AuditSettings
from tidelog.pipeline.errors import FINDINGS
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build

pa_parquet = pytest.importorskip("pyarrow.parquet")

NOW = 1_767_225_600_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
CODECS = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}

# Settings of a topic, and of what its batches are made.
TOPICS = {
    "plain": ({}, {}),
    "stamped": ({"message.timestamp.type": "LogAppendTime"}, {}),
    "format1": ({"message.format.version": "0.10.2"}, {}),
    "format0": ({"message.format.version": "0.9.0"}, {}),
    "packed": ({}, {"compression": CODECS["lz4"]}),
    "packed1": ({"message.format.version": "0.10.2"}, {"compression": CODECS["gzip"]}),
    "owned": ({}, {"producer_id": 41, "producer_epoch": 0}),
}


def odd_times(append, number):
    """The times of a batch: in order mostly, and of every odd kind."""
    times = [append - 40, append - 30 + number, append - 5 * MINUTE * (number % 3)]
    extra = {
        2: [-1],
        3: [append + 3 * HOUR],
        4: [append * 1000],
        5: [-DAY * 400, 0],
        6: [append // 1000],
        7: [append + MINUTE, append + MINUTE + 1],
    }
    return times + extra.get(number, [])


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A broker with all topics filled, with a manual clock; and what each record is."""
    directory = tmp_path_factory.mktemp("audited") / "data"
    rows = {(name, part): [] for name in TOPICS for part in range(2)}
    with BrokerProcess(directory, {"log.retention.ms": -1}, clock="manual") as broker:
        broker.clock.freeze(NOW)
        with Client(broker.bootstrap) as client:
            for name, (own, _) in TOPICS.items():
                client.create_topic(name, 2, own | {"segment.bytes": "2000"})
            for number in range(12):
                append = NOW + number * 20 * MINUTE
                broker.clock.freeze(append)
                for (name, part), records in rows.items():
                    if part == 1 and number > 3:
                        continue
                    fill(client, name, part, records, append, number)
            client.offset_commit(
                "slow",
                {
                    ("plain", 0): GroupOffset(4),
                    ("plain", 1): GroupOffset(len(rows["plain", 1])),
                    ("stamped", 0): GroupOffset(7),
                },
            )
        yield broker, rows


def fill(client, name, part, records, append, number):
    own, how = TOPICS[name]
    times = odd_times(append, number)
    more = dict(how)
    if "producer_id" in more:
        more["base_sequence"] = len(records)
    made = [Record(i, time, b"k", b"v" * 50, ()) for i, time in enumerate(times)]
    client.produce(name, part, build(made, **more))
    stamped = "message.timestamp.type" in own
    for event in times:
        seen = append if stamped else -1 if name == "format0" else event
        producer = how.get("producer_id", -1)
        records.append((len(records), seen, append, stamped, producer, 0))


AT = NOW + 6 * HOUR


def audit(out, *arguments, run="r"):
    """Run it in this process; the exit status, and report.json."""
    how = ("--master", "inline", "--out", str(out), "--run", run, "--at", str(AT))
    status = cli.main(["audit", *how, *arguments])
    path = out / run / "report.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def expected(rows, *, known):
    """What a recount says, of a broker that tells append times, or of one that has stamps alone."""
    told = [
        (offset, time, append if known or stamped else UNKNOWN, stamped, producer, size)
        for offset, time, append, stamped, producer, size in rows
    ]
    return recount(told, AuditSettings(AT))


def check(report, rows, *, known):
    for topic in report["topics"]:
        for found in topic["partitions"]:
            key = topic["topic"], found["partition"]
            total, late, delays, _, _, largest = expected(rows[key], known=known)
            assert found["records"] == total["records"] == len(rows[key])
            for name in ("missing", "negative", "future", "plausible"):
                assert found[name] == total[name], (key, name)
            assert found["log_append_time"] == total["log_append"]
            assert found["append_time_known"] == total["append_known"]
            assert found["suspects"] == {unit: total[unit] for unit in found["suspects"]}
            assert found["out_of_order"] == sum(late.values())
            assert found["largest_plausible_ms"] == largest
            worst = max((behind for _, behind in late), default=0)
            assert found["lateness_ms"]["max"] == (worst if total["plausible"] else None)
            assert found["delay_ms"]["count"] == len(delays)
            for each in found["beyond_before"]:
                assert each["records"] == total["before", each["limit_ms"]]
            for each in found["beyond_after"]:
                assert each["records"] == total["after", each["limit_ms"]]
    return len(report["topics"])


@pytest.mark.parametrize("split", ["1g", "500", "1"])
def test_a_directory_tells_what_a_recount_counts(house, tmp_path, split):
    broker, rows = house
    status, report = audit(
        tmp_path, "--logs", str(broker.log_dir), "--upto", "log-end", "--split-bytes", split
    )
    assert status == 1
    assert check(report, rows, known=True) == len(TOPICS)


def test_a_broker_tells_what_its_directory_has(house, tmp_path):
    broker, rows = house
    status, report = audit(tmp_path, "--brokers", broker.bootstrap)
    assert status == 1
    assert check(report, rows, known=True) == len(TOPICS)
    by_name = {topic["topic"]: topic for topic in report["topics"]}
    assert by_name["plain"]["summary"]["delay_ms"]["count"] > 20
    _, other = audit(tmp_path, "--logs", str(broker.log_dir), "--upto", "log-end", run="logs")
    for one, same in zip(report["topics"], other["topics"], strict=True):
        assert one["summary"] == same["summary"]
        assert one["safe_windows"] == same["safe_windows"]


def test_retention_may_be_left_out(house, tmp_path):
    broker, _ = house
    logs = ["--logs", str(broker.log_dir), "--upto", "log-end", "--topics", "plain"]
    _, whole = audit(tmp_path, *logs, run="whole")
    _, less = audit(tmp_path, *logs, "--no-retention", run="less")
    assert whole["topics"][0]["retention"]
    assert less["topics"][0]["retention"] == []
    assert less["topics"][0]["summary"] == whole["topics"][0]["summary"]


def test_the_rows_by_hour_are_in_parquet(house, tmp_path):
    broker, rows = house
    _, _ = audit(tmp_path, "--logs", str(broker.log_dir), "--upto", "log-end", "--topics", "plain")
    table = pa_parquet.read_table(tmp_path / "r" / "audit" / "partition_hour.parquet").to_pylist()
    for part in range(2):
        _, late, delays, hours, worst, _ = expected(rows["plain", part], known=True)
        mine = {row["event_ms"]: row for row in table if row["partition"] == part}
        assert set(mine) == {hour * HOUR for hour in hours}
        for hour, (records, odd, future, *_rest) in hours.items():
            row = mine[hour * HOUR]
            assert (row["records"], row["odd"], row["future"]) == (records, odd, future)
            assert row["span_ms"] == HOUR
            assert row["max_lateness_ms"] == worst[hour]
            assert row["out_of_order"] == sum(n for (h, _), n in late.items() if h == hour)
            slow = [delay for h, delay, _, _, is_meant in delays if h == hour and is_meant]
            assert row["delays"] == len(slow)
            if slow and max(slow) < 256 and min(slow) >= 0:
                assert row["delay_p99_9_ms"] == max(slow)


@pytest.mark.slow
def test_a_small_audit_imports_neither_spark_nor_pandas(house, tmp_path):
    """They take longer to import than it takes to read some megabytes."""
    broker, _ = house
    code = (
        "import sys\n"
        "from tidelog.cli import main\n"
        "status = main(['pipeline', 'audit', *sys.argv[1:]])\n"
        "print(status, [name for name in ('pyspark', 'pandas') if name in sys.modules])\n"
    )
    how = ("--logs", broker.log_dir, "--upto", "log-end", "--out", tmp_path, "--run", "r")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, how)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == f"{FINDINGS} []", done.stderr
    assert (tmp_path / "r" / "audit" / "partition_hour.parquet").exists()


def test_the_same_run_again_reads_the_same(broker, topic, tmp_path):
    arguments = ["--brokers", broker.bootstrap, "--topics", topic]
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, {"retention.ms": "-1"})
        client.produce(topic, 0, build([Record(0, NOW, None, b"v", ())]))
        _, first = audit(tmp_path, *arguments)
        client.produce(topic, 0, build([Record(0, NOW * 1000, None, b"v", ())]))
        _, again = audit(tmp_path, *arguments)
        status, other = audit(tmp_path, *arguments, run="other")
    assert again == first
    assert (status, other["topics"][0]["summary"]["records"]) == (1, 2)
    assert cli.main(["audit", *arguments, "--out", str(tmp_path), "--run", "r"]) == 2


def test_a_log_without_anything_odd_is_status_0(broker, topic, tmp_path, capsys):
    good, empty = f"{topic}-good", f"{topic}-empty"
    with Client(broker.bootstrap) as client:
        for name in (good, empty):
            client.create_topic(name, 1, {"retention.ms": "-1"})
        for number in range(3):
            client.produce(good, 0, build([Record(0, NOW + number, None, b"v", ())]))
    status, report = audit(tmp_path, "--brokers", broker.bootstrap, "--topics", f"{good},{empty}")
    assert status == 0
    levels = {(each["topic"], each["level"]) for each in report["findings"]}
    assert levels >= {(good, "ok"), (empty, "info")}
    assert "Every partition is in order." in capsys.readouterr().out


def test_groups_are_behind_in_real_time(house, tmp_path):
    broker, rows = house
    for source in (["--brokers", broker.bootstrap], None):
        told = source or [
            *("--logs", str(broker.log_dir), "--upto", "log-end"),
            *("--cluster", broker.bootstrap),
        ]
        _, report = audit(tmp_path, *told, "--groups", "slow,unknown", run="b" if source else "d")
        found = {(each["topic"], each["partition"]): each for each in report["groups"]}
        assert set(found) == {("plain", 0), ("plain", 1), ("stamped", 0)}
        plain, done, stamped = found["plain", 0], found["plain", 1], found["stamped", 0]
        _, event, append, *_ = rows["plain", 0][4]
        assert plain["event_lag_ms"] == AT - event
        assert plain["append_lag_ms"] == AT - append
        assert plain["records"] == len(rows["plain", 0]) - 4
        newest = rows["plain", 0][-1][1]
        assert plain["event_behind_ms"] == newest - event
        assert (done["records"], done["event_lag_ms"], done["append_lag_ms"]) == (0, None, None)
        stamp = rows["stamped", 0][7][2]
        assert (stamped["event_lag_ms"], stamped["append_lag_ms"]) == (AT - stamp, AT - stamp)


def test_retention_is_that_of_the_topic_where_the_cluster_tells_it(tmp_path):
    with BrokerProcess(tmp_path / "data", {"log.retention.check.interval.ms": 10**12}) as broker:
        with Client(broker.bootstrap) as client:
            client.create_topic("short", 1, {"retention.ms": str(2 * DAY)})
            for ago in (5, 3, 1):
                record = Record(0, time.time_ns() // 1_000_000 - ago * DAY, None, b"v", ())
                client.produce("short", 0, build([record]))
        logs = ["--logs", str(broker.log_dir), "--upto", "log-end", "--cluster", broker.bootstrap]
        status = cli.main(
            ["audit", "--master", "inline", "--out", str(tmp_path), "--run", "r", *logs]
        )
        report = json.loads((tmp_path / "r" / "report.json").read_text())
    (topic,) = report["topics"]
    assert topic["settings"]["retention_ms"] == 2 * DAY
    titles = [finding["title"] for finding in report["findings"]]
    assert "2 records older than retention.ms=2d on arrival." in titles
    assert topic["retention"][0]["policy"] == "as it is set"
    assert status == 1


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--logs", "nowhere"], 2, "nowhere is not a directory"),
        (["--logs", ".", "--groups", "g"], 2, "--groups needs --broker or --cluster"),
        (["--brokers", "127.0.0.1:1,nonsense"], 2, "nonsense"),
        ([], 2, "one of the arguments --broker --logs is required"),
        (["--logs", ".", "--margin", "soon"], 2, "soon"),
        (["--logs", ".", "--topics", "none-such"], 2, "there is no topic none-such"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(
    arguments, status, sentence, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    try:
        found = cli.main(["audit", "--master", "inline", *arguments])
    except SystemExit as stopped:
        found = stopped.code
    assert found == status
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        ("audit",),
        ("whatif", "--policy", "week:retention.ms=7d"),
        ("archive", "--to", "archive"),
        ("mirror", "--to-brokers", "127.0.0.1:1"),
    ],
    ids=lambda line: line[0],
)
def test_a_directory_without_logs_is_a_mistake(line, tmp_path, capsys, monkeypatch):
    """An audit of nothing had no findings."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    for more, wanted in ((), ""), (("--topics", "none.*"), " of topics none.*"):
        assert cli.main([*line, "--master", "inline", "--logs", "empty", *more]) == 2
        said = capsys.readouterr().err
        assert said == f"tidelog pipeline {line[0]}: no logs{wanted} in empty\n"
    with pytest.raises(tidelog.jobs.UsageError, match="no logs in empty"):
        tidelog.jobs.audit(logs="empty")


class Page(HTMLParser):
    """Every tag closed in order, and what a browser would go and get."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.outside, self.ids, self.links = [], [], [], set(), set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            if name == "href" and value.startswith("#"):
                self.links.add(value[1:])
            elif name in ("src", "href", "xlink:href", "srcset", "action"):
                self.outside.append(value)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_thresholds_in_a_file_decide_the_status(house, tmp_path, capsys):
    broker, _ = house
    logs = ("--logs", str(broker.log_dir), "--upto", "log-end")
    file = tmp_path / "limits.toml"
    file.write_text('[topic."*"]\nmin_records = 0\n[topic."nobody"]\nfuture = 0\n')
    status, report = audit(tmp_path, *logs, "--thresholds", str(file), run="holds")
    said = capsys.readouterr()
    assert status == 0  # whatever its findings are
    assert {each["level"] for each in report["findings"]} >= {"bad"}
    assert report["thresholds"] == {"file": str(file), "broken": []}
    assert 'nothing that was audited belongs to [topic."nobody"]' in said.err
    file.write_text('[topic."format1"]\nsuspect = 1\nlateness_max = "1d"\nfuture_share = 1\n')
    status, report = audit(tmp_path, *logs, "--thresholds", str(file), run="broken")
    assert status == 1
    assert [each["name"] for each in report["thresholds"]["broken"]] == ["suspect", "lateness_max"]
    assert "THRESHOLD suspect of format1 is 2, and its limit is 1" in capsys.readouterr().out
    text = (tmp_path / "broken" / "report.html").read_text()
    assert "suspect of format1 is 2, and its limit is 1." in text


def test_two_audits_are_compared(house, tmp_path, capsys):
    broker, _ = house
    logs = ("--logs", str(broker.log_dir), "--upto", "log-end", "--topics", "plain,format1")
    _, before = audit(tmp_path, *logs, run="old")
    path = tmp_path / "old" / "report.json"
    for topic in before["topics"]:
        if topic["topic"] == "plain":
            topic["summary"]["lateness_ms"]["max"] = 1
        else:
            topic["topic"] = "elsewhere"
    path.write_text(json.dumps(before))
    capsys.readouterr()
    for old in (path, path.parent):
        _, report = audit(tmp_path, *logs, "--compare", str(old), run=f"new{old == path}")
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("SINCE")]
        assert len(said) == 3
        assert said[0].startswith("SINCE old: plain: lateness_max is ")
        assert said[0].endswith(", and was 1 ms")
        assert said[1:] == [
            "SINCE old: format1: not in the earlier audit",
            "SINCE old: elsewhere: only in the earlier audit",
        ]
    rows = {each["name"]: (each["before"], each["now"]) for each in report["comparison"]["rows"]}
    assert rows["lateness_max"][0] == 1 < rows["lateness_max"][1]
    assert rows["records"][0] == rows["records"][1] > 0
    assert "What has changed" in (tmp_path / "newTrue" / "report.html").read_text()


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--thresholds", None, "cannot be read"),
        ("--thresholds", "[x", "no TOML"),
        ("--thresholds", '[group."g"]\nrecords = 0', "has limits of groups: give --groups too"),
        ("--compare", None, "cannot be read"),
        ("--compare", "{}", "is no report of an audit"),
        ("--compare", '{"job": "whatif"}', "it is a report of whatif"),
        ("--compare", '{"job": "audit", "topics": [{"summary": {}}]}', "it has no such form"),
    ],
)
def test_a_file_to_judge_by_that_is_none_is_said(house, tmp_path, capsys, option, text, words):
    broker, _ = house
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    assert cli.main(["audit", "--logs", str(broker.log_dir), option, str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_progress_has_no_bytes_that_nobody_knows(house, tmp_path, capsys):
    """Brokers do not report sizes, so what is read from them is shown in records."""
    broker, _ = house
    audit(tmp_path / "a", "--logs", str(broker.log_dir), "--upto", "log-end", "--topics", "plain")
    assert '"unit": "bytes"' in capsys.readouterr().err
    _, report = audit(tmp_path / "b", "--brokers", broker.bootstrap, "--topics", "plain")
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    ends = [each["newest"]["offset"] + 1 for each in report["topics"][0]["partitions"]]
    assert [(each["unit"], each["total"]) for each in told] == [("records", sum(ends))] * len(told)
    assert told[-1]["done"] == sum(ends)
    logs = ("--topics", "plain", "--dry-run")
    audit(tmp_path / "c", "--brokers", broker.bootstrap, *logs)
    assert "bytes" not in capsys.readouterr().out


def test_the_page_needs_nothing_and_says_the_numbers(house, tmp_path):
    broker, _ = house
    _, report = audit(tmp_path, "--logs", str(broker.log_dir), "--upto", "log-end")
    text = (tmp_path / "r" / "report.html").read_text()
    page = Page(text)
    assert page.outside == []
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    assert page.links <= page.ids
    shown = " ".join(page.texts)
    for finding in report["findings"]:
        assert finding["title"] in shown
        assert finding["text"] in shown
    for topic in report["topics"]:
        assert f"{topic['summary']['records']:,}" in shown
    drawings = re.findall(r'<svg class="plot.*?</svg>(?=\s*<figc)', text, re.DOTALL)
    assert len(drawings) >= 3 * 4
    for drawing in drawings:
        picture = ET.fromstring(drawing)
        assert picture.get("role") == "img"
        assert len(picture.get("aria-label")) > 20
        assert "nan" not in drawing.lower().replace("nanoseconds", "")
        assert "inf" not in drawing.lower()


def test_times_at_both_ends_of_their_range(tmp_path):
    """They are further apart than int64, in which the table has its columns, can say."""
    largest = 2**63 - 1
    writer = Writer(tmp_path / "logs")
    times = [largest, -largest - 1, 0]
    writer.append([Record(n, time_ms, None, b"v") for n, time_ms in enumerate(times)], now=0)
    writer.close()
    how = ("--upto", "log-end", "--at", str(largest), "--out", str(tmp_path), "--run", "r")
    assert cli.main(["audit", "--logs", str(tmp_path / "logs"), *how]) == FINDINGS
    table = pa_parquet.read_table(tmp_path / "r" / "audit" / "partition_hour.parquet").to_pydict()
    assert max(filter(None, table["delay_p99_9_ms"])) == largest


def test_a_page_of_times_that_int64_cannot_tell_apart(tmp_path):
    with_logs(tmp_path, [(0, some(200, 1)), (1, some(90, 2))])
    how = ("--upto", "log-end", "--at", "0", "--out", str(tmp_path), "--run", "r")
    assert cli.main(["audit", "--logs", str(tmp_path / "logs"), *how]) == FINDINGS
    assert (tmp_path / "r" / "report.html").exists()
