"""Kafka Connect: lines of a file become records, and lines of another file.

Standalone, where a worker keeps its offsets in a file, and distributed, where workers are members of a group
and keep connectors, offsets and states in compacted topics.
"""

from __future__ import annotations

import pytest

from tests.broker.subject import Subject, eventually
from tests.oracle import apache_kafka
from tests.tools.conftest import VERSIONS
from tests.tools.connect import (
    STANDALONE,
    Lines,
    Program,
    properties,
    rest,
    start_distributed,
    states,
    worker,
)

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

SESSION_TIMEOUT_MS = 3_000
DEADLINE_S = 150


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"group.min.session.timeout.ms": 1_000, "auto.create.topics.enable": "false"}
    with Subject(tmp_path_factory.mktemp("connect") / "data", settings) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


@pytest.fixture(autouse=True)
def jars():
    apache_kafka.require(*(f"connect-{version}" for version in VERSIONS))


@pytest.fixture
def lines(tmp_path):
    return Lines(tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
class TestStandalone:
    def test_goes_on_where_it_was(self, version, broker, lines, tmp_path):
        own = worker(
            broker.bootstrap,
            listeners="http://127.0.0.1:0",
            offset_storage_file_filename=tmp_path / "told",
        )
        files = [
            properties(tmp_path, "worker", own),
            properties(tmp_path, "source", {"name": lines.topic, **lines.source()}),
            properties(tmp_path, "sink", {"name": f"{lines.topic}-sink", **lines.sink()}),
        ]
        for _ in range(2):
            lines.give(50)
            program = Program(version, "standalone", STANDALONE, tmp_path, *files)
            try:
                eventually(lines.arrived, DEADLINE_S, f"all lines:\n{program.tail(60)}")
            finally:
                program.stop()
        assert lines.numbers == list(range(100))  # each once, in their order
        with broker.connect() as connection:
            answer = connection.ask(
                "DescribeConfigs",
                4,
                resources=[{"resource_type": 2, "resource_name": lines.topic}],
                include_synonyms=False,
                include_documentation=False,
            )
        told = {each["name"]: each["value"] for each in answer["results"][0]["configs"]}
        assert told["message.timestamp.type"] == "LogAppendTime"


class TestDistributed:
    """Two workers, one of each version, as where one is upgraded after the other."""

    def test_one_is_killed_one_is_stopped(self, broker, lines, tmp_path):
        running = {}
        try:
            for version in VERSIONS:
                running[version] = start_distributed(
                    version, broker.bootstrap, tmp_path, SESSION_TIMEOUT_MS
                )
            ports = {
                version: eventually(program.rest_port, DEADLINE_S, f"a worker:\n{program.tail()}")
                for version, program in running.items()
            }
            self.both_at_work(broker, ports, lines)
            self.one_killed(ports, running, lines)
            (left,) = running
            running.pop(left).stop()
            numbers = lines.numbers
            lines.give(50)
            running[left] = start_distributed(left, broker.bootstrap, tmp_path, SESSION_TIMEOUT_MS)
            eventually(lines.arrived, DEADLINE_S, "lines after a restart")
            assert lines.numbers == [*numbers, *range(lines.count - 50, lines.count)]
        finally:
            for program in running.values():
                program.stop()

    def both_at_work(self, broker, ports, lines):
        first, second = ports.values()
        for port in ports.values():
            eventually(lambda port=port: rest(port, "GET", "/connectors") == [], DEADLINE_S)
        for port, (name, own) in zip(
            ports.values(),
            ((lines.topic, lines.source()), (f"{lines.topic}-sink", lines.sink())),
            strict=True,
        ):
            # While a rebalance is expected, as the connector before it may cause one, none is taken.
            asked = (port, "PUT", f"/connectors/{name}/config", own)
            taken = eventually(lambda asked=asked: rest(*asked), DEADLINE_S, f"{name} taken")
            assert taken["name"] == name
        lines.give(50)
        eventually(lines.arrived, DEADLINE_S, "all lines")
        both = {f"127.0.0.1:{first}", f"127.0.0.1:{second}"}
        eventually(lambda: set((states(first, lines) or {}).values()) == both, DEADLINE_S)
        with broker.connect() as connection:
            group = eventually(
                lambda: self.stable(connection), DEADLINE_S, "both in a stable group"
            )
            resources = [
                {"resource_type": 2, "resource_name": f"connect-{kind}"}
                for kind in ("config", "offset", "status")
            ]
            answer = connection.ask("DescribeConfigs", 4, resources=resources)
        assert group["protocol_type"] == "connect"
        for result in answer["results"]:
            told = {each["name"]: each["value"] for each in result["configs"]}
            assert told["cleanup.policy"] == "compact"

    @staticmethod
    def stable(connection):
        """The group, once it is stable with two members: what was given last may still be moved."""
        (group,) = connection.ask("DescribeGroups", 4, groups=["connect-cluster"])["groups"]
        there = (group["group_state"], len(group["members"]))
        return group if there == ("Stable", 2) else None

    def one_killed(self, ports, running, lines):
        """What the killed one did is done by the other, from the last offsets it committed."""
        first = ports[VERSIONS[0]]
        found = eventually(lambda: states(first, lines), DEADLINE_S, "all four at work")
        place = found[lines.topic, 1]
        (victim,) = (version for version in VERSIONS if place.endswith(f":{ports[version]}"))
        running.pop(victim).kill()
        lines.give(50)
        (left,) = running
        eventually(lines.arrived, DEADLINE_S, f"lines after a kill:\n{running[left].tail(60)}")
        there = f"127.0.0.1:{ports[left]}"

        def all_there():
            return set((states(ports[left], lines) or {}).values()) == {there}

        eventually(all_there, DEADLINE_S, "all of it at the one that is left")
