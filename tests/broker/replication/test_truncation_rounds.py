"""Whatever elections were before, a follower's log becomes its leader's, round by round.

Hypothesis makes histories: elections, clean or not, appends, and followers that come along for a part
of the way. Both machines then talk to each other. Every truncation must keep all that both logs have
in common, and every round must come nearer to the end.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.replication.scene import LEASE_MS, Log, record
from tidelog.broker.replication.follower import Follower
from tidelog.broker.replication.leader import Leader
from tidelog.broker.replication.lease import Lease
from tidelog.broker.replication.messages import (
    Append,
    Assignment,
    BrokerStatus,
    LeaderRules,
    RestartAt,
    Truncate,
)

REPLICAS = (0, 1, 2)
ROUNDS = 50


def elected(logs, leader, epoch):
    logs[leader].begin(epoch)
    assignment = Assignment(record(leader=leader, epoch=epoch), epoch)
    brokers = {broker: BrokerStatus(100 + broker) for broker in REPLICAS}
    log = logs[leader].as_leader()
    rules = LeaderRules(2, 30_000)
    return Leader(leader, assignment, log, rules, brokers, Lease(LEASE_MS, 0), 0)


def take_round(leader, leader_log, follower, log, most):
    """One fetch and its answer. Returns whether the follower has all."""
    request = follower.next_fetch(log.as_follower())
    answer, _ = leader.on_fetch(request, 0)
    before = log.end, log.entries[-1:]
    common = in_common(leader_log, log)
    for action in follower.on_answer(request, answer, log.as_follower()):
        match action:
            case Truncate(offset, _):
                assert offset >= common
                log.truncate(offset)
                assert (log.end, log.entries[-1:]) != before
            case RestartAt(offset):
                log.__init__(start=offset)
            case Append():
                assert common == log.end, "appends to a log that has parted"
                for epoch, value in leader_log.records[log.end - leader_log.start :][:most]:
                    log.append(epoch, value)
    return log.end == leader_log.end and answer.diverging is None


def in_common(one, other):
    """Where two logs part, or one ends."""
    end = min(one.end, other.end)
    start = max(one.start, other.start)
    for offset in range(start, end):
        if one.records[offset - one.start] != other.records[offset - other.start]:
            return offset
    return end


steps = st.lists(
    st.tuples(
        st.sampled_from(REPLICAS),  # the next leader
        st.integers(0, 3),  # how many records it appends
        st.lists(st.tuples(st.sampled_from(REPLICAS), st.integers(1, 3)), max_size=4),
    ),
    min_size=1,
    max_size=8,
)


@given(steps)
def test_logs_become_equal(steps):
    logs = {broker: Log() for broker in REPLICAS}
    for epoch, (number, count, fetches) in enumerate(steps, 1):
        leader = elected(logs, number, epoch)
        for _ in range(count):
            logs[number].append(epoch, (epoch, logs[number].end))
        leader.on_appended(logs[number].end, 0)
        followers = {broker: follower_of(leader, broker) for broker in REPLICAS}
        for broker, most in fetches:
            if broker != number:
                take_round(leader, logs[number], followers[broker], logs[broker], most)
    for broker in set(REPLICAS) - {number}:
        follower = follower_of(leader, broker)
        rounds = (
            take_round(leader, logs[number], follower, logs[broker], 3) for _ in range(ROUNDS)
        )
        assert any(rounds), "no end"
        assert logs[broker].records == logs[number].records


def follower_of(leader, broker):
    return Follower(broker, 100 + broker, leader.record)
