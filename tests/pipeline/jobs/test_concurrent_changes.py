"""What changes while a job is at work, or between two tries of a run: nothing is lost in silence."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest
from kafka import KafkaAdminClient, TopicPartition

from tests.pipeline.jobs.test_killed_replays import ListSource, made, stored, task_of
from tests.pipeline.jobs.test_mirror import (
    KEEP,
    check,
    delete,
    everything,
    fill,
    filled_topic,
    mirror,
    plain,
    some,
)
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED, OK
from tidelog.pipeline.replay import offset_map
from tidelog.pipeline.replay.delivery import AT_LEAST_ONCE, POSITION, TRANSACTIONS
from tidelog.pipeline.replay.replay import replay_partition
from tidelog.pipeline.source import fetching
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A second broker of ours."""
    with BrokerProcess(tmp_path_factory.mktemp("other") / "data") as process:
        yield process


def after_fetches(monkeypatch, number, do):
    """Do something once, when a source of brokers has been read so many times, little at a time."""
    monkeypatch.setattr(fetching, "FETCH_BYTES", 2000)
    begin, seen = fetching.Fetches.begin, []

    def counted(*arguments):
        seen.append(1)
        if len(seen) == number:
            do()
        return begin(*arguments)

    monkeypatch.setattr(fetching.Fetches, "begin", counted)


def make_anew(bootstrap, topic, records):
    """Delete a topic of one partition, and make another of its name."""
    delete(bootstrap, topic)
    filled_topic(bootstrap, topic, records)


def archive(source, topic, to, out, run="r"):
    given = ["archive", "--brokers", source, "--topics", topic, "--to", str(to), "--run", run]
    return cli.main([*given, "--out", str(out), "--master", "inline"])


# --- a topic that is recreated ---------------------------------------------------------------------


def test_a_source_made_anew_while_it_is_read(broker, other, topic, tmp_path, monkeypatch, capsys):
    filled_topic(broker.bootstrap, topic, some(400, 1))
    after_fetches(monkeypatch, 3, lambda: make_anew(broker.bootstrap, topic, some(500, 2)))
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create") == FAILED
    assert f"topic {topic} of the source is not the one that was planned" in capsys.readouterr().err
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create") == FAILED


def test_a_topic_made_anew_while_it_is_archived(broker, topic, tmp_path, monkeypatch, capsys):
    filled_topic(broker.bootstrap, topic, some(400, 1))
    after_fetches(monkeypatch, 3, lambda: make_anew(broker.bootstrap, topic, some(500, 2)))
    for _ in range(2):  # the plan is that of the topic before
        assert archive(broker.bootstrap, topic, tmp_path / "to", tmp_path / "out") == FAILED
        assert f"topic {topic} was recreated" in capsys.readouterr().err
    assert not (tmp_path / "to" / "_manifest").exists()


def test_following_remembers_every_topic_it_has_read(broker, other, topic, tmp_path, capsys):
    """Also one that had nothing new in the round before."""
    one, two = f"{topic}-one", f"{topic}-two"
    with Client(broker.bootstrap) as client:
        for name in (one, two):
            client.create_topic(name, 1, KEEP)
            fill(client, name, 0, some(100, 1))
        follow = ("--create", "--follow", "0.01", "--rounds", "1")
        both = f"{one},{two}"
        assert mirror(broker.bootstrap, other.bootstrap, both, tmp_path, *follow) == OK
        fill(client, one, 0, some(50, 2))
        assert mirror(broker.bootstrap, other.bootstrap, both, tmp_path, *follow) == OK
        make_anew(broker.bootstrap, two, some(120, 3))
        assert mirror(broker.bootstrap, other.bootstrap, both, tmp_path, *follow) == FAILED
    assert f"topic {two} of the source is not the one" in capsys.readouterr().err


@dataclasses.dataclass(frozen=True)
class Meanwhile(ListSource):
    """A source that lets something happen once it has handed over so many rows."""

    after: int = 0
    do: object = None

    def read(self):
        for number, rows in enumerate(super().read()):
            if number * self.step == self.after:
                self.do()
            yield rows


@pytest.mark.parametrize(
    "mode", [AT_LEAST_ONCE, pytest.param(TRANSACTIONS, marks=pytest.mark.oracle)]
)
def test_a_target_made_anew_while_it_is_written(request, topic, mode):
    name = "kafka" if mode == TRANSACTIONS else "broker"
    bootstrap = request.getfixturevalue(name).bootstrap
    wanted = some(1000, 4)
    made(bootstrap, topic)
    task = task_of(bootstrap, topic, wanted, mode)
    anew = Meanwhile(tuple(wanted), 50, 500, lambda: make_anew(bootstrap, topic, []))
    outcome = replay_partition(dataclasses.replace(task, source=anew))
    if mode == AT_LEAST_ONCE:  # the others are in a transaction that nobody commits
        assert len(stored(bootstrap, topic)) < len(wanted)
    assert outcome.error is not None
    assert "deleted" in outcome.error


@pytest.mark.parametrize("how", [(), ("--delivery", AT_LEAST_ONCE)])
def test_a_repetition_keeps_the_map_of_what_is_gone_from_the_source(
    broker, other, topic, tmp_path, monkeypatch, how
):
    """Retention takes what a run that is over has read; failover still goes by the map."""
    wanted = some(300, 7)
    filled_topic(broker.bootstrap, topic, wanted)
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create", *how) == OK

    def retention():
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            admin.delete_records({TopicPartition(topic, 0): 120})
        finally:
            admin.close()

    after_fetches(monkeypatch, 1, retention)
    assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create", *how) == FAILED
    check(other.bootstrap, topic, {0: wanted}, tmp_path)


# --- two at once ----------------------------------------------------------------------------------


def test_a_run_is_at_work_once(broker, other, topic, tmp_path, monkeypatch, capsys):
    """Two that both found no plan would each make one, and write each record twice."""
    wanted = some(300, 5)
    filled_topic(broker.bootstrap, topic, wanted)
    statuses, begun, go_on = [], threading.Event(), threading.Event()

    def wait():
        begun.set()
        assert go_on.wait(60)

    after_fetches(monkeypatch, 1, wait)
    run = lambda: statuses.append(
        mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, "--create")
    )
    first = threading.Thread(target=run)
    first.start()
    try:
        assert begun.wait(60)
        (tmp_path / "r" / "plan.json").rename(tmp_path / "r" / "plan.kept")  # not written yet, say
        run()
        (tmp_path / "r" / "plan.kept").rename(tmp_path / "r" / "plan.json")
    finally:
        go_on.set()
        first.join(60)
    assert statuses == [FAILED, OK]
    assert "run r is at work in another process" in capsys.readouterr().err
    with Client(other.bootstrap) as client:
        assert plain(everything(client, topic, 0)) == plain(wanted)


# --- partitions -----------------------------------------------------------------------------------


def test_a_topic_of_directories_keeps_its_empty_partitions(broker, other, topic, tmp_path):
    """Else keys would go elsewhere from then on."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 4, KEEP)
        fill(client, topic, 1, [Record(0, 5, b"k", b"v")])
    how = ("--create", "--upto", "log-end")
    logs = [str(broker.log_dir)]
    assert mirror(None, other.bootstrap, topic, tmp_path, *how, logs=logs) == OK
    with Client(other.bootstrap) as client:
        assert client.partition_count(topic) == 4


# --- rounds, and others who write -------------------------------------------------------------------


def delivery_of(directory, number):
    return json.loads((directory / f"r/round-{number:06d}/report.json").read_text())["delivery"]


def test_a_round_of_nothing_makes_no_partition_ours(
    broker, other, topic, tmp_path, without_transactions
):
    """What others have in the target, and go on to write there, is not in the way."""
    theirs = [Record(n, 5, b"theirs", b"") for n in range(10)]
    late = [Record(n, 5_000_000_000_000 + n, None, b"v") for n in range(200)]
    with Client(broker.bootstrap) as source, Client(other.bootstrap) as target:
        for client in (source, target):
            client.create_topic(topic, 1, KEEP | {"message.timestamp.after.max.ms": str(2**62)})
        fill(source, topic, 0, some(50, 6, odd=False))
        fill(target, topic, 0, theirs)
        follow = ("--append", "--follow", "0.01", "--rounds", "1", "--from", "2100-01-01T00:00Z")
        for _ in range(2):
            assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *follow) == OK
            assert list((tmp_path / "r").iterdir()) == []
        fill(source, topic, 0, late)
        assert mirror(broker.bootstrap, other.bootstrap, topic, tmp_path, *follow) == OK
        found = everything(target, topic, 0)
    assert plain(found) == plain(theirs + late)
    assert delivery_of(tmp_path, 0) == AT_LEAST_ONCE


@pytest.mark.slow
def test_a_partition_stays_ours_over_rounds_without_it(
    broker, other, topic, tmp_path, without_transactions
):
    """And is so no more when somebody else has written to it."""
    one, two = f"{topic}-one", f"{topic}-two"
    follow = ("--create", "--follow", "0.01", "--rounds", "1")
    modes = [POSITION, POSITION, POSITION, AT_LEAST_ONCE]
    with Client(broker.bootstrap) as source, Client(other.bootstrap) as target:
        for name in (one, two):
            source.create_topic(name, 1, KEEP)
        for number, (filled, mode) in enumerate(
            zip([(one, two), (one,), (two,), (two,)], modes, strict=True)
        ):
            for name in filled:
                fill(source, name, 0, some(50, number, odd=False))
            if mode == AT_LEAST_ONCE:
                fill(target, two, 0, [Record(0, 5, b"theirs", b"")])
            assert (
                mirror(broker.bootstrap, other.bootstrap, f"{one},{two}", tmp_path, *follow) == OK
            )
            assert delivery_of(tmp_path, number) == mode
        ours = [record for record in everything(target, two, 0) if record.key != b"theirs"]
        assert plain(ours) == plain(everything(source, two, 0))


@pytest.mark.parametrize("has_transactions", [False, True])
@pytest.mark.parametrize("target", ["other", pytest.param("kafka", marks=pytest.mark.oracle)])
def test_what_stops_tells_what_is_there(request, broker, topic, tmp_path, target, has_transactions):
    """Answers that came before a refusal count, and are in the map; what is not committed does not."""
    to = request.getfixturevalue(target).bootstrap
    if not has_transactions:
        request.getfixturevalue("without_transactions")
    wanted = [*some(900, 8, odd=False), Record(0, 5, None, bytes(5000))]
    filled_topic(broker.bootstrap, topic, wanted)
    small = ("--create", "--set", "max.message.bytes=4000", "--compression", "none")
    assert mirror(broker.bootstrap, to, topic, tmp_path, *small) == FAILED
    (told,) = json.loads((tmp_path / "r" / "report.json").read_text())["partitions"]
    assert "MESSAGE_TOO_LARGE" in told["error"]
    assert told["records"] == (0 if has_transactions else 900)
    if not has_transactions:
        check(to, topic, {0: wanted[:900]}, tmp_path)
    else:
        assert offset_map.read(tmp_path / "r" / "offsets.parquet") == []
