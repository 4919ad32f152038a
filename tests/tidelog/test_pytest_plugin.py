"""The plugin as users have it: in a pytest of their own, with a directory of their own."""

from __future__ import annotations

import os
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tidelog import pytest_plugin

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"

pytest_plugins = ["pytester"]

# Those of kafka-python apart, as for our own tests.
WARNINGS = """\
filterwarnings =
    error
    ignore:(read|open)_text is deprecated:DeprecationWarning
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """A project that has a `config` package of its own, and the one test at the head of the page."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.mkpydir("config")
    return pytester


def run(project, *arguments, ini="", **files):
    """Runs pytest in a project with these test files and lines of the ini file."""
    project.makepyfile(**files)
    project.makeini(f"[pytest]\n{WARNINGS}{ini}")
    named = any(found.value == "tidelog.pytest_plugin" for found in entry_points(group="pytest11"))
    load = () if named else ("-p", "tidelog.pytest_plugin")
    # asyncio is a plugin of our own tests, which warns where it is not configured.
    unwanted = ("-p", "no:asyncio", "-p", "no:randomly")
    return project.runpytest_subprocess(*unwanted, *load, *arguments, timeout=240)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def pids(output, word):
    return [
        int(pid) for found in re.findall(rf"{word}((?: \d+)+)", output) for pid in found.split()
    ]


LIVES = """
import socket

import pytest


def test_shared(tidelog_broker):
    host, _, port = tidelog_broker.bootstrap.rpartition(":")
    socket.create_connection((host, int(port)), timeout=60).close()
    assert tidelog_broker.settings == {"num.partitions": "3"}
    print("SHARED", tidelog_broker.pid)


def test_shared_again(tidelog_broker):
    print("SHARED", tidelog_broker.pid)


def test_own(tidelog_broker, tidelog_broker_factory):
    own = [tidelog_broker_factory(), tidelog_broker_factory({"log.segment.bytes": 1000})]
    assert len({tidelog_broker.bootstrap, *(broker.bootstrap for broker in own)}) == 3
    own[0].kill()
    own[0].restart()
    print("OWN", *(broker.pid for broker in own))


@pytest.fixture(scope="module")
def of_module(tidelog_module_broker_factory):
    return tidelog_module_broker_factory()


@pytest.fixture(scope="session")
def of_session(tidelog_session_broker_factory):
    return tidelog_session_broker_factory()


@pytest.mark.parametrize("turn", [1, 2])
def test_longer_lives(of_module, of_session, turn):
    print("MODULE", of_module.pid)
    print("SESSION", of_session.pid)


def test_clock_and_faults(tidelog_broker_factory):
    broker = tidelog_broker_factory(clock="manual")
    assert broker.clock.set("2026-01-01T00:00Z") == 1767225600000
    with broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        assert fault.hits == 0
    faulty = tidelog_broker_factory({"num.partitions": 2}, faults=True)
    assert faulty.faults.list() == faulty.sweep() == []


@pytest.fixture(scope="module")
def cluster(tidelog_module_cluster_factory):
    return tidelog_module_cluster_factory(brokers=2, topics={"orders": 4})


def test_cluster(cluster, tidelog_cluster_factory):
    own = tidelog_cluster_factory(brokers=1)
    print("OWN", *(broker.pid for broker in own))
    cluster.kill(2)
    cluster.restart(2)
    print("MODULE", *(broker.pid for broker in cluster))
"""


@pytest.mark.slow
def test_brokers_of_a_session_of_a_module_and_of_a_test(project):
    ini = "tidelog_settings =\n    num.partitions = 3\n"
    done = run(project, "-s", ini=ini, test_lives=LIVES)
    done.assert_outcomes(passed=7)
    output = done.stdout.str()
    for word in ("SHARED", "SESSION"):
        one, again = pids(output, word)
        assert one == again
    assert len(pids(output, "MODULE")) == 4
    words = ("SHARED", "OWN", "MODULE", "SESSION")
    assert all(is_gone(pid) for word in words for pid in pids(output, word))


TOPICS = """
import re

import pytest
from kafka import KafkaAdminClient

names = set()


def partitions_of(broker):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        return {each["name"]: len(each["partitions"]) for each in admin.describe_topics()}
    finally:
        admin.close()


@pytest.mark.parametrize("case", ["a/b c", "a/b c again"])
def test_a_new_one_for_each_test(tidelog_broker, tidelog_topic, case):
    assert re.fullmatch(r"test_a_new_one_for_each_test-a-b-c.*", tidelog_topic)
    assert tidelog_topic not in names
    names.add(tidelog_topic)
    found = partitions_of(tidelog_broker)
    assert found[tidelog_topic] == 2
    assert found["orders"] == 3


def test_from_the_start(tidelog_broker_factory):
    broker = tidelog_broker_factory(topics={"orders": 3, "payments": -1})
    assert broker.create_topic("changes", settings={"cleanup.policy": "compact"}) == "changes"
    assert partitions_of(broker) == {"orders": 3, "payments": 1, "changes": 1}
"""


def test_topics_and_the_test_at_the_head_of_the_page(project):
    head = re.search(r"\A# .*\n\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    ini = "tidelog_settings = num.partitions=2\ntidelog_topics = orders=3\n"
    done = run(project, ini=ini, test_topics=TOPICS, test_page=head[1])
    done.assert_outcomes(passed=4)


FAILURES = """
import pytest


def test_of_its_own_broker(tidelog_broker_factory):
    broker = tidelog_broker_factory()
    broker.stop()
    assert broker.is_running, "OWN"


def test_that_removes_the_log(tidelog_broker_factory):
    broker = tidelog_broker_factory()
    broker.log_file.unlink()
    raise AssertionError


@pytest.fixture(scope="module")
def cluster(tidelog_module_cluster_factory):
    return tidelog_module_cluster_factory(brokers=2)


def test_of_a_cluster(cluster):
    assert len(cluster) == 3


def test_without_a_broker():
    assert not "a word"


@pytest.mark.xfail
def test_that_may_fail(cluster):
    assert not cluster


def test_a_mistake_in_a_setting(tidelog_broker_factory):
    tidelog_broker_factory({"log.segment.bites": 1000})  # THE LINE


def test_a_mistake_in_a_cluster(tidelog_cluster_factory):
    tidelog_cluster_factory(2, {"log.segment.bites": 1000})  # THE LINE


def test_a_mistake_in_a_topic(tidelog_broker_factory):
    tidelog_broker_factory(topics={"no/name": 1})  # THE LINE


def test_a_mistake_in_a_fault(tidelog_broker_factory):
    tidelog_broker_factory(faults=True).faults.add(api="Produce")  # THE LINE


def test_a_mistake_about_what_runs(tidelog_broker_factory):
    broker = tidelog_broker_factory()
    broker.stop()
    broker.create_topic("orders")  # THE LINE


@pytest.fixture
def mistaken(tidelog_broker_factory):
    return tidelog_broker_factory({"log.segment.bites": 1000})  # THE LINE


def test_a_mistake_in_a_fixture(mistaken):
    pass
"""


def reports_of(output):
    """The report of each test that failed, by its name."""
    parts = re.split(r"^_+ (?:ERROR at setup of )?(test_\w+) _+$", output, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.slow
def test_a_failure_shows_the_logs_of_its_brokers_and_no_line_of_ours(project):
    done = run(project, test_failures=FAILURES)
    done.assert_outcomes(failed=9, errors=1, xfailed=1)
    reports = reports_of(done.stdout.str())
    assert len(reports) == 10
    section = re.compile(r"^-+ Captured log of tidelog \((.*)\) -+$", re.MULTILINE)
    assert re.match(r"127\.0\.0\.1:\d+$", *section.findall(reports["test_of_its_own_broker"]))
    assert "stopped" in section.split(reports["test_of_its_own_broker"])[2]
    assert "(No such file or directory)" in reports["test_that_removes_the_log"]
    of_cluster = section.findall(reports["test_of_a_cluster"])
    assert [each.partition(", ")[0] for each in of_cluster] == ["broker 1", "broker 2"]
    assert not section.search(reports["test_without_a_broker"])
    for name, report in reports.items():
        if "mistake" in name:
            assert ">" in re.search("^(.).*# THE LINE$", report, re.MULTILINE)[1]
            files = set(re.findall(r"^(\S+\.py):\d+: \w", report, re.MULTILINE))
            assert files == {"test_failures.py"}, report
    done.stdout.fnmatch_lines(
        [
            "*BrokerFailed: the broker ended with status 2; its last log lines:",
            "*there is no setting log.segment.bites*",
        ]
    )


def test_no_hook_needs_the_pluggy_of_later_pytests():
    """Pluggy 1.0, which may be beside pytest 7, does not know `wrapper`."""
    options = pytest_plugin.pytest_runtest_makereport.pytest_impl
    assert (options["hookwrapper"], options["wrapper"]) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ini", "sentence"),
    [
        ("tidelog_settings = nonsense", "tidelog_settings: 'nonsense' is not name=value"),
        ("tidelog_topics = orders", "tidelog_topics: 'orders' is not name=partitions"),
        ("tidelog_topics = orders=many", "tidelog_topics: 'orders=many' is not name=partitions"),
        ("tidelog_ready_within_s = soon", "tidelog_ready_within_s=soon: expected a number"),
    ],
)
def test_mistakes_in_the_ini_file(project, ini, sentence):
    done = run(project, ini=ini, test_it="def test_it(tidelog_broker): pass\n")
    assert done.ret != 0
    assert sentence in done.stdout.str() + done.stderr.str()
