"""The checker sees what goes wrong in real brokers when a promise is switched off, or a disk is altered.

Each test injects one fault in a cluster of three processes and has real clients run into it: copies that
are not waited for, retries without idempotence, an altered log, an operator who sets back a clock or an
offset.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager

import crc32c
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.subject import eventually
from tests.injecting import injecting
from tests.nemesis import view
from tests.nemesis.checker import Kind, problems
from tests.nemesis.consumers import Alone, Member, read_everything
from tests.nemesis.forger import Forger, topic_ids
from tests.nemesis.history import Believed, Committed, History, Place, Told
from tests.nemesis.producers import Librdkafka
from tests.nemesis.stored import batches, differences, wrong_times
from tidelog.cluster import BrokerCluster
from tidelog.control import ControlClient

pytestmark = pytest.mark.slow

UNSAFE = {"enable.idempotence": False, "acks": 1}
GROUP = "group"
CRC_AT = 17  # in a batch; the checksum is of what follows it
ALL = {1, 2, 3}


@contextmanager
def running(directory, **settings):
    with BrokerCluster(directory / "data", 3, settings, clock="manual") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A cluster that tests share, each with a topic of its own."""
    with running(tmp_path_factory.mktemp("calm")) as cluster:
        yield cluster


def create(cluster, topic, **config):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, 1, replication_factor=3, config=config)
    admin.create_topics([new])[topic].result(30)
    place = Place(topic, 0)
    is_well(cluster, place)
    return place


def is_well(cluster, place):
    eventually(lambda: not list(view.illnesses(cluster, [place])))


def leader(cluster, place):
    return view.leaders(cluster).get(str(place))


@contextmanager
def at_work(*clients):
    for client in clients:
        client.start()
    try:
        yield
    finally:
        for client in clients:
            client.finish()


def more_acknowledged(history, count=30):
    wanted = history.acknowledged["p"] + count
    eventually(lambda: history.acknowledged["p"] >= wanted)


def kinds(history, cluster, place, groups=()):
    read_everything(history, cluster.bootstrap, [place])
    return {problem.kind for problem in problems(history, groups=groups)}


def test_nothing_is_found_where_nothing_is_injected(calm):
    place, history = create(calm, "well"), History(["well"])
    with at_work(
        Alone("alone", history, calm.bootstrap, [place]),
        Librdkafka("p", history, calm.bootstrap, [place]),
    ):
        more_acknowledged(history)
    assert kinds(history, calm, place) == set()


def test_copies_that_are_not_waited_for_are_lost(tmp_path):
    """acks=1 counts as acknowledged here; the leader dies with records that nobody else has."""
    with running(tmp_path, **{"min.insync.replicas": 1}) as cluster:
        place, history = create(cluster, "lost"), History()
        with at_work(Librdkafka("p", history, cluster.bootstrap, [place], **UNSAFE)):
            more_acknowledged(history)
            first = leader(cluster, place)
            for other in ALL - {first}:
                cluster.cut(first, other)
            more_acknowledged(history)
            cluster.kill(first)
            cluster.heal()
            more_acknowledged(history)
            cluster.restart(first)
            is_well(cluster, place)
        assert Kind.LOST in kinds(history, cluster, place)


def test_a_follower_that_was_altered_on_disk_is_found(tmp_path):
    with running(tmp_path) as cluster:
        place, history = create(cluster, "altered"), History()
        reader = Alone("alone", history, cluster.bootstrap, [place])
        with at_work(reader, Librdkafka("p", history, cluster.bootstrap, [place])):
            more_acknowledged(history)
            eventually(lambda: history.polled["alone"] >= 10)
        follower = max(ALL - {leader(cluster, place)})
        cluster.kill(follower)
        alter(cluster[follower].log_dir, place)
        cluster.restart(follower)
        is_well(cluster, place)
        while (first := eventually(lambda: leader(cluster, place))) != follower:
            cluster.kill(first)
            eventually(lambda gone=first: leader(cluster, place) not in (None, gone))
        assert kinds(history, cluster, place) == {Kind.LOST, Kind.INCONSISTENT}
        log_dirs = [broker.log_dir for broker in cluster]
    assert list(differences(log_dirs, place)) == ["altered-0 differs: batches at [0, 0, 0]"]
    assert list(wrong_times(log_dirs, place)) == []
    for path in log_dirs[2].joinpath(str(place)).glob("*.appendtimes"):
        path.unlink()
    assert "None) on broker 3" in next(wrong_times(log_dirs, place))


def alter(log_dir, place):
    """Changes the producer's name in the first record, with a checksum that is right."""
    segment = min(log_dir.joinpath(str(place)).glob("*.log"))
    batch = bytearray(next(batches(log_dir, place)))
    position = batch.index(b"p|altered-0|0|")
    batch[position : position + 1] = b"q"
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(bytes(batch[CRC_AT + 4 :])))
    with segment.open("r+b") as file:
        file.write(batch)


def inject(_mistake):
    """Lets a broker believe everybody who claims to be another one."""
    from tidelog.broker.lifecycle.proof import Verdict  # in the process of the broker
    from tidelog.broker.partitions import senders

    senders.judge = lambda *_: Verdict.PROVEN


def test_brokers_that_believe_everybody_are_found(tmp_path):
    with (
        injecting("tests.nemesis.test_injected", "everybody is believed"),
        running(tmp_path) as cluster,
    ):
        place, history = create(cluster, "forged"), History()
        addresses = [broker.bootstrap for broker in cluster]
        ids = topic_ids(cluster.bootstrap, ["forged"])
        with at_work(Forger(history, addresses, [place], ids)):
            eventually(lambda: any(isinstance(each, Believed) for each in history.events))
    assert {problem.kind for problem in problems(history)} == {Kind.FORGED}


def first_found(inject):
    """Injects a mistake until it has come about: a busy machine may move the leader meanwhile."""
    for attempt in range(5):
        if found := inject(attempt):
            return found
    return set()


def test_an_append_clock_that_is_set_back_is_found(calm):
    config = {"message.timestamp.type": "LogAppendTime"}

    def inject(attempt):
        topic = f"back-{attempt}"
        place, history = create(calm, topic, **config), History([topic])
        number = leader(calm, place)
        with at_work(Librdkafka("p", history, calm.bootstrap, [place])):
            calm.clock(number).leap("10m")
            more_acknowledged(history)
            calm.clock(number).leap("-10m")
            more_acknowledged(history)
            control = ControlClient(calm[number].control)
            control.ask("POST", f"/v1/topics/{place.topic}/partitions/0/append-time")
            control.close()
            more_acknowledged(history)
        return kinds(history, calm, place)

    assert first_found(inject) == {Kind.TIME_BACK}


def test_a_committed_offset_that_is_set_back_is_found(calm):
    place, history = create(calm, "committed"), History()
    with at_work(Librdkafka("p", history, calm.bootstrap, [place])):
        more_acknowledged(history)
    for member in ("1", "2"):
        done = len(history.events)
        with at_work(Member(GROUP, member, history, calm.bootstrap, ["committed"])):
            awaited = Committed if member == "1" else Told
            eventually(lambda: any(isinstance(e, awaited) for e in history.events[done:]))
        if member == "1":
            set_back(calm, place)
    assert kinds(history, calm, place, groups=[GROUP]) == {Kind.COMMIT_BACK}


def set_back(cluster, place):
    """Sets the group's committed offset to 0, as its members are away."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(*place, 0)])
    admin.alter_consumer_group_offsets([wanted])[GROUP].result(30)
