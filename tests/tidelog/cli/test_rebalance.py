"""`tidelog cluster rebalance`: the plan is even and copies little; the moves lose nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.partitions.load import consumed
from tests.broker.subject import eventually
from tidelog.cli.brokers.balance import balanced
from tidelog.cli.brokers.rebalance import FOLLOWERS, LEADERS, RATES
from tidelog.cli.brokers.rebalance_plan import RebalancePlan, print_plan
from tidelog.cli.parser import main
from tidelog.client import Client
from tidelog.client.calls import reassignments
from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls import topics as topic_calls
from tidelog.client.calls.reassignments import Move
from tidelog.client.calls.settings import Resource
from tidelog.cluster import BrokerCluster
from tidelog.protocol.api.list_partition_reassignments import ListPartitionReassignmentsRequest

PLAIN = dict.fromkeys((1, 2, 3))
RACKS = {1: "a", 2: "a", 3: "b"}


def topic(*replicas):
    return {("t", index): each for index, each in enumerate(replicas)}


@pytest.mark.parametrize(
    ("before", "racks", "sizes", "moves"),
    [
        (topic((1, 2), (2, 3), (3, 1)), PLAIN, {}, {}),
        (topic((1,), (1,), (1,)), PLAIN, {}, {("t", 0): (2,), ("t", 1): (3,)}),
        (topic((1,), (1,)), {1: None, 2: None}, {("t", 0): 9, ("t", 1): 1}, {("t", 1): (2,)}),
        (
            topic((1, 3), (1, 3), (1, 3), (1, 3)),
            RACKS,
            {},
            {("t", 0): (2, 3), ("t", 1): (2, 3), ("t", 2): (3, 1)},
        ),
        (topic((1, 2), (1, 2)), {1: None, 2: None}, {}, {("t", 0): (2, 1)}),
        (topic((9,), (9,), (9,)), PLAIN, {}, {}),
        ({}, PLAIN, {}, {}),
    ],
    ids=[
        "nothing to do",
        "to each broker in turn",
        "the smallest one",
        "not into a rack that has a replica already",
        "leaders alone, which copies nothing",
        "not from a broker that is down or closed",
        "no topics",
    ],
)
def test_what_is_moved(before, racks, sizes, moves):
    assert balanced(before, racks, sizes) == moves


class Asked:
    """A cluster whose topics change while a plan is made."""

    def __init__(self, under_way, sizes):
        self._under_way, self._sizes = under_way, sizes

    def perform(self, call):
        assert isinstance(call.message, ListPartitionReassignmentsRequest)
        return self._under_way

    def log_sizes(self, replicas, *, may_lack=True):
        """Those of leaders; new replicas have nothing yet."""
        return {} if may_lack else {each: self._sizes.get(each[0], 0) for each in replicas}


def described(replicas):
    """A Metadata answer."""
    topics = {}
    for (name, index), each in replicas.items():
        topics.setdefault(name, []).append(
            SimpleNamespace(partition_index=index, replica_nodes=each, leader_id=each[0])
        )
    return SimpleNamespace(
        topics=[SimpleNamespace(name=name, partitions=found) for name, found in topics.items()]
    )


def plan_of(replicas, under_way=(), racks=PLAIN, sizes=()):
    return RebalancePlan(Asked(dict(under_way), dict(sizes)), described(replicas), racks)


def test_the_bytes_of_each_new_replica_are_counted():
    moving = {("t", 0): Move((3, 4), (3, 4)), ("t", 1): Move((2, 3), (3,))}
    sizes = {("t", 0): 100, ("t", 1): 7}
    plan = plan_of(topic((1, 3, 4), (2, 3)), moving, {}, sizes)
    assert (plan.total, plan.left_of_a_broker, plan.left) == (207, 200, 207)
    plan.done(("t", 0))
    assert (plan.total, plan.left_of_a_broker, plan.left) == (207, 7, 7)


@pytest.mark.parametrize(("leaders", "to"), [((1, 1, 2), (3, 4, 5)), ((1, 2, 3), (4, 4, 5))])
def test_the_broker_that_sends_or_gets_most_decides_how_long_it_takes(leaders, to):
    pairs = list(zip(leaders, to, strict=True))
    moving = {("t", index): Move((new,), (new,)) for index, (_, new) in enumerate(pairs)}
    plan = plan_of(topic(*pairs), moving, {}, dict.fromkeys(moving, 100))
    assert plan.left_of_a_broker == 200
    assert plan.to_copy(10) == "300 B are to be copied, which takes 20 s at least at 10 B/s"
    plan.done(("t", 0))
    assert plan.to_copy(None) == "200 B of 300 B are still to be copied"


def test_a_topic_that_is_created_while_the_plan_is_made_is_left_out():
    under_way = {("new", 0): Move((2, 3), (3,)), ("t", 0): Move((2,), (2,))}
    plan = plan_of(topic((1, 2)), under_way)
    assert (plan.under_way, plan.added) == ({("t", 0): (2,)}, {("t", 0): (2,)})


@pytest.mark.parametrize(
    ("count", "last", "more"),
    [
        (1, "1 partition is to be moved; nothing is to be copied.", None),
        (2, "2 partitions are to be moved; nothing is to be copied.", None),
        (25, "25 partitions are to be moved; nothing is to be copied.", "and 5 more partitions: "),
    ],
)
def test_a_plan_names_its_partitions(count, last, more, capsys):
    replicas = topic(*[(1,)] * (2 * count))
    print_plan(plan_of(replicas, racks={1: None, 2: None}), [1, 2], None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    assert sum("1 -> 2" in line and line.startswith("t-") for line in lines) == min(count, 20)
    assert any(more is not None and line.startswith(more) for line in lines) == (more is not None)


def test_a_plan_that_has_nothing_to_move_says_so(capsys):
    print_plan(plan_of(topic((1,), (2,), (3,))), [1, 2, 3], None)
    assert capsys.readouterr().out.endswith(
        "Nothing is moved: the brokers have as many replicas as each other.\n"
    )


def test_a_plan_names_what_is_under_way(capsys):
    under_way = {("t", 0): Move((2,), (2,))}
    print_plan(plan_of(topic((1, 2)), under_way, {1: None, 2: None}), [1, 2], None)
    out = capsys.readouterr().out
    assert "t-0 1 -> 2 under way" in " ".join(out.split())
    assert out.endswith("1 partition is being moved already; nothing is to be copied.\n")


@given(
    st.lists(st.permutations([1, 2, 3, 4, 5]), max_size=30),
    st.integers(1, 3),
    st.sets(st.sampled_from([1, 2, 3, 4, 5]), min_size=3),
)
def test_no_broker_has_two_more_than_another(orders, factor, up):
    before = topic(*(tuple(order[:factor]) for order in orders))
    racks = dict.fromkeys(up)
    moves = balanced(before, racks, {})
    after = {**before, **moves}
    assert all(len(set(each)) == factor for each in after.values())
    fixed = Counter(broker for each in before.values() for broker in each if broker not in up)
    has = Counter(broker for each in after.values() for broker in each)
    assert {broker: has[broker] for broker in fixed} == fixed
    assert balanced(after, racks, {}) == {}
    if up == {1, 2, 3, 4, 5}:
        assert not before or max(has.values()) - min(has[broker] for broker in up) <= 1


@pytest.fixture
def cluster(tmp_path):
    settings = {"log.retention.ms": -1, "replica.fetch.max.bytes": 50_000}
    with BrokerCluster(tmp_path / "data", 2, settings) as found:
        create(found, [[1]] * 6)
        yield found


def create(cluster, assignments):
    """Creates topic t, and waits until every broker knows it: the command asks one of them."""
    topic = NewTopic("t", len(assignments), replica_assignment=assignments)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([topic])["t"].result(30)
    wanted = Counter(replicas[0] for replicas in assignments)
    for broker in (1, 2):
        eventually(lambda at=cluster[broker].bootstrap: leaders_told_by(at) == wanted, 30)


def leaders_told_by(bootstrap):
    """How many partitions of t each broker leads, as who is asked says."""
    with Client(bootstrap) as client:
        (found,) = client.perform(topic_calls.describe(["t"])).topics
    return Counter(one.leader_id for one in found.partitions)


def leads(cluster):
    return leaders_told_by(cluster.bootstrap)


@pytest.mark.slow
def test_a_broker_without_replicas_gets_half_of_them_and_nothing_is_lost(cluster, capsys):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(600):
        producer.produce("t", str(number).encode(), partition=number % 6)
    assert producer.flush(30) == 0
    line = ["cluster", "rebalance", "--broker", cluster[1].bootstrap]

    assert main([*line, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["moves"]) == 3
    assert plan["bytes"] > 0
    assert leads(cluster) == {1: 6}

    assert main([*line, "--within", "0"]) == 1
    err = capsys.readouterr().err
    assert "not done within 0 s: 3 partitions are not moved yet (t-" in err
    assert f"To go on: tidelog cluster rebalance --broker {cluster[1].bootstrap}. " in err
    assert main([*line, "--at-once", "2"]) == 0
    assert capsys.readouterr().out.endswith("All partitions are moved.\n")
    assert leads(cluster) == {1: 3, 2: 3}
    values = [value for index in range(6) for value in consumed(cluster, "t", 100, index)]
    assert sorted(values, key=int) == [str(number).encode() for number in range(600)]

    assert main(line) == 0
    assert "Nothing is moved" in capsys.readouterr().out


@pytest.mark.slow
def test_leaders_move_without_a_copy(cluster, capsys):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["t"])["t"].result(30)
    for broker in (1, 2):
        eventually(lambda at=cluster[broker].bootstrap: not leaders_told_by(at), 30)
    create(cluster, [[1, 2]] * 4)
    assert main(["cluster", "rebalance", "--broker", cluster[1].bootstrap]) == 0
    assert "2 partitions are to be moved; nothing is to be copied." in capsys.readouterr().out
    eventually(lambda: leads(cluster) == {1: 2, 2: 2}, 60)


def throttle(cluster):
    """The rates of all brokers, and the lists of topic t."""
    with Client(cluster.bootstrap) as client:
        rates = client.perform(setting_calls.describe(Resource(), names=RATES))
        lists = client.perform(setting_calls.describe(Resource("t"), names=[LEADERS, FOLLOWERS]))
    return [each.value for each in rates], {each.name: each.value for each in lists}


# A shell lets background jobs, such as this test may be in, ignore SIGINT.
INTERRUPTIBLE = """
import signal, sys
from tidelog.cli.parser import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""
NO_THROTTLE = ([], {LEADERS: "", FOLLOWERS: ""})


def fill(cluster):
    """Writes 800 kB to each partition.

    In small batches: if one fetch brought a whole partition, a throttle would not hold it back.
    """
    small = {"batch.size": 20_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **small})
    for number in range(240):
        producer.produce("t", bytes([number]) * 20_000, partition=number % 6)
    assert producer.flush(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("again", [["--throttle", "800000"], []])
def test_a_throttle_limits_the_moves_and_is_gone_when_they_are_done(cluster, capsys, again):
    """Also if the command is interrupted, and given again with or without it."""
    fill(cluster)
    line = ["cluster", "rebalance", "--broker", cluster[1].bootstrap]
    limited = [*line, "--throttle", "200000"]
    assert main([*limited, "--dry-run"]) == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert (
        "3 partitions are to be moved; 2.3 MiB are to be copied, which takes 13 s at least at 195.3 KiB/s."
        in plan
    )
    assert throttle(cluster) == NO_THROTTLE

    told = interrupted(cluster, limited)
    rates, lists = throttle(cluster)
    assert rates == ["200000"] * 2
    assert "interrupted: 3 partitions are still being moved (t-" in told
    assert "the throttle is still set. To go on: " in told
    assert f"rebalance --broker {cluster[1].bootstrap} --throttle 200000. To cancel: " in told
    assert told.endswith(f"tidelog cluster rebalance --broker {cluster[1].bootstrap} --cancel\n")
    assert sorted(lists[LEADERS].split(",")) == sorted(f"{index}:1" for _, index in moving(cluster))
    assert sorted(lists[FOLLOWERS].split(",")) == sorted(
        f"{index}:2" for _, index in moving(cluster)
    )
    capsys.readouterr()

    began_s = time.monotonic()
    assert main([*line, *again]) == 0
    out = capsys.readouterr().out
    assert "3 partitions are being moved already; " in out
    assert "2.3 MiB" in out
    assert out.endswith("All partitions are moved.\n")
    assert time.monotonic() - began_s < 20
    assert throttle(cluster) == NO_THROTTLE
    assert leads(cluster) == {1: 3, 2: 3}


def interrupted(cluster, command):
    """Interrupts a command when it moves partitions under a limit; returns what it says."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: throttle(cluster)[0] == ["200000"] * 2 and moving(cluster), 30)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    return told


@pytest.mark.slow
def test_a_rebalance_is_cancelled(cluster, capsys):
    fill(cluster)
    line = ["cluster", "rebalance", "--broker", cluster[1].bootstrap]
    interrupted(cluster, [*line, "--throttle", "200000"])
    assert main([*line, "--cancel"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 partitions are moved no more: t-")
    assert out.endswith(". The throttle is removed.\n")
    assert throttle(cluster) == NO_THROTTLE
    assert not moving(cluster)
    assert leads(cluster) == {1: 6}

    assert main([*line, "--cancel"]) == 0
    assert capsys.readouterr().out == "No partition is being moved. No throttle was set.\n"


@pytest.mark.slow
def test_a_throttle_of_somebody_else_stays(cluster):
    own = {RATES[0]: "100000000"}
    with Client(cluster.bootstrap) as client:
        client.perform(setting_calls.alter(Resource(node_id=1), own))
        client.perform(setting_calls.alter(Resource("t"), {LEADERS: "*"}))
        line = ["cluster", "rebalance", "--broker", cluster[1].bootstrap]
        assert main([*line, "--throttle", "100000000"]) == 0
        assert throttle(cluster) == ([], {LEADERS: "*", FOLLOWERS: ""})
        (entry,) = client.perform(setting_calls.describe(Resource(node_id=1), names=list(own)))
    assert entry.value == "100000000"
    assert leads(cluster) == {1: 3, 2: 3}


def moving(cluster):
    with Client(cluster.bootstrap) as client:
        return client.perform(reassignments.under_way())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--at-once", "0"], "--at-once 0: expected a number from 1 on"),
        (["--throttle", "0"], "--throttle 0: expected a number from 1 on"),
        (
            ["--throttle", "1MB"],
            "--throttle: '1MB': units of 1000 or of 1024? write 1MiB for 1024, or bytes",
        ),
        (["--at-once", "many"], "--at-once many: expected a number from 1 on"),
        (
            ["--within", "soon"],
            "--within: 'soon' is not a span of time: write 7d, -2h, 1h30m, 1.5s or 250ms",
        ),
    ],
)
def test_a_mistake_is_one_sentence(options, said, capsys):
    assert main(["cluster", "rebalance", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"tidelog cluster rebalance: {said}\n")
