"""`tidelog serve --brokers N` as a process: ready, restarts, stops in order, and what ends it early."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from tests.broker.asking import create, fetch_fields, produce, records_for
from tests.oracle import wire
from tests.tidelog.processes import WITHIN_S, connects, ended
from tidelog.broker.metadata.liveness.lock_holders import holders, is_stopped
from tidelog.cli.parser import main
from tidelog.kept_ports import KeptPorts

ROOT = Path(__file__).parents[3]
ENDED = '"a broker has ended" broker=2 signal=SIGKILL'


class Serving:
    """A supervisor that runs, its ready line as values, and its log."""

    def __init__(self, directory, *options, brokers="3", stderr=None):
        self.log_file = directory / "serve.log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tidelog", "serve", "--brokers", brokers),
                    *("--log-dirs", directory / "data", *options),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
            )
        line = self.process.stdout.readline().decode()
        self.said = dict(part.partition("=")[::2] for part in line.split()[1:])

    @property
    def bootstrap(self):
        return self.said["bootstrap"].split(",")

    @property
    def pids(self):
        return [int(pid) for pid in self.said["pids"].split(",")]

    def log(self):
        return self.log_file.read_text()

    def wait_for_log(self, pattern, count=1):
        deadline = time.monotonic() + WITHIN_S
        while len(re.findall(pattern, self.log())) < count:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(WITHIN_S)


@contextlib.contextmanager
def serving(directory, *options, brokers="3", stderr=None):
    free = ("--listeners", "PLAINTEXT://127.0.0.1:0")
    subject = Serving(directory, *(options or free), brokers=brokers, stderr=stderr)
    try:
        yield subject
    finally:
        subject.process.kill()
        subject.process.wait()
        subject.process.stdout.close()


def test_a_life(tmp_path):
    file = tmp_path / "broker.properties"
    file.write_text("password.encoder.secret=hunter2\n", encoding="utf-8")
    options = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0")
    secret = ("--config", str(file), "--set", "confluent.license=hunter3")
    with serving(tmp_path, *options, *secret) as subject:
        for pid in subject.pids:  # every user of the machine can read command lines
            assert b"hunter" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert subject.said["brokers"] == "3"
        assert len(set(subject.bootstrap)) == len(set(subject.said["http"].split(","))) == 3
        assert all(map(connects, subject.bootstrap))
        assert (tmp_path / "data" / "tidelog.sqlite").exists()
        assert sorted(each.name for each in (tmp_path / "data" / "brokers").iterdir()) == ["2", "3"]
        assert subject.stop() == 0
        assert subject.process.stdout.read() == b""  # one line and no more
        assert all(map(ended, subject.pids))
    assert "hunter" not in subject.log()
    stops = re.findall(r'"a broker has stopped" broker=(\d) status=0', subject.log())
    assert stops == ["3", "2", "1"]
    own = [line for line in subject.log().splitlines() if line.startswith("broker=")]
    assert {line[:9] for line in own} == {"broker=1 ", "broker=2 ", "broker=3 "}
    assert all(re.match(r"broker=\d ts=\S+ level=", line) for line in own)
    stopped, stopping = 'broker=3 .* msg="broker stopped"', 'broker=2 .* msg="broker stopping"'
    order = [re.search(each, subject.log()).start() for each in (stopped, stopping)]
    assert order == sorted(order)  # one after another


def stop_at(pid, moment):
    """Stops a process at a moment of which `moment` says whether it has come."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        os.kill(pid, signal.SIGSTOP)
        while not is_stopped(pid):
            time.sleep(0.0005)
        if moment():
            return
        os.kill(pid, signal.SIGCONT)
        assert time.monotonic() < deadline
        time.sleep(0.0005)


@pytest.mark.slow
def test_a_broker_that_is_stopped_with_the_lock_of_the_metadata_is_killed_and_started_again(
    tmp_path,
):
    free = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--set", "broker.session.timeout.ms=1000")
    with serving(tmp_path, *free) as subject:
        pid, metadata = subject.pids[1], tmp_path / "data" / "tidelog.sqlite"
        stop_at(pid, lambda: pid in {each.pid for each in holders(metadata)})
        subject.wait_for_log(f'all others wait: killed" broker=2 pid={pid}')
        subject.wait_for_log(ENDED)
        subject.wait_for_log('broker=2 .* msg="broker ready"', count=2)
        assert subject.stop() == 0


@pytest.mark.slow
def test_a_broker_that_is_stopped_without_the_lock_of_the_metadata_is_let_be(tmp_path):
    free = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--set", "broker.session.timeout.ms=500")
    with serving(tmp_path, *free) as subject:
        pid, metadata = subject.pids[1], tmp_path / "data" / "tidelog.sqlite"
        stop_at(pid, lambda: pid not in {each.pid for each in holders(metadata)})
        time.sleep(1.5)  # three sessions long
        os.kill(pid, signal.SIGCONT)
        subject.wait_for_log(r'broker=2 .*"broker session lost')
        subject.wait_for_log(r'broker=2 .* msg="broker registered"', count=2)
        assert "killed" not in subject.log()
        assert subject.stop() == 0


def in_sync(subject, topic):
    """The ISR of a topic's first partition."""
    admin = KafkaAdminClient(bootstrap_servers=subject.bootstrap)
    try:
        ((partition,),) = [each["partitions"] for each in admin.describe_topics([topic])]
        return set(partition["isr_nodes"])
    finally:
        admin.close()


@pytest.mark.slow
def test_a_broker_that_came_back_is_in_sync_again(tmp_path):
    with serving(tmp_path) as subject:
        producer = KafkaProducer(bootstrap_servers=subject.bootstrap, acks="all")
        offsets = [producer.send("t", b"before", partition=0).get(WITHIN_S).offset]
        os.kill(subject.pids[0], signal.SIGKILL)
        offsets.append(producer.send("t", b"after", partition=0).get(WITHIN_S).offset)
        producer.close()
        assert offsets == [0, 1]
        subject.wait_for_log('"a broker has ended" broker=1 signal=SIGKILL starts_again_in_s=0.25')
        # It is unfenced, and ready, when it is in no ISR any more.
        subject.wait_for_log('broker=1 .* msg="broker ready"', count=2)
        deadline = time.monotonic() + WITHIN_S
        while (found := in_sync(subject, "t")) != {1, 2, 3}:
            assert time.monotonic() < deadline, (found, subject.log())
            time.sleep(0.05)
        assert connects(subject.bootstrap[0])
        assert subject.stop() == 0


@pytest.mark.slow
def test_without_restarts_it_stays_dead(tmp_path):
    options = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--no-restart")
    with serving(tmp_path, *options) as subject:
        os.kill(subject.pids[1], signal.SIGKILL)
        subject.wait_for_log('"a broker has ended, and stays down" broker=2 signal=SIGKILL')
        assert [connects(address) for address in subject.bootstrap] == [True, False, True]
        assert subject.stop(signal.SIGINT) == 0


@pytest.mark.slow
def test_a_paused_broker_stops_too(tmp_path):
    with serving(tmp_path, brokers="2") as subject:
        os.kill(subject.pids[1], signal.SIGSTOP)
        assert subject.stop() == 0


@pytest.mark.slow
def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path):
    with serving(tmp_path) as subject:
        subject.process.kill()
        assert all(map(ended, subject.pids))


@pytest.mark.slow
def test_what_nobody_can_read_of_a_supervisor_is_in_a_file_of_its_own(tmp_path):
    read, write = os.pipe()
    with serving(tmp_path, brokers="2", stderr=write) as subject:
        os.close(write)
        os.close(read)
        assert subject.stop() == 0
    assert '"a broker has stopped"' in (tmp_path / "data" / "unread-supervisor.log").read_text()
    assert not (tmp_path / "data" / "unread.log").exists()


@pytest.mark.slow
def test_one_that_is_started_at_once_waits_for_the_brokers_of_a_killed_one(tmp_path):
    with free_neighbours() as (port, kept):
        listeners = ("--listeners", f"PLAINTEXT://127.0.0.1:{port}")
        with serving(tmp_path, *listeners, brokers="2") as first, contextlib.ExitStack() as slow:
            clients = [slow.enter_context(wire.Connection(each)) for each in first.bootstrap]
            create(clients[0], "t")
            for client in clients:  # one is connected to the leader, which waits for it for seconds
                for _ in range(16):
                    produce(client, "t", records_for(9, "x" * 900_000))
                fields = fetch_fields("t", partition_max_bytes=50 << 20)
                client.ask("Fetch", 11, answered=False, **fields)
            first.process.kill()
            kept.release()
            with serving(tmp_path, *listeners, brokers="2") as second:
                assert second.bootstrap == first.bootstrap, second.log()
                assert not set(second.pids) & set(first.pids)
                assert all(map(ended, first.pids))
                assert "a broker has ended" not in second.log()
                assert second.stop() == 0
    for broker in ("", "brokers/2/"):  # what nobody could read any more
        assert 'msg="broker stopped"' in (tmp_path / "data" / broker / "unread.log").read_text()


@pytest.mark.slow
def test_a_second_signal_stops_the_rest_at_once(tmp_path):
    with serving(tmp_path) as subject:
        stuck = subject.pids[2]
        subject.process.send_signal(signal.SIGTERM)
        subject.wait_for_log('"stopping a broker" broker=3')
        subject.process.send_signal(signal.SIGTERM)
        assert subject.process.wait(WITHIN_S) == 0
        assert ended(stuck)


@contextlib.contextmanager
def free_neighbours():
    """Yields a free port, after which the next one is free as well, and what keeps both."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
                break
    kept = KeptPorts()
    kept.keep([f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"])
    yield port, kept
    kept.release()


def taken_behind_a_free_one():
    """Returns a socket that listens, whose port follows one that nothing listens on."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


@pytest.mark.slow
def test_a_port_in_use_ends_them_all(tmp_path):
    with taken_behind_a_free_one() as taken:
        free = f"127.0.0.1:{taken.getsockname()[1] - 1}"
        kept = KeptPorts()
        kept.keep([free])  # until the first broker listens on it
        with serving(tmp_path, "--listeners", f"PLAINTEXT://{free}", brokers="2") as subject:
            assert subject.process.wait(WITHIN_S) == 1
            assert subject.said == {}
        kept.release()
    assert re.search(r"broker=2 .*address already in use", subject.log(), re.IGNORECASE)
    assert '"a broker did not start" broker=2 status=1' in subject.log()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--brokers", "x"), "--brokers x: expected a number\n"),
        (("--brokers", "0"), "--brokers 0: expected a number from 1 to 100\n"),
        (("--no-restart",), "--no-restart is about the brokers of --brokers N\n"),
        (("--brokers", "2", "--set", "node.id=3"), "node.id cannot be set with --brokers"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, capsys, options, said):
    assert main(["serve", "--log-dirs", str(tmp_path), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"tidelog serve: {said}")
