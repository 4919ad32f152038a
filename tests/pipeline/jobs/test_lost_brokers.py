"""Jobs and failover on clusters of three brokers that lose brokers: at the start and in the middle."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from tests.pipeline.jobs.test_failover import commit, committed, disordered, given
from tests.pipeline.jobs.test_mirror import KEEP, check, everything, fill, mirror, plain
from tidelog.client import Client
from tidelog.client.appender import Appender
from tidelog.client.calls.groups import GROUP
from tidelog.client.cluster import address_of
from tidelog.cluster import BrokerCluster
from tidelog.jobs import archive, audit, backfill, failover, restore, whatif
from tidelog.pipeline.errors import OK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]
COUNT = 600
PARTITIONS = 3


@pytest.fixture
def source(tmp_path):
    with BrokerCluster(tmp_path / "source") as made:
        yield made


@pytest.fixture
def target(tmp_path):
    with BrokerCluster(tmp_path / "target") as made:
        yield made


@pytest.fixture
def wanted(source):
    """The records of topic t of the source."""
    made = {partition: disordered(COUNT, partition) for partition in range(PARTITIONS)}
    with Client(source.bootstrap) as client:
        client.create_topic("t", PARTITIONS, KEEP)
        for partition, records in made.items():
            fill(client, "t", partition, records)
    return made


@pytest.fixture
def in_the_middle(monkeypatch):
    """A function that makes something happen once, at the nth call of a method."""

    def arrange(cls, name, number, then):
        calls = itertools.count(1)
        monkeypatch.setattr(cls, name, counted(getattr(cls, name), calls, number, then))

    def counted(whole, calls, number, then):
        def call(self, *given, **named):
            if next(calls) == number:
                then(self, *given)
            return whole(self, *given, **named)

        return call

    return arrange


def broker_at(cluster, address):
    """The id of the broker with an address."""
    return next(
        number for number, one in enumerate(cluster, 1) if address_of(one.bootstrap) == address
    )


def has_lost_one(cluster):
    return sum(not broker.is_running for broker in cluster) == 1


def leader(cluster, topic, partition):
    with Client(cluster.bootstrap) as client:
        return client.topics([topic])[topic].partitions[partition].leader


def coordinator(cluster, group):
    with Client(cluster.bootstrap) as client:
        return broker_at(cluster, address_of(client.coordinator(GROUP, group).address))


def test_a_mirror_goes_on_when_both_clusters_lose_a_leader(
    source, target, wanted, tmp_path, in_the_middle
):
    with Client(target.bootstrap) as client:
        client.create_topic("t", PARTITIONS, KEEP)

    def lose(*_):
        source.kill(leader(source, "t", 1))
        target.kill(leader(target, "t", 1))

    in_the_middle(Appender, "send", 2, lose)
    assert mirror(source.bootstrap, target.bootstrap, "t", tmp_path) == OK
    assert [has_lost_one(one) for one in (source, target)] == [True, True]
    check(target.bootstrap, "t", wanted, tmp_path)


def test_a_group_fails_over_while_both_clusters_lose_a_broker(
    source, target, wanted, tmp_path, in_the_middle
):
    assert mirror(source.bootstrap, target.bootstrap, "t", tmp_path, "--create") == OK
    at = {("t", 0): 0, ("t", 1): 217, ("t", 2): COUNT}
    commit(source.bootstrap, "g", at)
    source.kill(leader(source, "t", 1))
    in_the_middle(Client, "offset_commit", 1, lambda *_: target.kill(coordinator(target, "g")))
    run = failover(
        group="g",
        from_=source.bootstrap,
        to=target.bootstrap,
        map=tmp_path / "r",
        apply=True,
        out=tmp_path,
        report="json",
    )
    assert [has_lost_one(one) for one in (source, target)] == [True, True]
    rows = run.report["partitions"]
    assert len(rows) == PARTITIONS
    assert committed(target.bootstrap, "g") == {
        ("t", row["partition"]): row["offset"] for row in rows
    }
    for row in rows:
        partition, proof = row["partition"], row["proof"]
        unread = [one.value for one in wanted[partition][at["t", partition] :]]
        values = given(target.bootstrap, "g", "t", partition)
        assert values[len(values) - len(unread) :] == unread
        assert len(values) - len(unread) == proof["duplicates"] == 0
        assert proof["lost"] == proof["missing"] == 0


def test_every_job_on_a_cluster_goes_on_without_a_broker(source, wanted, tmp_path, in_the_middle):
    brokers, whole = source.bootstrap, PARTITIONS * COUNT
    how = {"master": "inline", "out": tmp_path / "runs", "report": "json"}

    @contextlib.contextmanager
    def losing(cls, name, number):
        """Without the leader of what is read or written, from the nth call on."""

        def lose(caller, *given):
            place = given[0].target if cls is Client else caller  # a call's, or an appender's
            source.kill(leader(source, place.topic, place.partition))

        in_the_middle(cls, name, number, lose)
        yield
        assert has_lost_one(source)
        for number, broker in enumerate(source, 1):
            if not broker.is_running:
                source.restart(number)

    read = {"brokers": brokers, "topics": "t", **how}
    with losing(Client, "begin", 1):
        assert audit(**read).report["topics"][0]["summary"]["records"] == whole
    source.kill(1)
    assert whatif(policy="a:retention.ms=1", **read).topics[0]["records"] == whole
    source.restart(1)
    with losing(Client, "begin", 1):
        assert archive(to=tmp_path / "archive", **read).records == whole
    to = {"to_brokers": brokers, "create": True, "set": {"retention.ms": -1}}
    with losing(Appender, "send", 1):
        restored = restore(tmp_path / "archive", rename={"t": "restored"}, **to, **how)
    assert restored.records == whole
    (tmp_path / "rows.csv").write_text("when,id\n" + "".join(f"{n},k\n" for n in range(100)))
    with losing(Appender, "send", 1):
        filled = backfill(
            table=tmp_path / "rows.csv",
            option={"header": True, "inferSchema": True},
            time_column="when",
            time_unit="ms",
            key_column="id",
            topic="filled",
            **to,
            **how,
        )
    assert filled.records == 100
    with Client(brokers) as client:
        for partition, records in wanted.items():
            assert plain(everything(client, "restored", partition)) == plain(records)
