"""A broker as a process: ready, stopped, killed, restarted, orphaned, and failing with its log shown."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.tidelog.processes import connects, ended
from tidelog.control import Clock
from tidelog.process import BrokerFailed, BrokerProcess

ROOT = Path(__file__).parents[2]


def bound_here():
    """The addresses, `host:port`, that sockets of this process are bound to."""
    found = set()
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the one that lists them is closed by now
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as one:
                    if one.family == socket.AF_INET:
                        found.add("{}:{}".format(*one.getsockname()))
    return found


def test_a_life(tmp_path):
    with BrokerProcess(
        tmp_path / "data", {"num.partitions": 3, "delete.topic.enable": False}
    ) as broker:
        assert connects(broker.bootstrap)
        assert connects(broker.http)
        assert broker.is_running
        assert (broker.log_dir / "tidelog.sqlite").exists()
        first = (broker.bootstrap, broker.http, broker.cluster_id)
        assert broker.stop() == 0
        assert not broker.is_running
        assert not connects(broker.bootstrap)
        broker.restart({"num.partitions": None, "log.level": "debug"})
        assert (broker.bootstrap, broker.http, broker.cluster_id) == first
        assert broker.settings == {"delete.topic.enable": "false", "log.level": "debug"}
        broker.kill()
        assert not broker.is_running
        broker.restart()
        assert connects(broker.bootstrap)
        broker.pause()
    assert not broker.is_running
    with pytest.raises(BrokerFailed, match="has been stopped"):
        _ = broker.pid


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can keep them")
@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_its_ports_are_nobody_elses_until_it_is_back(tmp_path, end):
    """Another process that asks for any free port might else be given one of them."""

    def is_free(address):
        host, _, port = address.rpartition(":")
        with socket.socket() as other:
            try:
                other.bind((host, int(port)))
            except OSError:
                return False
        return True

    with BrokerProcess(tmp_path / "data", faults=True) as broker:
        addresses = [broker.bootstrap, broker.http, broker.control]
        for _ in range(2):
            end(broker)
            assert not any(is_free(address) for address in addresses)
            assert not any(connects(address) for address in addresses)
            broker.restart()
            assert all(connects(address) for address in addresses)
        end(broker)
        assert bound_here() >= set(addresses)
    # Whether they are free is unknown: another process may have them by now.
    assert not bound_here() & set(addresses)


def test_a_mistake_fails_with_what_the_broker_said(tmp_path):
    with pytest.raises(BrokerFailed) as caught:
        BrokerProcess(tmp_path / "data", {"num.partitons": 3})
    assert str(caught.value) == (
        "the broker ended with status 2; its last log lines:\n"
        "    tidelog serve: there is no setting num.partitons (from command line); "
        "did you mean num.partitions?"
    )


@pytest.mark.slow
def test_a_second_broker_on_the_same_logs_is_refused(tmp_path):
    with BrokerProcess(tmp_path / "data"), pytest.raises(BrokerFailed, match="ended with status 1"):
        BrokerProcess(tmp_path / "data")


def test_one_that_is_not_ready_in_time_is_killed(tmp_path):
    with pytest.raises(BrokerFailed, match=r"was not ready within 0 s; its last log lines"):
        BrokerProcess(tmp_path / "data", ready_within_s=0)


@pytest.mark.slow
def test_one_that_dies_while_its_clock_is_set_fails_with_what_it_said(tmp_path, monkeypatch):
    with BrokerProcess(tmp_path, clock="manual") as broker:
        broker.clock.run(2)
        run = Clock.run

        def run_too_late(clock, rate):
            os.kill(broker.pid, signal.SIGKILL)
            os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
            return run(clock, rate)

        with monkeypatch.context() as patched:
            patched.setattr(Clock, "run", run_too_late)
            with pytest.raises(BrokerFailed, match=r"did not take the rate of its clock .*\n"):
                broker.restart()
        assert not broker.is_running
        broker.restart()
        assert broker.stop() == 0


PARENT = """
import sys
import warnings
from pathlib import Path
from tidelog.process import BrokerProcess
broker = BrokerProcess(Path(sys.argv[1]))
print(broker.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_when_its_parent_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with parent:
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    assert ended(pid)
    assert "stopped" in (tmp_path / "data.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("forgotten", [0, 3])
def test_a_sweep_warns_of_what_it_does_not_tell(monkeypatch, forgotten):
    class Client:
        def ask(self, method, path, body):
            assert (method, path, body) == ("POST", "/v1/sweep", {"topic": None})
            return {"deleted": [{"topic": "a"}], **({"forgotten": forgotten} if forgotten else {})}

    broker = BrokerProcess.__new__(BrokerProcess)  # none is started
    monkeypatch.setattr(BrokerProcess, "_asked", lambda _: Client())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert broker.sweep() == [{"topic": "a"}]
    said = [str(each.message) for each in caught if each.category is RuntimeWarning]
    assert said == ["3 deletions of earlier rounds are no longer known: sweep more often"] * bool(
        forgotten
    )


def test_its_settings_are_on_no_command_line_and_variables_of_the_tests_do_not_reach_it(
    tmp_path, monkeypatch
):
    """Every user of the machine can read command lines."""
    monkeypatch.setenv("KAFKA_LOG_RETENTION_MS", "no number")
    settings = {"num.partitions": 7, "password.encoder.secret": "hunter2"}
    with BrokerProcess(tmp_path / "data", settings, clock="manual") as broker:
        command = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
        assert b"hunter2" not in command
        assert b"num.partitions" not in command
        assert Path(f"/proc/{broker.pid}/environ").stat().st_mode & 0o077 == 0
        assert "hunter2" not in broker.log()
        assert "setting=password.encoder.secret value=(hidden)" in broker.log()
