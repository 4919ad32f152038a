"""A group moves to another cluster: two brokers, real mirrors, real commits; what it is given there is read.

Who reads there is librdkafka, from the offsets that were committed for it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.broker.subject import eventually
from tests.oracle.brokers import wait_for_markers
from tests.pipeline.jobs.test_mirror import KEEP, everything, fill, filled_topic, mirror
from tests.pipeline.source.test_brokers import transact
from tidelog.client import Client, GroupOffset
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE
from tidelog.pipeline.replay import offset_map
from tidelog.pipeline.replay.offset_map import OffsetRange, PartitionMap
from tidelog.pipeline.report import failover as page
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build

NOON = 1_700_000_000_000
WAIT_S = 60
STAMPED = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """The source: ours, and it compacts without delay."""
    settings = {"log.cleaner.backoff.ms": 50}
    with BrokerProcess(tmp_path_factory.mktemp("source") / "data", settings) as process:
        yield process


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The target of most tests."""
    with BrokerProcess(tmp_path_factory.mktemp("target") / "data") as process:
        yield process


@pytest.fixture(params=["tidelog", pytest.param("kafka", marks=pytest.mark.oracle)])
def target(request):
    """`host:port` of a target of ours, and of Apache Kafka."""
    return request.getfixturevalue("other" if request.param == "tidelog" else "kafka").bootstrap


@pytest.fixture
def run(broker, tmp_path):
    """Runs the job from the source to a target; returns the status and the rows of the report."""

    def started(to, group, *more):
        given = ["--group", group, "--from", broker.bootstrap, "--to", to]
        where = ["--out", str(tmp_path), "--run", "f", "--report", "json"]
        report = tmp_path / "f" / "report.json"
        report.unlink(missing_ok=True)
        status = cli.main(["failover", *given, *where, *more])
        rows = json.loads(report.read_text())["partitions"] if report.exists() else []
        return status, rows

    return started


def disordered(count, seed, *, before=0):
    """Records whose times go back and forth by up to a second; some have none, some are far before 1970."""
    choose = random.Random(seed)
    return [
        Record(
            n,
            choose.choice([NOON - before + 10 * n - choose.randrange(1000)] * 12 + [-1]),
            b"k%d" % choose.randrange(20),
            b"%d of %d" % (n, seed),
            (),
        )
        for n in range(count)
    ]


def commit(bootstrap, group, offsets):
    with Client(bootstrap) as client:
        client.offset_commit(group, {key: GroupOffset(at, "kept") for key, at in offsets.items()})


def committed(bootstrap, group):
    with Client(bootstrap) as client:
        return {key: one.offset for key, one in client.offset_fetch(group).items()}


def given(bootstrap, group, topic, partition):
    """The values a member of the group is given there, from its committed offset to the end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    settings |= {"auto.offset.reset": "error", "enable.partition.eof": True}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_STORED)])
        values = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return values
            values.append(message.value())


def check(bootstrap, group, row, wanted):
    """The group is given every unread record there, and as many others as was predicted."""
    unread = [one.value for one in wanted if one.offset >= row["committed"]]
    values = given(bootstrap, group, row["target_topic"], row["target_partition"])
    assert set(unread) <= set(values)
    proof = row["proof"]
    assert proof["unread"] == proof["covered"] == len(unread)
    assert len(values) - len(unread) == proof["duplicates"]
    assert proof["lost"] == proof["missing"] == 0


# --- by map --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["map", "time"])
def test_a_group_goes_on_where_it_was(broker, target, topic, run, tmp_path, capsys, by):
    wanted = {part: disordered(400, part) for part in (0, 1, 2)}
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 4, KEEP)
        for part, records in wanted.items():
            fill(client, topic, part, records)
    assert mirror(broker.bootstrap, target, topic, tmp_path, "--create") == OK
    wait_for_markers(target, topic, 4)
    at = {(topic, 0): 0, (topic, 1): 217, (topic, 2): 400}  # nothing committed of the fourth
    commit(broker.bootstrap, topic, at)

    known = ("--map", str(tmp_path / "r"), "--by", by)
    if by == "map":
        status, rows = run(target, topic, *known)
        assert status == OK
        said = capsys.readouterr().out
        assert "nothing was changed: --apply commits these offsets" in said
        assert f"{topic}-3: nothing committed, left as it is" in said
        assert committed(target, topic) == {}
    else:  # some have no time, and no margin finds those
        assert run(target, topic, *known, "--max-latency", "1h", "--apply")[0] == OK
    status, rows = run(target, topic, *known, "--apply")
    assert status == OK
    assert [row["proven_by"] for row in rows] == ["map"] * 3
    assert committed(target, topic) == {(topic, row["partition"]): row["offset"] for row in rows}
    for row in rows:
        check(target, topic, row, wanted[row["partition"]])
    assert rows[2]["offset"] == 400 or by == "time"
    if by == "map":
        assert [row["proof"]["duplicates"] for row in rows] == [0, 0, 0]
        with Client(target) as client:
            assert client.offset_fetch(topic)[topic, 0].metadata == "kept"
    else:
        assert rows[1]["proof"]["duplicates"] > 0


def test_rounds_of_a_mirror_that_went_on(broker, other, topic, run, tmp_path):
    first, second = disordered(200, 4), disordered(200, 5)
    follow = ("--create", "--follow", "0.01", "--rounds", "1")
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
        for part in (first, second):
            fill(client, topic, 0, part)
            assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *follow) == OK
        commit(broker.bootstrap, topic, {(topic, 0): 150})
        known = ("--map", str(tmp_path / "r"))
        status, (row,) = run(other.bootstrap, topic, *known)
        assert (status, row["offset"], row["proof"]["unread"]) == (OK, 150, 250)
        # The source grows, the mirror does not: that is reported, and prevents the commit.
        fill(client, topic, 0, disordered(10, 6))
        status, (row,) = run(other.bootstrap, topic, *known, "--apply")
        assert (status, row["status"], row["proof"]["missing"]) == (FINDINGS, "missing", 10)
        assert row["proof"]["first_missing"] == 400
        assert committed(other.bootstrap, topic) == {}
        assert run(other.bootstrap, topic, *known, "--apply", "--accept-missing")[0] == OK
        assert committed(other.bootstrap, topic) == {(topic, 0): 150}


def test_before_the_map_in_its_gaps_and_beyond(broker, other, topic, run, tmp_path):
    records = [Record(n, NOON + (n % 100), b"k", b"%d" % n, ()) for n in range(300)]
    filled_topic(broker.bootstrap, topic, records)
    bounds = ("--create", "--from", str(NOON + 20), "--to", str(NOON + 80))
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *bounds) == OK
    for at, offset, missing, said in (
        (0, 0, 120, "before the map, which begins with 20"),
        (150, 90, 60, None),
        (185, 120, 55, "185 itself was not copied"),
        (290, 180, 10, "beyond the map, which ends before 280"),
        (300, 180, 0, "beyond the map"),
    ):
        commit(broker.bootstrap, topic, {(topic, 0): at})
        status, (row,) = run(other.bootstrap, topic, "--map", str(tmp_path / "r"))
        assert status == (FINDINGS if missing else OK)
        assert (row["offset"], row["proof"]["missing"]) == (offset, missing)
        notes = " ".join(row["notes"])
        assert said in notes if said else not notes


def test_retention_on_both_sides(broker, other, topic, run, tmp_path):
    filled_topic(broker.bootstrap, topic, disordered(300, 7))
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create") == OK
    known = ("--map", str(tmp_path / "r"))
    commit(broker.bootstrap, topic, {(topic, 0): 100})
    delete(broker.bootstrap, topic, 120)  # of the source: the target still has them
    status, (row,) = run(other.bootstrap, topic, *known)
    assert (status, row["offset"], row["proof"]["unread"]) == (OK, 100, 180)
    assert "retention took 20 offsets in the source" in " ".join(row["notes"])
    delete(other.bootstrap, topic, 150)
    status, (row,) = run(other.bootstrap, topic, *known)
    assert (status, row["offset"]) == (FINDINGS, 150)
    assert (row["proof"]["missing"], row["proof"]["first_missing"]) == (30, 120)
    assert "the target begins at 150 now" in " ".join(row["notes"])
    status, (row,) = run(other.bootstrap, topic)  # without the map: 30 are not there
    assert (status, row["proof"]["missing"], row["proven_by"]) == (FINDINGS, 30, "records")


def delete(bootstrap, topic, before):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for one in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        assert one.result(WAIT_S).low_watermark == before


def test_a_compacted_source(broker, other, topic, run, tmp_path):
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "2000",
        "min.cleanable.dirty.ratio": "0",
    }
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, settings | KEEP)
        fill(client, topic, 0, disordered(300, 8), batch=10)
        eventually(lambda: len(everything(client, topic, 0)) < 60, what="compaction")
        left = everything(client, topic, 0)
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create") == OK
    pairs = itertools.pairwise(one.offset for one in left)
    gap = next(before + 1 for before, after in pairs if after > before + 1)
    commit(broker.bootstrap, topic, {(topic, 0): gap})
    status, (row,) = run(other.bootstrap, topic, "--map", str(tmp_path / "r"), "--apply")
    assert (status, row["proof"]["duplicates"], row["proof"]["missing"]) == (OK, 0, 0)
    assert row["proof"]["unread"] == sum(one.offset >= gap for one in left)
    values = given(other.bootstrap, topic, topic, 0)
    unread = [one for one in left if one.offset >= gap]
    latest = {one.key: one.value for one in unread}
    assert set(latest.values()) <= set(values) <= {one.value for one in unread}


def test_a_map_that_is_not_whole_is_not_believed(broker, other, topic, run, tmp_path):
    """It lacks the first records, as after a repeated at-least-once run: they are lost, not missing."""
    filled_topic(broker.bootstrap, topic, disordered(100, 1))
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create") == OK
    path = tmp_path / "r" / offset_map.NAME
    offset_map.write(path, [PartitionMap(topic, 0, topic, 0, (OffsetRange(60, 60, 40),))])
    commit(broker.bootstrap, topic, {(topic, 0): 10})
    known = ("--map", str(path.parent))
    status, (row,) = run(other.bootstrap, topic, *known)
    assert (status, row["offset"], row["proof"]["missing"]) == (FINDINGS, 60, 50)
    report = json.loads((path.parent / "report.json").read_text())
    report["partitions"][0]["map_is_complete"] = False
    (path.parent / "report.json").write_text(json.dumps(report))
    status, (row,) = run(other.bootstrap, topic, *known)
    assert (status, row["offset"]) == (FINDINGS, 60)
    assert (row["proven_by"], row["proof"]["lost"], row["proof"]["missing"]) == ("records", 50, 0)
    assert "records were compared instead" in " ".join(row["notes"])


def test_a_map_of_other_topics_proves_nothing(broker, other, topic, run, tmp_path):
    with Client(broker.bootstrap) as ours, Client(other.bootstrap) as theirs:
        for client, seed in ((ours, 1), (theirs, 2)):
            client.create_topic(topic, 1, KEEP)
            fill(client, topic, 0, disordered(100, seed))
    path = tmp_path / "wrong.parquet"
    offset_map.write(path, [PartitionMap(topic, 0, topic, 0, (OffsetRange(0, 0, 100),))])
    commit(broker.bootstrap, topic, {(topic, 0): 40})
    status, (row,) = run(other.bootstrap, topic, "--map", str(path), "--apply")
    assert (status, row["status"], row["proof"]) == (FINDINGS, "unproven", None)
    assert "the target has another record at 0 than the source at 0" in " ".join(row["notes"])
    assert committed(other.bootstrap, topic) == {}
    assert run(other.bootstrap, topic, "--map", str(path), "--apply", "--accept-unproven")[0] == OK
    assert committed(other.bootstrap, topic) == {(topic, 0): 40}


# --- by time, clusters that were written to apart ------------------------------------------------


def crossed(here, there, topic, times=(1_000, 2_000), *, source=None, target=None):
    """KIP-33's case [1]: m1 is older, and comes first to the target, last to the source.

    The group named like the topic has read up to m2 in the source: m1 is behind it.
    """
    m1, m2 = (Record(0, NOON + at, b"k", b"m%d" % n, ()) for n, at in enumerate(times, 1))
    old = [Record(0, NOON - 10_000 + n, b"k", b"old %d" % n, ()) for n in range(5)]
    for bootstrap, settings, order in ((here, source, [m2, m1]), (there, target, [m1, m2])):
        with Client(bootstrap) as client:
            client.create_topic(topic, 1, KEEP | (settings or {}))
            for one in [*old, *order]:
                client.produce(topic, 0, build([one]))
    commit(here, topic, {(topic, 0): 5})


def test_the_crossed_case_loses_a_record_without_a_margin(broker, target, topic, run, capsys):
    crossed(broker.bootstrap, target, topic)
    status, (row,) = run(target, topic, "--by", "time", "--max-latency", "0", "--apply")
    assert (status, row["status"], row["offset"]) == (FINDINGS, "lost", 6)
    assert (row["proof"]["lost"], row["proof"]["first_lost"], row["proof"]["covered"]) == (1, 6, 1)
    said = capsys.readouterr().out
    assert "LOST: 1 unread record, the first at 6 in the source, is before 6 in the target" in said
    assert f"NOT committed: records of {topic}-0 would be lost" in said
    forced = ("--accept-unproven", "--accept-missing", "--apply")
    assert run(target, topic, "--max-latency", "999ms", *forced)[0] == FINDINGS
    assert committed(target, topic) == {}

    for margin, again in (("1s", 0), ("auto", 0), ("12s", 5)):
        status, (row,) = run(target, topic, "--max-latency", margin, "--apply")
        assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 5 - again, again)
        old = [b"old %d" % n for n in range(5 - again, 5)]
        assert given(target, topic, topic, 0) == [*old, b"m1", b"m2"]


def test_the_latency_an_audit_has_measured(broker, other, topic, run, tmp_path):
    crossed(broker.bootstrap, other.bootstrap, topic)
    where = ["--logs", str(broker.log_dir), "--upto", "log-end", "--topics", topic]
    how = ["--master", "inline", "--out", str(tmp_path), "--run", "a", "--report", "json"]
    assert cli.main(["audit", *where, *how]) in (OK, FINDINGS)
    status, (row,) = run(other.bootstrap, topic, "--audit", str(tmp_path / "a"))
    assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 0, 5)
    assert row["margin_ms"] > 31_536_000_000  # they are from 2023, and were written now
    assert row["margin_from"].startswith("the audit: 7 records took")
    # What it measured of a single record is less than the unread records show.
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    report["topics"][0]["summary"]["delay_ms"] |= {"max": 5, "min": 5, "count": 1}
    (tmp_path / "a" / "report.json").write_text(json.dumps(report))
    status, (row,) = run(other.bootstrap, topic, "--audit", str(tmp_path / "a"))
    assert (status, row["offset"], row["proof"]["lost"], row["margin_ms"]) == (OK, 5, 0, 1000)
    assert row["margin_from"].endswith("by more; the audit of 1 record has 5 ms")
    assert run(other.bootstrap, topic, "--audit", str(tmp_path / "nothing"))[0] == USAGE


def test_absurd_times_do_not_widen_the_margin(broker, target, topic, run, capsys):
    """Producers that sent seconds and microseconds: audit finds them implausible, and so does this job."""
    times = [NOON + 100 * n for n in range(40)]
    records = [Record(0, at, b"k", b"%d" % n, ()) for n, at in enumerate(times)]
    records[25] = Record(0, NOON // 1000, b"k", b"seconds", ())
    records[30] = Record(0, NOON * 1000, b"k", b"microseconds", ())
    with Client(broker.bootstrap) as ours, Client(target) as theirs:
        for client in (ours, theirs):
            client.create_topic(topic, 1, KEEP)
            for one in records:
                client.produce(topic, 0, build([one]))
    commit(broker.bootstrap, topic, {(topic, 0): 20})
    status, (row,) = run(target, topic, "--apply")
    assert (row["margin_ms"], row["next_offset"], row["search_ms"]) == (0, 20, times[20])
    assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 20, 0)
    said = (
        "2 unread records have times that cannot be right, the first at 25, of 1970-01-20 16:13:20Z:"
        " the margin leaves them out"
    )
    assert said in row["notes"]
    assert said in capsys.readouterr().out
    # The next unread record itself is absurd: the next one that is plausible is searched for.
    commit(broker.bootstrap, topic, {(topic, 0): 25})
    status, (row,) = run(target, topic, "--max-latency", "0")
    assert (row["next_offset"], row["search_ms"]) == (26, times[26])
    assert (status, row["offset"], row["proof"]["first_lost"]) == (FINDINGS, 26, 25)
    status, (row,) = run(target, topic)
    assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 25, 0)
    assert "the group continues at 25 instead" in " ".join(row["notes"])


def alter(bootstrap, topic, value):
    """Sets the type of the times of a topic."""
    entry = ConfigEntry(
        "message.timestamp.type",
        value,
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for one in admin.incremental_alter_configs([resource]).values():
        one.result(WAIT_S)


def test_one_record_does_not_decide_for_the_others(broker, other, topic, run):
    """One of the broker's stamps among event times, and times in seconds that are all that is unread."""
    times = [NOON + 100 * n for n in range(38)] + [NOON // 1000 + n for n in range(2)]
    with Client(broker.bootstrap) as ours, Client(other.bootstrap) as theirs:
        for client in (ours, theirs):
            client.create_topic(topic, 1, KEEP)
        for n, at in enumerate(times):
            data = build([Record(0, at, b"k", b"%d" % n, ())])
            if n in {25, 26}:
                alter(broker.bootstrap, topic, "LogAppendTime" if n == 25 else "CreateTime")
            for client in (ours, theirs):
                client.produce(topic, 0, data)
    commit(broker.bootstrap, topic, {(topic, 0): 20})
    status, (row,) = run(other.bootstrap, topic)
    assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 20, 0)
    assert row["margin_from"].startswith("17 unread records: none is older")
    assert "1 unread record stamped by the broker, the first at 25" in " ".join(row["notes"])
    # Of these times it is known only that they are wrong: the records themselves are searched.
    commit(broker.bootstrap, topic, {(topic, 0): 38})
    status, (row,) = run(other.bootstrap, topic)
    assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 38, 0)
    status, (row,) = run(other.bootstrap, topic, "--compare", "1")
    assert (status, row["status"], row["offset"]) == (FINDINGS, "refused", None)


def test_a_target_that_stamps(broker, other, topic, run):
    crossed(broker.bootstrap, other.bootstrap, topic, target=STAMPED)
    status, (row,) = run(other.bootstrap, topic, "--apply")
    # Its stamps are years after the event times: all is found, and all is read again.
    assert (status, row["offset"], row["proof"]["duplicates"]) == (OK, 0, 5)
    assert "the target gives records times of its own" in " ".join(row["notes"])
    assert given(other.bootstrap, topic, topic, 0)[-2:] == [b"m1", b"m2"]


def test_a_source_that_stamps_needs_a_margin(broker, other, topic, run, capsys):
    crossed(broker.bootstrap, other.bootstrap, topic, source=STAMPED)
    status, (row,) = run(other.bootstrap, topic, "--apply")
    assert (status, row["status"], row["offset"]) == (FINDINGS, "refused", None)
    assert "all 2 unread records are the broker's stamps, which say nothing of latency" in " ".join(
        row["notes"]
    )
    assert "NOT committed: no offset was found" in capsys.readouterr().out
    status, (row,) = run(other.bootstrap, topic, "--max-latency", "0")
    assert (status, row["proof"]["lost"], row["offset"]) == (FINDINGS, 2, 7)
    status, (row,) = run(other.bootstrap, topic, "--max-latency", "36500d")
    assert (status, row["proof"]["lost"], row["offset"]) == (OK, 0, 0)


def test_records_without_a_time(broker, other, topic, run, tmp_path):
    timed = Record(0, NOON, b"k", b"timed", ())
    without = [Record(0, -1, b"k", b"%d" % n, ()) for n in range(4)]
    with Client(broker.bootstrap) as ours, Client(other.bootstrap) as theirs:
        for client in (ours, theirs):
            client.create_topic(topic, 2, KEEP)
            for one in [*without, timed]:
                client.produce(topic, 0, build([one]))
            client.produce(topic, 1, build([without[0]]))
    commit(broker.bootstrap, topic, {(topic, 0): 2})
    status, (row,) = run(other.bootstrap, topic)
    assert (status, row["offset"], row["proof"]["lost"]) == (FINDINGS, 4, 2)
    assert "2 unread records without a time" in row["notes"]
    commit(broker.bootstrap, topic, {(topic, 0): 5, (topic, 1): 0})
    status, (first, second) = run(other.bootstrap, topic)
    assert (first["status"], first["offset"], first["proof"]["unread"]) == ("ok", 5, 0)
    assert (status, second["status"]) == (FINDINGS, "refused")
    assert "none of the 1 unread record has a time: use --map" in second["notes"]


# --- Apache Kafka as the source, and times it cannot be asked for --------------------------------


@pytest.mark.oracle
def test_transactions_of_the_source(kafka, other, topic, tmp_path):
    with Client(kafka.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for number in range(20):
        values = [b"%d.%d" % (number, n) for n in range(5)]
        transact(producer, topic, values, commit=number % 3 > 0)
    wait_for_markers(kafka.bootstrap, topic)
    assert mirror(kafka.bootstrap, other.bootstrap, topic, tmp_path, "--create") == OK
    with Client(kafka.bootstrap) as client:
        left = everything(client, topic, 0)
    for at in (0, 25, 60):
        commit(kafka.bootstrap, topic, {(topic, 0): at})
        where = ["--group", topic, "--from", kafka.bootstrap, "--to", other.bootstrap]
        how = ["--map", str(tmp_path / "r"), "--apply", "--out", str(tmp_path), "--run", "f"]
        assert cli.main(["failover", *where, *how]) == OK
        unread = [one.value for one in left if one.offset >= at]
        assert given(other.bootstrap, topic, topic, 0) == unread


@pytest.mark.oracle
def test_a_target_that_cannot_search_before_1970(broker, kafka, topic, run):
    crossed(broker.bootstrap, kafka.bootstrap, topic, (-1_000 - NOON, -NOON))  # at -1000 and at 0
    status, (row,) = run(kafka.bootstrap, topic, "--apply")
    assert (status, row["search_ms"], row["offset"]) == (OK, -1_000, 0)
    assert "cannot search before 1970" in " ".join(row["notes"])
    assert row["proof"]["duplicates"] == 5
    assert given(kafka.bootstrap, topic, topic, 0)[-2:] == [b"m1", b"m2"]


# --- what holds a commit back --------------------------------------------------------------------


def wait_until_empty(bootstrap, group):
    """A consumer that leaves does not wait long for the answer, if at all."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def is_empty():
        (described,) = admin.describe_consumer_groups([group]).values()
        return not described.result(WAIT_S).members

    eventually(is_empty, what="an empty group")


def test_a_group_with_members_there_keeps_its_offsets(broker, other, topic, run, capsys):
    crossed(broker.bootstrap, other.bootstrap, topic)
    settings = {"bootstrap.servers": other.bootstrap, "group.id": topic}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), what="a member")
        assert run(other.bootstrap, topic, "--apply")[0] == FAILED
        said = f"group {topic} has members in {other.bootstrap}: stop them first"
        assert said in capsys.readouterr().err
    wait_until_empty(other.bootstrap, topic)
    assert run(other.bootstrap, topic, "--apply")[0] == OK
    assert committed(other.bootstrap, topic) == {(topic, 0): 5}


def test_a_group_that_still_reads_is_seen(broker, other, topic, run, capsys, monkeypatch):
    crossed(broker.bootstrap, other.bootstrap, topic)
    table = page.table

    def meanwhile(rows):
        commit(broker.bootstrap, topic, {(topic, 0): 6})
        return table(rows)

    monkeypatch.setattr(page, "table", meanwhile)
    assert run(other.bootstrap, topic, "--apply")[0] == FAILED
    said = capsys.readouterr().err
    assert f"still reads {topic}-0" in said
    assert "it has committed 6 since, and had 5" in said
    assert committed(other.bootstrap, topic) == {}


def test_what_is_committed_there_is_said(broker, other, topic, run):
    crossed(broker.bootstrap, other.bootstrap, topic)
    commit(other.bootstrap, topic, {(topic, 0): 7})
    status, (row,) = run(other.bootstrap, topic)
    assert (status, row["committed_on_target"]) == (OK, 7)
    assert "has committed 7 there already" in " ".join(row["notes"])


def test_mistakes_are_told(broker, other, topic, run, capsys, tmp_path):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
    for more, said in (
        ((), f"group {topic} has committed nothing in"),
        (("--by", "map"), "--by map needs --map"),
        (("--map", str(tmp_path)), "there is no offsets.parquet"),
        (("--compare", "0"), "--compare: a number above 0"),
    ):
        assert run(other.bootstrap, topic, *more)[0] == USAGE
        assert said in capsys.readouterr().err
    commit(broker.bootstrap, topic, {(topic, 0): 0})
    for more, said in (
        ((), f"has no topic {topic}"),
        (
            ("--topics", "another"),
            f"has committed nothing of another in {broker.bootstrap}: only of",
        ),
    ):
        assert run(other.bootstrap, topic, *more)[0] == USAGE
        assert said in capsys.readouterr().err
    with Client(other.bootstrap) as client:
        client.create_topic(f"{topic}-there", 1, KEEP)
    commit(broker.bootstrap, topic, {(topic, 0): 3})
    status, (row,) = run(other.bootstrap, topic, "--rename", f"{topic}={topic}-there")
    assert (status, row["status"]) == (FINDINGS, "refused")
    assert "has committed 3, and the source ends at 0" in " ".join(row["notes"])
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    assert run(other.bootstrap, topic, "--map", str(tmp_path / "bad.parquet"))[0] == FAILED
    assert "is no map of offsets" in capsys.readouterr().err


def test_the_page_has_the_numbers(broker, other, topic, tmp_path):
    crossed(broker.bootstrap, other.bootstrap, topic)
    where = ["--from", broker.bootstrap, "--to", other.bootstrap, "--group", topic]
    how = ["--out", str(tmp_path), "--run", "p", "--max-latency", "0"]
    assert cli.main(["failover", *where, *how]) == FINDINGS
    page = (tmp_path / "p" / "report.html").read_text()
    assert '<td class="number alarm" data-head="lost">1</td>' in page
    assert "the first at 6 in the source" in page
    assert "http" not in page.replace("http-equiv", "")
