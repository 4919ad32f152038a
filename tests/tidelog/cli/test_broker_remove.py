"""`tidelog broker remove`: where the replicas go, by the rules; and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.broker.subject import eventually
from tidelog.cli.brokers.remove import moved
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

PLAIN = dict.fromkeys((1, 2, 3, 4))
RACKS = {1: "a", 2: "b", 3: "b", 4: "a"}


@pytest.mark.parametrize(
    ("replicas", "leaving", "racks", "has", "after"),
    [
        ((1, 2, 3), {3}, PLAIN, {}, (1, 2, 4)),
        ((3, 1, 2), {3}, PLAIN, {}, (4, 1, 2)),
        ((1, 2), {9}, PLAIN, {}, (1, 2)),
        ((1,), {1}, PLAIN, {2: 5, 3: 4, 4: 6}, (3,)),
        ((1, 2), {2}, RACKS, {3: 99}, (1, 3)),
        ((1, 2), {1}, RACKS, {3: 0, 4: 99}, (4, 2)),
        ((1, 2, 3, 4), {3}, PLAIN, {}, (1, 2, 4)),
        ((1, 2), {1, 2}, PLAIN, {}, (3, 4)),
        ((1, 2), {1, 2}, dict.fromkeys((1, 2)), {}, ()),
        ((5, 1), {5}, PLAIN, {}, (2, 1)),
    ],
    ids=[
        "the broker that is left",
        "in its place",
        "nothing to do",
        "the one that has least",
        "another rack before the one that has least",
        "the rack that has no other replica",
        "one replica less",
        "two at once",
        "nobody is left",
        "a broker that is down leaves too",
    ],
)
def test_where_a_replica_goes(replicas, leaving, racks, has, after):
    assert moved(replicas, frozenset(leaving), racks, has) == after


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BrokerCluster(tmp_path_factory.mktemp("cluster") / "data", 2) as found:
        yield found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("remove 1 2", "no broker would be left: at least one has to stay"),
        ("remove 9", "there is no broker 9 in the cluster, which has 1, 2"),
        ("remove 2 9", "there is no broker 9 in the cluster, which has 1, 2"),
        ("forget 9", "there is no broker 9 in the cluster, which has 1, 2"),
        ("remove x", "ID x: expected a number from 0 to 2147483647"),
        (
            "remove 2 --within soon",
            "--within: 'soon' is not a span of time: write 7d, -2h, 1h30m, 1.5s or 250ms",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(cluster, capsys, line, said):
    assert main(["broker", *line.split(), "--broker", cluster[1].bootstrap]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"tidelog broker {line.split()[0]}: {said}\n")
    assert cordoned(cluster, capsys) == ""


def test_the_http_port_that_is_found_is_that_of_the_broker_which_is_named(cluster, capsys):
    for broker in (1, 2):
        where = ["--broker", f"127.0.0.1:1,{cluster[broker].bootstrap}", "--json"]
        assert main(["cluster", "status", *where]) == 0
        assert json.loads(capsys.readouterr().out)["broker"] == broker


def cordoned(cluster, capsys):
    """The value of cordoned.brokers."""
    settings = ["--broker", cluster[1].bootstrap, "--json"]
    assert main(["configs", "show", "--of-broker", "cordoned.brokers", *settings]) == 0
    return json.loads(capsys.readouterr().out)["settings"]["cordoned.brokers"]["value"]


def test_a_broker_without_partitions_leaves_at_once_gets_none_and_is_forgotten(tmp_path, capsys):
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        address = ["--broker", cluster[1].bootstrap]
        assert main(["broker", "remove", "2", *address]) == 0
        assert "Broker 2 has no partitions any more" in capsys.readouterr().out
        assert cordoned(cluster, capsys) == "2"
        assert main(["topics", "create", "t", "--partitions", "4", *address]) == 1
        assert "only 1 broker(s) are registered" in capsys.readouterr().err  # two are wanted
        assert main(["broker", "forget", "2", *address]) == 2
        assert "2" in capsys.readouterr().err
        cluster[2].stop()
        assert main(["broker", "remove", "2", *address]) == 0, "one that is down is known"
        capsys.readouterr()
        assert main(["broker", "forget", "2", *address]) == 0
        assert capsys.readouterr().out == "Broker 2 is forgotten.\n"
        assert cordoned(cluster, capsys) == ""
        eventually(
            lambda: main(["broker", "forget", "2", *address]) == 2
        )  # broker 1 knows it by now
        assert "there is no broker 2 in the cluster" in capsys.readouterr().err
