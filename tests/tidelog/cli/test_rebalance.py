"""`tidelog cluster rebalance`: the plan is even and copies little; the moves lose nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from client import Client
from client.calls import reassignments
from client.calls import settings as setting_calls
from client.calls import topics as topic_calls
from client.calls.settings import Resource
from tests.broker.replicas.load import consumed
from tests.broker.subject import eventually
from tidelog.cli.brokers.balance import added, balanced
from tidelog.cli.brokers.copying import Copying
from tidelog.cli.brokers.throttle import FOLLOWERS, LEADERS, RATES
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

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


def test_leaders_are_evened_out_without_a_copy():
    before = topic((1, 2), (1, 2))
    moves = balanced(before, {1: None, 2: None}, {})
    assert moves == {("t", 0): (2, 1)}
    assert added(before, moves) == {}


def test_the_bytes_of_each_new_replica_are_counted():
    before = topic((1, 2), (1,))
    moves = {("t", 0): (3, 4), ("t", 1): (1, 2)}
    copying = Copying(added(before, moves), {("t", 0): 100, ("t", 1): 7})
    assert (copying.total, copying.largest_of_a_broker(), copying.copied) == (207, 100, 0)
    copying.done(("t", 0))
    assert copying.copied == 200


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
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        one_sided = NewTopic("t", 6, replica_assignment=[[1]] * 6)
        admin.create_topics([one_sided])["t"].result(30)
        yield found


def leads(cluster):
    with Client(cluster.bootstrap) as client:
        (found,) = client.perform(topic_calls.describe(["t"])).topics
    return Counter(one.leader_id for one in found.partitions)


def test_a_broker_without_replicas_gets_half_of_them_and_nothing_is_lost(cluster, capsys):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(600):
        producer.produce("t", str(number).encode(), partition=number % 6)
    assert producer.flush(30) == 0
    line = ["cluster", "rebalance", "--broker", cluster[1].bootstrap]

    assert main([*line, "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["moves"]) == 3
    assert plan["bytes"] > 0
    assert leads(cluster) == {1: 6}

    assert main([*line, "--within", "0"]) == 1
    assert "still there: t-" in capsys.readouterr().err
    assert main([*line, "--at-once", "2"]) == 0
    assert capsys.readouterr().out.endswith("All partitions are moved.\n")
    assert leads(cluster) == {1: 3, 2: 3}
    values = [value for index in range(6) for value in consumed(cluster, "t", 100, index)]
    assert sorted(values, key=int) == [str(number).encode() for number in range(600)]

    assert main(line) == 0
    assert "Nothing is moved" in capsys.readouterr().out


def test_leaders_move_without_a_copy(cluster, capsys):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["t"])["t"].result(30)
    both = NewTopic("t", 4, replica_assignment=[[1, 2]] * 4)
    eventually(lambda: "t" not in admin.list_topics(timeout=10).topics)
    admin.create_topics([both])["t"].result(30)
    assert main(["cluster", "rebalance", "--broker", cluster[1].bootstrap]) == 0
    assert "2 partitions to move, 0 B to copy." in capsys.readouterr().out
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


@pytest.mark.parametrize("again", [["--throttle", "800000"], []])
def test_a_throttle_limits_the_moves_and_is_gone_when_they_are_done(cluster, capsys, again):
    """Also if the command is interrupted, and given again with or without it."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(240):
        producer.produce("t", bytes([number]) * 20_000, partition=number % 6)
    assert producer.flush(30) == 0
    line = ["cluster", "rebalance", "--broker", cluster[1].bootstrap]
    limited = [*line, "--throttle", "200000"]
    assert main([*limited, "--plan"]) == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert "3 partitions to move, 2.3 MiB to copy; at 195.3 KiB/s that takes 13 s at least." in plan
    assert throttle(cluster) == NO_THROTTLE

    command = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *limited], stdout=subprocess.DEVNULL
    )
    eventually(lambda: throttle(cluster)[0] == ["200000"] * 2 and moving(cluster), 30)
    command.send_signal(signal.SIGINT)
    assert command.wait(30) == 1
    rates, lists = throttle(cluster)
    assert rates == ["200000"] * 2
    assert sorted(lists[LEADERS].split(",")) == sorted(f"{index}:1" for _, index in moving(cluster))
    assert sorted(lists[FOLLOWERS].split(",")) == sorted(
        f"{index}:2" for _, index in moving(cluster)
    )
    capsys.readouterr()

    began_s = time.monotonic()
    assert main([*line, *again]) == 0
    out = capsys.readouterr().out
    assert "3 partitions under way, 2.3 MiB to copy" in out
    assert out.endswith("All partitions are moved.\n")
    assert time.monotonic() - began_s < 20
    assert throttle(cluster) == NO_THROTTLE
    assert leads(cluster) == {1: 3, 2: 3}


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
        (["--at-once", "0"], "--at-once 0: expected at least 1"),
        (["--throttle", "0"], "--throttle 0: expected at least 1"),
        (["--throttle", "1MB"], "--throttle 1MB: expected a number"),
        (["--at-once", "many"], "--at-once many: expected a number"),
        (["--within", "soon"], "--within soon: expected a number"),
    ],
)
def test_a_mistake_is_one_sentence(options, said, capsys):
    assert main(["cluster", "rebalance", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"tidelog cluster rebalance: {said}\n")
