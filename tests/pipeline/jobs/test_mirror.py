"""Mirroring without Spark: what arrives, where, with which times; runs again; who is refused.

The tasks are the ones Spark distributes (tests/pipeline/test_masters.py); here they are done in this process.
"""

from __future__ import annotations

import json
import random
import time

import pytest
from kafka import KafkaAdminClient

from tests.broker.subject import eventually
from tests.pipeline.offset_maps import target_offset_of
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE
from tidelog.pipeline.replay import offset_map
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.protocol.records.layout import INT64_MAX, Compression

TIMES = (-62135596800000, -(2**63), -86_400_000, -2, -1, 0, 1, 1_700_000_000_000, INT64_MAX)
KEEP = {"retention.ms": "-1"}


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A second broker of ours."""
    with BrokerProcess(tmp_path_factory.mktemp("other") / "data") as process:
        yield process


@pytest.fixture(params=["tidelog", pytest.param("kafka", marks=pytest.mark.oracle)])
def target(request):
    """`host:port` of where is mirrored to."""
    name = "other" if request.param == "tidelog" else "kafka"
    return request.getfixturevalue(name).bootstrap


def some(count, seed, *, odd=True):
    """Random records with every kind of time, nulls, empty fields and headers."""
    choose = random.Random(seed)
    return [
        Record(
            n,
            choose.choice(TIMES) if odd else 1_600_000_000_000 + n,
            choose.choice([None, b"", b"key-%d" % choose.randrange(50)]),
            choose.choice([None, b"", choose.randbytes(choose.randrange(300))]),
            choose.choice([(), ((b"h", b"x"), (b"h", None), (b"", b""))]),
        )
        for n in range(count)
    ]


def fill(client, topic, partition, wanted, batch=40):
    for number, start in enumerate(range(0, len(wanted), batch)):
        part = [one._replace(offset=n) for n, one in enumerate(wanted[start : start + batch])]
        client.produce(topic, partition, build(part, compression=list(Compression)[number % 5]))


def filled_topic(bootstrap, topic, *partitions, **settings):
    """A topic that keeps everything, with these records in its partitions."""
    with Client(bootstrap) as client:
        client.create_topic(topic, len(partitions), KEEP | settings)
        for number, records in enumerate(partitions):
            fill(client, topic, number, records)


def everything(client, topic, partition):
    """Every data record of a partition that a consumer would be given who reads committed.

    A coordinator says that a transaction is committed before the log does: that is waited for.
    """
    found, offset = [], 0
    deadline = time.monotonic() + 60
    aborting = set()
    end = client.end_offset(topic, partition)
    while offset < end:
        fetched = client.fetch(topic, partition, offset, isolation=1)
        begins = sorted(fetched.aborted, key=lambda one: one[1])
        assert len(fetched.records) or time.monotonic() < deadline, "nothing comes"
        last = offset
        for head in scan(fetched.records):
            aborting |= {producer for producer, first in begins if first <= head.last_offset}
            begins = [one for one in begins if one[1] > head.last_offset]
            if head.is_control:
                aborting.discard(head.producer_id)
            elif not (head.is_transactional and head.producer_id in aborting):
                found += [one for one in records(fetched.records, head) if one.offset >= offset]
            last = head.last_offset + 1
        offset = last
    return found


def plain(found):
    return [one._replace(offset=0) for one in found]


@pytest.fixture
def filled(broker, topic):
    """A topic of three partitions, one of them empty, and its records."""
    wanted = {0: some(500, 1), 1: [], 2: some(333, 2)}
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 3, KEEP)
        for partition, one in wanted.items():
            fill(client, topic, partition, one)
    return topic, wanted


def mirror(source, to, topic, out, *more, logs=()):
    """Mirrors a topic of brokers, or of log directories; returns the exit status."""
    where = ("--logs", *logs) if logs else ("--brokers", source)
    how = ("--master", "inline", "--out", str(out), "--run", "r", "--set", "retention.ms=-1")
    return cli.main(["mirror", *where, "--to-brokers", to, "--topics", topic, *how, *more])


def check(target, topic, wanted, out, run="r"):
    """Every record is in the target once and in order, and the map says where."""
    maps = {one.source_partition: one for one in offset_map.read(out / run / "offsets.parquet")}
    with Client(target) as client:
        for partition, expected in wanted.items():
            found = everything(client, topic, partition)
            assert plain(found) == plain(expected)
            if not expected:
                continue
            runs = maps[partition].runs
            assert sum(one.count for one in runs) == len(expected)
            assert [target_offset_of(runs, n) for n in range(len(expected))] == [
                one.offset for one in found
            ]


@pytest.mark.parametrize("compression", ["source", "none", "zstd"])
def test_what_arrives_is_what_was_there(broker, target, filled, tmp_path, compression):
    topic, wanted = filled
    delivered = ("--compression", compression, "--create")
    assert mirror(broker.bootstrap, target, topic, tmp_path, *delivered) == OK
    check(target, topic, wanted, tmp_path)


def test_a_run_again_finds_all_there(broker, target, filled, tmp_path):
    topic, wanted = filled
    assert mirror(broker.bootstrap, target, topic, tmp_path, "--create") == OK
    with Client(broker.bootstrap) as client:  # the source goes on, the run is frozen
        fill(client, topic, 0, some(10, 3))
    for _ in range(2):
        assert mirror(broker.bootstrap, target, topic, tmp_path, "--create") == OK
        report = json.loads((tmp_path / "r" / "report.json").read_text())
        assert (report["records"], report["records_found"]) == (833, 833)
        assert "Every record is there once." in (tmp_path / "r" / "report.html").read_text()
    check(target, topic, wanted, tmp_path)


def test_a_new_run_doubles_nothing_unasked(broker, target, filled, tmp_path, capsys):
    """Not under another name, nor from another directory: that has no plan of the run."""
    topic, wanted = filled
    assert mirror(broker.bootstrap, target, topic, tmp_path, "--create") == OK
    check(target, topic, wanted, tmp_path)
    capsys.readouterr()
    assert mirror(broker.bootstrap, target, topic, tmp_path / "elsewhere", "--create") == USAGE
    said = capsys.readouterr().err
    with Client(target) as client:
        held = client.end_offset(topic, 0) + client.end_offset(topic, 2)
    assert f"topic {topic} of the target already holds records ({held} offsets)" in said
    assert "say --append" in said
    assert not (tmp_path / "elsewhere" / "r" / "plan.json").exists()
    check(target, topic, wanted, tmp_path)
    with Client(broker.bootstrap) as client:
        client.create_topic(f"{topic}-more", 3, KEEP)
        fill(client, f"{topic}-more", 0, some(50, 3))
    behind = ("--append", "--rename", f"{topic}-more={topic}")
    more = f"{topic}-more"
    assert mirror(broker.bootstrap, target, more, tmp_path / "elsewhere", *behind) == OK
    with Client(target) as client:
        assert plain(everything(client, topic, 0)) == plain(wanted[0] + some(50, 3))


def test_lookups_by_time_are_equal_on_both_sides(broker, other, topic, tmp_path):
    wanted = some(2000, 7)
    with Client(broker.bootstrap) as source, Client(other.bootstrap) as mirrored:
        source.create_topic(topic, 1, KEEP)
        fill(source, topic, 0, wanted)
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create") == OK
        for time_ms in (-(2**62), -62135596800001, -86_400_000, -7, 0, 1, 2, 1_700_000_000_001):
            assert source.list_offsets(topic, {0: time_ms}) == mirrored.list_offsets(
                topic, {0: time_ms}
            )


def test_a_topic_that_stamps_restamps(broker, other, filled, tmp_path):
    topic, wanted = filled
    stamped = ("--create", "--set", "message.timestamp.type=LogAppendTime")
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *stamped) == OK
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *stamped) == OK
    with Client(other.bootstrap) as client:
        found = everything(client, topic, 0)
    assert [one._replace(timestamp=0) for one in plain(found)] == [
        one._replace(timestamp=0) for one in plain(wanted[0])
    ]
    assert min(one.timestamp for one in found) > 1_700_000_000_000
    assert max(one.timestamp for one in found) < INT64_MAX


def test_event_times_select(broker, other, filled, tmp_path):
    topic, wanted = filled
    bounds = ("--create", "--from", "-86400000", "--to", "1")
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *bounds) == OK
    chosen = {
        partition: [
            one for one in given if -86_400_000 <= one.timestamp < 1 and one.timestamp != -1
        ]
        for partition, given in wanted.items()
    }
    with Client(other.bootstrap) as client:
        for partition, given in chosen.items():
            assert plain(everything(client, topic, partition)) == plain(given)
    maps = {
        one.source_partition: one for one in offset_map.read(tmp_path / "r" / "offsets.parquet")
    }
    for partition in (0, 2):
        runs = maps[partition].runs
        assert [target_offset_of(runs, one.offset) for one in chosen[partition]] == list(
            range(len(chosen[partition]))
        )


@pytest.mark.parametrize("follow", [(), ("--follow", "0.01", "--rounds", "1")])
def test_a_time_from_now_on_may_be_repeated(broker, other, topic, tmp_path, capsys, follow):
    now_ms = time.time_ns() // 1_000_000
    wanted = [Record(n, now_ms - hours * 3_600_000, None, b"v") for n, hours in enumerate([3, 1])]
    filled_topic(broker.bootstrap, topic, wanted)
    given = ("--create", "--from", "-2h", "--to", "now", *follow)
    for _ in range(2):
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *given) == OK
    with Client(other.bootstrap) as client:
        assert plain(everything(client, topic, 0)) == plain(wanted[1:])
    given = ("--create", "--from", "-1h", "--to", "now", *follow)
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *given) == USAGE
    assert "was started with --from -2h, and is now asked for --from -1h" in capsys.readouterr().err


def test_logs_of_a_directory_are_mirrored_too(broker, other, filled, tmp_path):
    topic, wanted = filled
    how = ("--create", "--upto", "log-end")
    logs = [str(broker.log_dir)]
    assert mirror(None, other.bootstrap, topic, tmp_path, *how, logs=logs) == OK
    check(other.bootstrap, topic, wanted, tmp_path)


def test_a_dry_run_writes_nothing(broker, other, filled, tmp_path, capsys):
    topic, _ = filled
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--dry-run") == OK
    said = capsys.readouterr().out
    assert f"{topic}-0: offsets 0 to 500 (500), 1 split" in said
    assert not (tmp_path / "r").exists()
    with Client(other.bootstrap) as client:
        assert not client.has_topic(topic)


def test_a_topic_that_is_not_there_is_said(broker, other, filled, tmp_path, capsys):
    topic, _ = filled
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path) == USAGE
    assert f"the target has no topic {topic}: make it, or say --create" in capsys.readouterr().err
    assert mirror(broker.bootstrap, other.bootstrap, "nothing", tmp_path / "x") == USAGE
    assert "nothing" in capsys.readouterr().err


def test_too_few_partitions_are_refused(broker, other, filled, tmp_path, capsys):
    topic, _ = filled
    with Client(other.bootstrap) as client:
        client.create_topic(topic, 2, KEEP)
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path) == USAGE
    assert "has 2 partitions in the target, and 3 are needed" in capsys.readouterr().err


def test_a_circle_is_refused(broker, filled, tmp_path, capsys):
    topic, wanted = filled
    assert mirror(broker.bootstrap, broker.bootstrap, topic, tmp_path) == USAGE
    assert "give each another name" in capsys.readouterr().err
    renamed = ("--create", "--rename", f"{topic}={topic}-copy")
    assert mirror(broker.bootstrap, broker.bootstrap, topic, tmp_path, *renamed) == OK
    check(broker.bootstrap, f"{topic}-copy", wanted, tmp_path)


def test_what_the_targets_window_rejects_is_said(broker, other, filled, tmp_path, capsys):
    topic, _ = filled
    limited = ("--create", "--set", "message.timestamp.before.max.ms=1000")
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *limited) == FAILED
    said = capsys.readouterr().err
    assert f"{topic}-0: writing to {topic}-0: INVALID_TIMESTAMP" in said
    shown = (tmp_path / "r" / "report.html").read_text()
    assert "It stopped." in shown
    assert "INVALID_TIMESTAMP" in shown


def test_following_goes_on_where_it_ended(broker, target, topic, tmp_path):
    first, second = some(300, 4), some(200, 5)
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
        fill(client, topic, 0, first)
        follow = ("--create", "--follow", "0.01", "--rounds", "1")
        assert mirror(broker.bootstrap, target, topic, tmp_path, *follow) == OK
        fill(client, topic, 0, second)
        for _ in range(3):  # the second finds nothing new
            assert mirror(broker.bootstrap, target, topic, tmp_path, *follow) == OK
    with Client(target) as client:
        assert plain(everything(client, topic, 0)) == plain(first + second)
    rounds = sorted(path.name for path in (tmp_path / "r").iterdir())
    assert rounds == ["round-000000", "round-000001"]
    (one,) = offset_map.read(tmp_path / "r" / rounds[1] / "offsets.parquet")
    assert (one.runs[0].source_offset, sum(run.count for run in one.runs)) == (300, 200)


# --- what is not as it was when the run began ------------------------------------------------------


def delete(bootstrap, topic):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.delete_topics([topic])
    finally:
        admin.close()
    with Client(bootstrap) as client:
        eventually(lambda: not client.has_topic(topic))


@pytest.mark.parametrize("count", [100, 300, 400])
def test_a_source_that_was_made_anew_is_another(broker, other, topic, tmp_path, capsys, count):
    """Of as many records, or fewer, or more than were read of the one before."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
        fill(client, topic, 0, some(300, 4))
        follow = ("--create", "--follow", "0.01", "--rounds", "1")
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path / "f", *follow) == OK
        renamed = ("--create", "--rename", f"{topic}={topic}-once")
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path / "o", *renamed) == OK
        delete(broker.bootstrap, topic)
        client.create_topic(topic, 1, KEEP)
        fill(client, topic, 0, some(count, 5))
    if count != 300:  # else there is nothing new, as far as offsets tell
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path / "f", *follow) == FAILED
        assert "recreated" in capsys.readouterr().err
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path / "o", *renamed) == FAILED
    assert "recreated" in capsys.readouterr().err


def test_two_topics_are_not_written_to_one(broker, other, topic, tmp_path, capsys):
    with Client(broker.bootstrap) as client:
        for number in (1, 2):
            client.create_topic(f"{topic}-{number}", 1, KEEP)
            fill(client, f"{topic}-{number}", 0, some(50, number))
    both = f"{topic}-1,{topic}-2"
    more = ("--create", "--rename", f"{topic}-2={topic}-1", "--delivery", "at-least-once")
    assert mirror(broker.bootstrap, other.bootstrap, both, tmp_path, *more) == USAGE
    assert f"{topic}-1 and {topic}-2 would both be written to" in capsys.readouterr().err


def test_following_goes_on_behind_a_round_that_is_vague(broker, other, topic, tmp_path):
    """At least once: after a repetition it is unknown where the first records are, but they are there."""
    first, second = some(300, 4), some(200, 5)
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
        fill(client, topic, 0, first)
        shared = ("--create", "--delivery", "at-least-once", "--follow", "0.01", "--rounds", "1")
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *shared) == OK
        (tmp_path / "r" / "round-000000" / "report.json").unlink()  # as if stopped before the end
        fill(client, topic, 0, second)
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *shared) == FINDINGS
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *shared) == OK
    with Client(other.bootstrap) as client:
        assert plain(everything(client, topic, 0)) == plain(first + second)


@pytest.mark.parametrize("limit", ["max.message.bytes=400", "segment.bytes=400"])
def test_batches_fit_into_a_target_that_takes_small_ones(broker, other, topic, tmp_path, limit):
    wanted = [Record(n, n, None, b"v" * 40) for n in range(100)]
    filled_topic(broker.bootstrap, topic, wanted)
    small = ("--create", "--set", limit)
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *small) == OK
    check(other.bootstrap, topic, {0: wanted}, tmp_path)
