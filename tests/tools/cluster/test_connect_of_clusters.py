"""Kafka Connect, distributed, on three brokers: a worker is killed, and every broker after another.

Two workers, one of each version, as where one is upgraded after the other, are members of a group, and keep
connectors, offsets and states in compacted topics.
"""

from __future__ import annotations

import pytest

from tests.broker.subject import eventually
from tests.oracle import apache_kafka, wire
from tests.tools.cluster.three import COUNT
from tests.tools.conftest import VERSIONS
from tests.tools.connect import GROUP, Lines, rest, start_distributed, states

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

DEADLINE_S = 150
SESSION_MS = 6_000
LINES = 50


@pytest.fixture
def lines(tmp_path):
    apache_kafka.require(*(f"connect-{version}" for version in VERSIONS))
    return Lines(tmp_path)


def in_order(numbers):
    """Each number where it came first: who was not told what is stored writes it again."""
    return list(dict.fromkeys(numbers))


def test_every_line_arrives_though_a_worker_and_brokers_are_killed(three, lines, tmp_path):
    running = {
        version: start_distributed(version, three.bootstrap, tmp_path, SESSION_MS, replicas=COUNT)
        for version in VERSIONS
    }
    try:
        ports = {
            version: eventually(program.rest_port, DEADLINE_S, f"a worker:\n{program.tail()}")
            for version, program in running.items()
        }
        for port in ports.values():
            eventually(lambda at=port: rest(at, "GET", "/connectors") == [], DEADLINE_S)
        port = ports[VERSIONS[0]]
        for name, own in ((lines.topic, lines.source()), (f"{lines.topic}-sink", lines.sink())):
            asked = (port, "PUT", f"/connectors/{name}/config", own)
            eventually(lambda asked=asked: rest(*asked), DEADLINE_S, f"{name} taken")
        arrive(lines, running)
        both_at_work(three, ports, lines)
        for broker in range(1, COUNT + 1):
            lines.give(LINES)
            three.kill(broker)
            arrive(lines, running)
        one_worker_killed(three, lines, ports, running)
    finally:
        for program in running.values():
            program.stop()
    assert in_order(lines.numbers) == list(range(lines.count))
    stored = [each for each in three.partitions() if each["topic"].startswith("connect-")]
    assert {each["topic"] for each in stored} == {
        "connect-config",
        "connect-offset",
        "connect-status",
    }
    assert all(sorted(each["replicas"]) == [1, 2, 3] for each in stored)
    assert {three.settings(each["topic"])["cleanup.policy"] for each in stored} == {"compact"}


def arrive(lines, running):
    """More lines arrive."""
    lines.give(LINES)
    tails = "\n".join(program.tail(30) for program in running.values())
    eventually(lines.arrived, DEADLINE_S, f"{lines.count} lines:\n{tails}")


def both_at_work(three, ports, lines):
    """Each worker has a part; they are a stable group, once nothing is moved any more."""

    def group():
        with wire.Connection(three.coordinator(GROUP)) as connection:
            (told,) = connection.ask("DescribeGroups", 4, groups=[GROUP])["groups"]
        return told["protocol_type"], told["group_state"], len(told["members"])

    both = {f"127.0.0.1:{port}" for port in ports.values()}
    port = ports[VERSIONS[0]]
    eventually(lambda: set((states(port, lines) or {}).values()) == both, DEADLINE_S)
    eventually(lambda: group() == ("connect", "Stable", 2), DEADLINE_S, "both in a stable group")


def one_worker_killed(three, lines, ports, running):
    """What the sink's worker did is done by the other one, while the coordinator is killed, too."""
    found = eventually(lambda: states(ports[VERSIONS[0]], lines), DEADLINE_S, "all at work")
    place = found[f"{lines.topic}-sink", 1]
    (victim,) = (version for version in VERSIONS if place.endswith(f":{ports[version]}"))
    running.pop(victim).kill()
    lines.give(LINES)
    three.kill(three.leader("connect-offset"))
    arrive(lines, running)
