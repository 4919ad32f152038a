"""`tidelog cluster roll` on brokers of `tidelog serve --brokers 3`: real processes, under load."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.tidelog.processes import WITHIN_S
from tests.tidelog.supervisor.test_supervisor import serving
from tidelog.cli.brokers import roll as rolling
from tidelog.cli.parser import main
from tidelog.supervisor.control import NAME, NoSupervisor, ask

LISTEN = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0")


@contextlib.contextmanager
def three(directory, *options):
    with serving(directory, *LISTEN, *options) as subject:
        yield subject
        assert subject.stop() == 0


def roll(directory, *options):
    return main(["cluster", "roll", "--log-dirs", str(directory / "data"), *options])


def brokers_of(directory):
    answer = ask(directory / "data", {"ask": "brokers"})
    return {each["broker"]: each for each in answer["brokers"]}


def create(bootstrap, name, partitions=3, **config):
    admin = AdminClient({"bootstrap.servers": ",".join(bootstrap), "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, 3, config=config)]).values():
        future.result(WITHIN_S)


class Load:
    """An idempotent producer at work in a thread."""

    def __init__(self, bootstrap, topic):
        self.acknowledged, self.errors = [], []
        self._topic, self._over = topic, threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(bootstrap),
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._work)

    def _work(self):
        number = 0
        while not self._over.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % 3, on_delivery=self._told
            )
            number += 1
            self._producer.poll(0.005)

    def _told(self, error, message):
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append((message.partition(), message.offset(), message.value()))

    def __enter__(self):
        self._thread.start()
        while not self.acknowledged:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        assert self._producer.flush(WITHIN_S) == 0


def everything(bootstrap, topic):
    """Every record of a topic: partition, offset, value."""
    consumer = Consumer(
        {"bootstrap.servers": ",".join(bootstrap), "group.id": "judge", "log_level": 0}
    )
    places = [TopicPartition(topic, number, 0) for number in range(3)]
    ends = sum(consumer.get_watermark_offsets(place, timeout=WITHIN_S)[1] for place in places)
    consumer.assign(places)
    found = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < ends:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return found


@pytest.mark.slow
def test_every_broker_is_restarted_and_a_producer_notices_nothing(tmp_path, capsys):
    with three(tmp_path) as subject:
        create(subject.bootstrap, "t", **{"min.insync.replicas": "2"})
        with Load(subject.bootstrap, "t") as load:
            assert roll(tmp_path, "--json") == 0
            many = len(load.acknowledged)
            while len(load.acknowledged) < many + 10:
                time.sleep(0.01)
        said = capsys.readouterr()
        restarted = [each["broker"] for each in json.loads(said.out)["restarted"]]
        assert sorted(restarted) == [1, 2, 3]
        assert [line.split(":")[0] for line in said.err.splitlines()] == [
            f"broker {each}" for each in restarted
        ]
        now = brokers_of(tmp_path)
        assert [each["starts"] for each in now.values()] == [2, 2, 2]
        assert not {each["pid"] for each in now.values()} & set(subject.pids)
        assert load.errors == []
        stored = everything(subject.bootstrap, "t")
        assert sorted(load.acknowledged) == sorted(stored)
        values = [value for _, _, value in stored]
        assert len(values) == len(set(values))


@pytest.mark.slow
def test_settings_are_read_anew_and_those_of_one_broker_are_its_own(tmp_path, capsys):
    config = tmp_path / "cluster.properties"
    config.write_text("log.message.format.version=0.9.0\n")
    with three(tmp_path, "--config", str(config)) as subject:
        (tmp_path / "cluster.2.properties").write_text("log.message.format.version=0.10.2\n")
        assert roll(tmp_path, "2") == 0
        assert [each["starts"] for each in brokers_of(tmp_path).values()] == [1, 2, 1]
        admin = AdminClient({"bootstrap.servers": ",".join(subject.bootstrap), "log_level": 0})
        found = []
        for broker in ("1", "2", "3"):
            wanted = ConfigResource(ResourceType.BROKER, broker)
            (answer,) = admin.describe_configs([wanted]).values()
            found.append(answer.result(WITHIN_S)["log.message.format.version"].value)
        assert found == ["0.9.0", "0.10.2", "0.9.0"]

        (tmp_path / "cluster.3.properties").write_text("log.retention.hors=3\n")
        assert roll(tmp_path, "3") == 1
        said = capsys.readouterr().err
        assert "broker 3 would not start: there is no setting log.retention.hors" in said
        assert "To go on: tidelog cluster roll 3 --log-dirs" in said
        assert brokers_of(tmp_path)[3]["starts"] == 1


@pytest.mark.slow
def test_nothing_is_restarted_while_a_replica_is_missing(tmp_path, capsys):
    with three(tmp_path, "--no-restart") as subject:
        create(subject.bootstrap, "t")
        os.kill(subject.pids[1], signal.SIGKILL)
        subject.wait_for_log('"a broker has ended, and stays down" broker=2')
        assert roll(tmp_path, "--within", "1") == 1
        said = capsys.readouterr().err
        assert "3 partitions are not fully replicated: t-0, t-1, t-2" in said
        assert [each["starts"] for each in brokers_of(tmp_path).values()] == [1, 1, 1]
        assert ask(tmp_path / "data", {"ask": "restart", "broker": 2}) == {"restarting": 2}
        assert roll(tmp_path, "1") == 0
        assert [each["starts"] for each in brokers_of(tmp_path).values()] == [2, 2, 1]


@pytest.mark.slow
def test_a_broker_that_does_not_come_back_ends_the_roll(tmp_path, capsys):
    with three(tmp_path) as subject:
        create(subject.bootstrap, "t")
        with (tmp_path / "data" / "brokers" / "2" / ".lock").open("rb") as lock:
            taken = threading.Thread(target=fcntl.flock, args=(lock, fcntl.LOCK_EX))
            taken.start()  # gets the lock when the broker has stopped
            assert roll(tmp_path, "2,3") == 1
            taken.join()
        said = capsys.readouterr().err
        assert "broker 2 was started again and ended with status 1" in said
        assert "To go on: tidelog cluster roll 2" in said  # with 3, unless 2 is the last
        subject.wait_for_log('broker=2 .* msg="broker ready"', count=2)
        assert roll(tmp_path, "3") == 0


@pytest.mark.slow
def test_a_command_restarts_brokers_that_something_else_runs(tmp_path, capsys):
    with three(tmp_path) as subject:
        script = tmp_path / "restart"
        pids = " ".join(map(str, subject.pids))
        script.write_text(f"#!/bin/sh\nset -- $1 {pids}\nshift $1\nkill $1\n")
        script.chmod(0o755)
        options = ("--http", subject.said["http"].split(",")[0])
        options += ("--restart-with", f"{script} {{broker}}", "2,3")
        assert main(["cluster", "roll", *options]) == 0
        assert main(["cluster", "roll", *options]) == 1  # the processes are others now
        said = capsys.readouterr().err
        assert "ended with status 1" in said
        # The controller comes last, whichever it is by now.
        assert "roll 2 3 --http" in said or "roll 3 2 --http" in said


class Upgraded:
    """Brokers that name a session by its epoch, and by another name once each has restarted."""

    def __init__(self, newer):
        self.newer, self.epochs = set(newer), dict.fromkeys((1, 2, 3), 7)
        self.restarting, self.looks, self.silent = {}, 0, 0

    def restart(self, broker):
        self.restarting[broker] = self.looks + 5  # until then it is there as before
        self.silent = 1

    def check(self, broker):
        pass

    def answer(self, address):
        asked = int(address)
        self.looks += 1
        for broker, at in list(self.restarting.items()):
            if self.looks >= at:
                self.newer.add(broker)
                self.epochs[broker] += 1
                del self.restarting[broker]
        if asked == 1 and self.silent:
            self.silent -= 1
            raise TimeoutError
        named = dict.fromkeys(self.epochs, "session" if asked in self.newer else "epoch")
        brokers = [
            {"broker": n, "state": "serving", "http": str(n), named[n]: f"{named[n]}-{epoch}"}
            for n, epoch in self.epochs.items()
        ]
        return {"brokers": brokers, "partitions": [], "controller": {"broker": 1}}


@pytest.mark.parametrize("newer", [(), (1,), (3,), (2, 3)])
def test_each_broker_is_waited_for_while_brokers_of_two_versions_answer(newer, monkeypatch):
    """Names of sessions that only one version knows say nothing about those of the other."""
    upgraded, waited_for = Upgraded(newer), []

    def say(line):
        assert not upgraded.restarting
        waited_for.append(line)

    monkeypatch.setattr(rolling, "quickly", upgraded.answer)
    monkeypatch.setattr(rolling, "POLL_S", 0)
    view = rolling.View(["1", "2", "3"])
    rolling.Roll(upgraded, view, within_s=5, say=say).run([])
    assert len(waited_for) == 3


@pytest.mark.slow
def test_only_the_user_of_the_supervisor_may_ask(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with three(deep):
        path = deep / "data" / NAME
        assert len(str(path)) > 107
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for wrong in ({"ask": "stop"}, {"ask": "restart", "broker": 9}, {}):
            assert set(ask(deep / "data", wrong)) == {"error"}
    with pytest.raises(NoSupervisor, match=r"there is no supervisor.sock"):
        ask(deep / "data", {"ask": "brokers"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("x",), "ID x: expected a number from 0 on"),
        (("--within", "x"), "--within: 'x' is not a span of time"),
        (("--restart-with", "true", "--log-dirs", "d"), "--restart-with and --log-dirs"),
    ],
)
def test_a_mistake_is_one_sentence(options, said, capsys):
    assert main(["cluster", "roll", *options]) == 2
    assert said in capsys.readouterr().err


def test_without_a_supervisor_it_says_what_to_give(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    assert roll(tmp_path) == 1
    said = capsys.readouterr().err
    assert "there is no supervisor.sock in" in said
    assert "--restart-with a command that restarts other brokers" in said
