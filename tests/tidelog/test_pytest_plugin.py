"""The plugin as users have it: in a pytest of their own, with a directory of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import socket

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

def test_clock_and_faults(tidelog_broker_factory):
    broker = tidelog_broker_factory(clock="manual")
    assert broker.clock.set("2026-01-01T00:00Z") == 1767225600000
    with broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        assert fault.hits == 0
    faulty = tidelog_broker_factory({"num.partitions": 2}, faults=True)
    assert faulty.faults.list() == faulty.sweep() == []

def test_cluster(tidelog_cluster):
    cluster = tidelog_cluster(brokers=2)
    cluster.kill(2)
    cluster.restart(2)
    print("OWN", *(broker.pid for broker in cluster))

def test_own_mistake(tidelog_broker_factory):
    tidelog_broker_factory({"log.segment.bites": 1000})
"""


def pytest_in(directory, *arguments, ini="", tests=TESTS):
    """Run pytest in a project that has a `config` package of its own."""
    (directory / "config").mkdir()
    (directory / "config" / "__init__.py").write_text("THEIRS = True\n", encoding="utf-8")
    (directory / "test_it.py").write_text(tests, encoding="utf-8")
    (directory / "pytest.ini").write_text(f"[pytest]\n{ini}", encoding="utf-8")
    installed = any(
        found.value == "tidelog.pytest_plugin" for found in entry_points(group="pytest11")
    )
    load = [] if installed else ["-p", "tidelog.pytest_plugin"]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-W",
            "error",
            "-p",
            "no:asyncio",  # a plugin of our own tests, which warns where it is not configured
            "--basetemp",
            "t",
            *load,
            *arguments,
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def pids(output, word):
    return [
        int(pid)
        for line in output.splitlines()
        if f"{word} " in line
        for pid in line.split(word)[1].split()
    ]


@pytest.mark.slow
def test_brokers_of_the_session_and_of_a_test(tmp_path):
    done = pytest_in(
        tmp_path, "-p", "no:randomly", ini="tidelog_settings =\n    num.partitions = 3\n"
    )
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert "BrokerFailed: the broker ended with status 2; its last log lines:" in done.stdout
    assert "there is no setting log.segment.bites" in done.stdout
    shared, again = pids(done.stdout, "SHARED")
    assert shared == again
    assert all(is_gone(pid) for pid in (shared, *pids(done.stdout, "OWN")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ini", "sentence"),
    [
        ("tidelog_settings = nonsense", "tidelog_settings: 'nonsense' is not name=value"),
        ("tidelog_ready_within_s = soon", "tidelog_ready_within_s=soon: expected a number"),
    ],
)
def test_mistakes_in_the_ini_file(tmp_path, ini, sentence):
    done = pytest_in(tmp_path, ini=ini, tests="def test_it(tidelog_broker): pass\n")
    assert done.returncode != 0
    assert sentence in done.stdout + done.stderr
