"""The what-if as a command: what is told of a running broker, guards, refusals, and the page it leaves."""

import itertools
import json
import re
import xml.etree.ElementTree as ET

import pytest

from tests.pipeline.jobs.test_audit import Page
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build

pytest.importorskip("numpy")

NOW = 1_767_225_600_000
HOUR, DAY = 3_600_000, 86_400_000
EVENT = "retention.max.eventtime.ms"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A broker whose clock stands still, with what was written to three topics."""
    directory = tmp_path_factory.mktemp("tried") / "data"
    settings = {"log.retention.check.interval.ms": 10**12}
    with BrokerProcess(directory, settings, clock="manual") as broker:
        broker.clock.freeze(NOW)
        with Client(broker.bootstrap) as client:
            own = {"segment.bytes": "200", "segment.min.roll.interval.ms": "0"}
            client.create_topic("week", 2, own | {"retention.ms": str(7 * DAY)})
            client.create_topic("event", 1, own | {EVENT: str(3 * DAY), "retention.ms": "-1"})
            client.create_topic("ever", 1, own | {"retention.ms": "-1"})
            for number in range(12):
                broker.clock.freeze(NOW + number * HOUR)
                time = NOW - (12 - number) * DAY
                data = build([Record(0, time, b"k", b"v" * 60, ())])
                for topic, partition in (("week", 0), ("week", 1), ("event", 0), ("ever", 0)):
                    if partition == 0 or number < 4:
                        client.produce(topic, partition, data)
        yield broker


def whatif(out, *arguments, run="r"):
    status = cli.main(["whatif", "--master", "inline", "--out", str(out), "--run", run, *arguments])
    path = out / run / "report.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def row(report, topic, policy):
    (found,) = [each for each in report["topics"] if each["topic"] == topic]
    return next(each for each in found["retention"] if each["policy"] == policy)


def test_what_is_told_of_what_is_set_is_what_the_broker_then_deletes(house, tmp_path):
    first = NOW + 12 * HOUR
    status, report = whatif(
        tmp_path,
        *("--logs", str(house.log_dir), "--cluster", house.bootstrap, "--at", str(first)),
        *("--horizon", "4d", "--step", "12h", "--policy", "more:retention.ms=1d"),
    )
    assert status == 0
    told, gone = {}, {}
    for topic in report["topics"]:
        for partition in topic["partitions"]:
            now = next(each for each in partition["policies"] if each["policy"] == "now")
            told[topic["topic"], partition["partition"]] = [
                (each["at_ms"], each["base_offset"], each["policy"], each["size"], each["records"])
                for each in now["deleted"]
            ]
            gone[topic["topic"], partition["partition"]] = []
    for at in range(first, first + 4 * DAY + 1, 12 * HOUR):
        house.clock.freeze(at)
        for each in house.sweep():
            records = each["end_offset"] - each["base_offset"]
            gone[each["topic"], each["partition"]].append(
                (at, each["base_offset"], each["policy"], each["size"], records)
            )
    assert told == gone
    assert {key: len(found) for key, found in gone.items()} == {
        ("week", 0): 10,
        ("week", 1): 4,
        ("event", 0): 8,
        ("ever", 0): 0,
    }


def test_policies_side_by_side(house, tmp_path, capsys):
    """`ever` has lost nothing, whatever the test before it made of the others."""
    at = NOW + 12 * HOUR
    status, report = whatif(
        tmp_path,
        *("--logs", str(house.log_dir), "--topics", "ever", "--at", str(at), "--early", "6h"),
        *("--policy", "week:retention.ms=7d", "--policy", f"event:{EVENT}=2d,retention.ms=-1"),
        *("--policy", "append:retention.ms=6h,retention.time.basis=append"),
        *("--guard", "event:max_killed_early=0", "--guard", "max_deleted_records=8"),
    )
    said = capsys.readouterr().out
    assert [
        (
            name,
            row(report, "ever", name)["deleted_records"],
            row(report, "ever", name)["killed_early"],
        )
        for name in ("week", "event", "append")
    ] == [("week", 6, 0), ("event", 9, 2), ("append", 6, 0)]
    assert status == 1
    broken = [(each["guard"], each["policy"], each["value"]) for each in report["broken_guards"]]
    assert broken == [("max_killed_early", "event", 2), ("max_deleted_records", "event", 9)]
    assert "GUARD max_killed_early=0 is broken by policy event: 2" in said
    assert re.search(r"ever: week: deletes .* 6 records, 6 segments\) with the first round\.", said)
    assert row(report, "ever", "week")["first_time_kept_ms"] == NOW - 6 * DAY


def test_the_page_shows_it(house, tmp_path):
    whatif(
        tmp_path,
        *("--logs", str(house.log_dir), "--topics", "ever", "--at", str(NOW + DAY)),
        *("--policy", "week:retention.ms=7d", "--policy", "day:retention.ms=1d"),
        *("--horizon", "8d", "--guard", "max_deleted_bytes=0"),
    )
    text = (tmp_path / "r" / "report.html").read_text()
    page = Page(text)
    assert page.outside == []
    assert page.links <= page.ids
    shown = " ".join(page.texts)
    assert "Policy week breaks max_deleted_bytes=0." in shown
    assert "How the others differ from week" in shown
    drawings = re.findall(r'<svg class="plot.*?</svg>(?=\s*<figc)', text, re.DOTALL)
    for drawing in drawings:
        titles = [each.text for each in ET.fromstring(drawing).iter("title")]
        assert titles == ["week", "day"]
    assert len(drawings) == 1


def test_a_running_cluster_is_sampled_and_the_answer_says_so(house, tmp_path, capsys):
    """Our broker names segments and append times with what it sends; of few batches the answer is exact."""
    how = ("--at", str(NOW + 12 * HOUR), "--horizon", "4d", "--policy", "two:retention.ms=2d")
    how += ("--policy", "small:retention.bytes=500,retention.ms=-1")
    where = ("--logs", str(house.log_dir), "--cluster", house.bootstrap)
    _, exact = whatif(tmp_path, *where, "--topics", "ever", *how, run="exact")
    capsys.readouterr()
    status, sampled = whatif(
        tmp_path, "--bootstrap", house.bootstrap, "--topics", "ever", *how, run="wire"
    )
    assert status == 0
    for name in ("now", "two", "small"):
        known, guessed = row(exact, "ever", name), row(sampled, "ever", name)
        assert (known["is_estimated"], guessed["is_estimated"]) == (False, True)
        assert known | {"is_estimated": True} == guessed
    assert sampled["topics"][0]["curves"] == exact["topics"][0]["curves"]
    assert capsys.readouterr().out.count("(estimated).") == 3
    text = (tmp_path / "wire" / "report.html").read_text()
    assert "All numbers are estimated." in text
    assert house.bootstrap in text


@pytest.mark.slow
def test_a_long_log_is_sampled_and_about_right(tmp_path):
    """A thousand batches seen by fifty of them: sizes and what is deleted are near the truth."""
    from tidelog.pipeline.engine import planned, whatif
    from tidelog.pipeline.source import sampling

    with BrokerProcess(tmp_path / "data", {}, clock="manual") as broker:
        with Client(broker.bootstrap) as client:
            client.create_topic("long", 1, {"segment.bytes": "4000", "retention.ms": "-1"})
            for number in range(1000):
                broker.clock.freeze(NOW + number * HOUR)
                batch = [Record(i, NOW + number * HOUR, None, b"v" * 30, ()) for i in range(3)]
                client.produce("long", 0, build(batch))
        (one,) = sampling.partitions(broker.bootstrap, lambda name: name == "long")
        seen = list(sampling.samples(one, 50))
        size = sum(path.stat().st_size for path in (broker.log_dir / "long-0").glob("*.log"))
    assert len(seen) == 50
    assert (seen[0].start_offset, seen[-1].end_offset) == (0, 3000)
    assert all(a.end_offset == b.start_offset for a, b in itertools.pairwise(seen))
    assert seen[25].append_ms == seen[25].largest_ms
    settings = {"segment.bytes": "4000", "retention.ms": str(500 * HOUR)}
    policy = whatif.policy_of("p", settings)
    now_ms = NOW + 1000 * HOUR
    log = planned.log_of_samples("long", 0, seen, policy.config, now_ms, 0)
    assert log.is_estimated
    assert log.records == 3000
    assert log.size == pytest.approx(size, rel=0.01)
    found = whatif.judge(log, policy, [now_ms]).rounds[0]
    assert found.deleted_records == pytest.approx(1500, abs=2 * 60)  # of a sample each


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to try: give --policy"),
        (["--policy", "retention.ms=7d"], "is no policy"),
        (
            ["--policy", "a:retention.ms=7d", "--policy", "a:retention.ms=8d"],
            "two policies have one name",
        ),
        (["--policy", "a:no.such=7"], "no.such"),
        (["--policy", "a:", "--guard", "b:max_deleted_bytes=1"], "there is no policy 'b'"),
        (["--policy", "a:", "--guard", "most=1"], "is no guard"),
        (["--policy", "a:", "--topics", "none"], "no logs of topics none in "),
        (["--policy", "a:", "--topics", "(("], "is no regular expression"),
        (["--policy", "a:", "--step", "0"], "--step must be more than 0"),
        (["--policy", "a:", "--horizon", "1000w", "--step", "1s"], "take a longer --step"),
        (["--policy", "a:", "--logs", "s3://bucket/logs"], "whatif reads directories"),
        (["--policy", "a:", "--logs", "/no/such"], "/no/such is not a directory"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(house, tmp_path, capsys, arguments, sentence):
    status, report = whatif(tmp_path, "--logs", str(house.log_dir), *arguments)
    assert (status, report) == (2, None)
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_the_same_partition_in_two_directories_is_refused(house, tmp_path, capsys):
    twice = ["--logs", str(house.log_dir), "--logs", str(house.log_dir), "--policy", "a:"]
    assert whatif(tmp_path, *twice)[0] == 2
    assert "in two of the log directories" in capsys.readouterr().err


def test_a_dry_run_reads_nothing(house, tmp_path, capsys):
    logs = ["--logs", str(house.log_dir), "--policy", "a:", "--topics", "ever", "--horizon", "1d"]
    assert whatif(tmp_path / "out", *logs, "--dry-run") == (0, None)
    assert "1 partition, 25 rounds of each policy" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
