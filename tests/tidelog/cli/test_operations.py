"""Elections and the number of replicas, from the command line, in a cluster of three brokers."""

from __future__ import annotations

import json

import pytest

from tests.broker.subject import eventually
from tidelog.cli.brokers.resize import resized
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

PLAIN = dict.fromkeys((1, 2, 3, 4))
RACKS = {1: "a", 2: "a", 3: "b", 4: "c"}


@pytest.mark.parametrize(
    ("replicas", "count", "in_sync", "racks", "has", "after"),
    [
        ((2,), 2, {2}, PLAIN, {1: 5, 3: 4, 4: 6}, (2, 3)),
        ((1,), 3, {1}, RACKS, {4: 9}, (1, 3, 4)),
        ((1, 2, 3), 1, {1, 2, 3}, PLAIN, {}, (1,)),
        ((1, 2, 3), 2, {1, 3}, PLAIN, {}, (1, 3)),
        ((1, 2, 3), 2, {2, 3}, PLAIN, {}, (1, 2)),
        ((1, 2), 2, {1, 2}, PLAIN, {}, (1, 2)),
        ((1, 2), 9, {1, 2}, PLAIN, {}, (1, 2, 3, 4)),
    ],
)
def test_which_replicas_come_and_go(replicas, count, in_sync, racks, has, after):
    assert resized(replicas, count, in_sync, racks, has) == after


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"auto.leader.rebalance.enable": "false"}
    with BrokerCluster(tmp_path_factory.mktemp("cluster") / "data", 3, settings) as found:
        yield found


@pytest.fixture
def run(cluster, capsys):
    """Runs a command against a broker: exit status, what it printed, what it complained of."""

    def run(*arguments, at=1):
        capsys.readouterr()
        status = main([*arguments, "--broker", cluster[at].bootstrap])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def partitions(cluster, capsys):
    """Returns the partitions of a topic, as a broker knows them."""

    def partitions(topic, at=1):
        capsys.readouterr()
        assert main(["cluster", "status", "--json", "--http", cluster[at].http]) == 0
        found = json.loads(capsys.readouterr().out)["partitions"]
        return [each for each in found if each["topic"] == topic]

    return partitions


def replicas(found):
    return [len(each["replicas"]) for each in found if len(each["isr"]) == len(each["replicas"])]


def test_the_number_of_replicas_grows_and_shrinks(run, partitions):
    assert (
        run("topics", "create", "sized", "--partitions", "2", "--replication-factor", "1")[0] == 0
    )
    alter = ("topics", "alter", "sized", "--replication-factor")
    status, out, err = run(*alter, "4")
    assert (status, out) == (2, "")
    assert "--replication-factor 4: only 3 brokers can have replicas of sized-0" in err
    assert run(*alter, "3", "--dry-run")[0] == 0
    assert replicas(partitions("sized")) == [1, 1]
    status, out, err = run(*alter, "3")
    assert (status, err) == (0, "")
    assert "Changed sized." in out
    eventually(lambda: replicas(partitions("sized")) == [3, 3], 60)
    leaders = [each["leader"] for each in partitions("sized")]
    (altered,) = json.loads(run(*alter, "2", "--json")[1])
    assert [len(each) for each in altered["replicas"].values()] == [2, 2]
    eventually(lambda: replicas(partitions("sized")) == [2, 2], 60)
    assert [each["leader"] for each in partitions("sized")] == leaders
    (told,) = json.loads(run("topics", "describe", "sized", "--json")[1])
    for each, known in zip(told["partitions"], partitions("sized"), strict=True):
        assert [each[name] for name in ("leader", "replicas")] == [
            known["leader"],
            known["replicas"],
        ]
        assert sorted(each["isr"]) == sorted(known["isr"])
    head = run("topics", "describe", "sized")[1].splitlines()[2]
    assert head.split("  ")[0] == "partition"
    assert "replicas   in sync" in head
    told = "sized has 2 replicas of each partition already.\n"
    assert run(*alter, "2") == (0, told, "")


def test_a_broker_that_hangs_is_passed_over_when_the_http_port_is_looked_for(cluster, capsys):
    where = ("--broker", f"{cluster[1].bootstrap},{cluster[2].bootstrap}")
    cluster.pause(1)
    try:
        status = main(["clock", "status", *where])
    finally:
        cluster.resume(1)
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert "The clock of broker 2 shows" in out

    def is_whole():
        main(["cluster", "status", "--unhealthy", "--http", cluster[2].http])
        return "Every partition is fully replicated." in capsys.readouterr().out

    eventually(is_whole, 60)


def test_first_replicas_lead_again_and_where_nobody_leads_anyone_may(cluster, run, partitions):
    assert run("topics", "create", "led", "--partitions", "3", "--replication-factor", "3")[0] == 0
    first = [each["replicas"][0] for each in partitions("led")]
    cluster.kill(2)
    eventually(lambda: 2 not in {each["leader"] for each in partitions("led")}, 60)
    cluster.restart(2)
    eventually(lambda: all(2 in each["isr"] for each in partitions("led")), 60)
    assert [each["leader"] for each in partitions("led")] != first
    status, out, err = run("cluster", "elect", "led")
    assert (status, err) == (0, "")
    assert f"led-{first.index(2)}" in out
    assert "No election is needed for 2 partitions." in out
    assert [each["leader"] for each in partitions("led")] == first
    assert run("cluster", "elect")[0] == 0
    assert run("cluster", "elect", "led") == (0, "No election is needed for 3 partitions.\n", "")
    for line, said in (
        (("--unclean",), "--unclean needs TOPIC"),
        (("led", "--unclean"), "add --yes"),
        (("lad",), "did you mean led?"),
        (("led:7",), "there is no partition led-7"),
    ):
        status, out, err = run("cluster", "elect", *line)
        assert (status, out) == (1 if line[0].startswith(("lad", "led:")) else 2, "")
        assert said in err


def test_an_unclean_election_lets_a_replica_lead_that_lacks_records(cluster, run, partitions):
    assert run("topics", "create", "lost", "--partitions", "1", "--replication-factor", "3")[0] == 0
    assert run("topics", "alter", "lost", "--replication-factor", "2")[0] == 0
    eventually(lambda: replicas(partitions("lost")) == [2], 60)
    (found,) = partitions("lost")
    ahead, behind = found["replicas"]
    other = ({1, 2, 3} - {ahead, behind}).pop()
    cluster.kill(behind)
    eventually(lambda: partitions("lost", other)[0]["isr"] == [ahead], 60)
    cluster.kill(ahead)
    cluster.restart(behind)
    eventually(lambda: partitions("lost", other)[0]["leader"] is None, 60)
    eventually(lambda: cluster[behind].http and partitions("lost", behind)[0]["leader"] is None, 60)
    status, out, _ = run("cluster", "elect", "lost", at=other)
    assert status == 1, out
    status, out, err = run("cluster", "elect", "lost", "--unclean", "--yes", at=other)
    assert (status, err) == (0, ""), out
    assert partitions("lost", other)[0]["leader"] == behind
    cluster.restart(ahead)
