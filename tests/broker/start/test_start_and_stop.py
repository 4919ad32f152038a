"""Start and stop: the ready line, SIGTERM under load, the lock on the log directory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.asking import batch_of, create, produce, read_values
from tests.broker.network.test_connection import AT_ONCE_S, heavy, wait_fields
from tests.broker.raw import Pipe, frame, header
from tidelog.config import TopicConfig
from tidelog.storage.directory.store import LogStore

PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tidelog.cli import main; sys.exit(main())"
ROOT = Path(__file__).resolve().parents[3]


def serve(*options):
    """`tidelog serve` as a plain subprocess."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ROOT), "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_ready_line_tells_the_ports_that_were_bound(tmp_path):
    process = serve(
        "--listeners",
        "PLAINTEXT://127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--log-dirs",
        str(tmp_path),
    )
    with process:
        line = process.stdout.readline()
        told = dict(part.partition("=")[::2] for part in line.split()[1:])
        assert line.startswith("ready ")
        assert int(told["pid"]) == process.pid
        port = int(told["listeners"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(frame(header(18, 0)))
            assert client.recv(10)
        http_port = int(told["http"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", http_port), timeout=60):
            pass
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest == "", "one line on standard output, and no more"


def test_a_second_process_does_not_touch_the_metadata(tmp_path):
    """They are of an older layout, which a start migrates, and the broker's settings add to them."""
    path = tmp_path / "tidelog.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(
            (Path(__file__).parents[1] / "metadata" / "sqlite" / "layout_2.sql").read_text()
        )
    before = path.read_bytes()
    first = LogStore([tmp_path], default_config=TopicConfig())
    first.lock()
    try:
        process = serve(
            *("--listeners", "PLAINTEXT://127.0.0.1:0", "--log-dirs", str(tmp_path)),
            *("--set", "log.retention.max.eventtime.ms=1000"),
        )
        with process:
            _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "is in use" in said
    finally:
        first.close()
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {".lock", "tidelog.sqlite"}


def test_a_port_or_directory_that_is_taken_is_told_in_a_sentence(broker, tmp_path):
    free = ("--listeners", "PLAINTEXT://127.0.0.1:0")
    taken, port = broker.bootstrap, broker.bootstrap.rpartition(":")[2]
    in_use = (
        f"{taken}: Address already in use, by another broker or some other program "
        f"(ss -ltnp 'sport = :{port}' shows which); name another port, or 0 for a free one"
    )
    own = ("--log-dirs", str(tmp_path))
    for options, sentence in (
        (("--listeners", f"PLAINTEXT://{taken}", *own), f'reason="listeners: {in_use}'),
        ((*free, "--http", taken, *own), f'reason="http.listener: {in_use}'),
        ((*free, "--control", taken, *own), f'reason="control.listener: {in_use}'),
        ((*free, "--log-dirs", str(broker.log_dir)), str(broker.log_dir)),
    ):
        with serve(*options) as process:
            told, said = process.communicate(timeout=60)
        assert (process.returncode, told) == (1, "")
        assert "Traceback" not in said
        assert sentence in said
        assert len([line for line in said.splitlines() if "level=warning" not in line]) == 1, said
    assert "is in use" in said


@pytest.mark.slow
def test_sigterm_with_waiting_fetches_and_open_connections(start):
    """Exit status 0 within seconds; who waits is answered or closed, nobody is left hanging."""
    broker = start()
    with ExitStack() as stack:
        connection = stack.enter_context(broker.connect())
        create(connection, "t")
        produce(connection, "t", batch_of("kept"))
        waiting = [stack.enter_context(Pipe(broker)) for _ in range(50)]
        for pipe in waiting:
            pipe.push("Fetch", 12, **wait_fields("t", 1))
        for _ in range(50):
            idle = stack.enter_context(Pipe(broker))
            idle.push("ApiVersions", 0)
            idle.pull()
        half = stack.enter_context(Pipe(broker))
        half.send(frame(header(18, 0))[:-2])
        slow = stack.enter_context(Pipe(broker))
        slow.push("ApiVersions", 0)
        slow.pull()
        for _ in range(2_000):
            slow.push("Metadata", 9, topics=None, allow_auto_topic_creation=False)
        started = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - started < AT_ONCE_S
        for pipe in waiting:
            answer = pipe.pull()
            if answer is not None:
                assert answer[1]["responses"][0]["partitions"][0]["error_code"] == 0
                assert pipe.pull() is None
    broker.restart()
    with broker.connect() as connection:
        assert read_values(connection, "t") == [b"kept"]
    assert not broker.lines("recover", "level=warning")


def test_sigterm_under_load_keeps_what_was_acknowledged(start):
    """Producers at full speed, small batches and batches that go through a thread."""
    broker = start()
    with broker.connect() as connection:
        create(connection, "t", partitions=4)
    acknowledged = [0] * 4
    going = threading.Event()

    def work(partition):
        with broker.connect() as mine:
            while True:
                number = acknowledged[partition]
                records = heavy(f"{number}") if partition == 0 else batch_of(f"{number}")
                try:
                    got = produce(mine, "t", records, partition=partition)
                except OSError:
                    return
                if got is None or got["error_code"]:
                    return
                acknowledged[partition] += 1
                if number == 20:
                    going.set()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    assert going.wait(60)
    assert broker.stop() == 0
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    broker.restart()
    with broker.connect() as connection:
        for partition in range(4):
            found = [v for v in read_values(connection, "t", partition=partition) if len(v) < 10]
            wanted = [b"%d" % number for number in range(acknowledged[partition])]
            assert found[: len(wanted)] == wanted
            assert len(found) <= len(wanted) + 1, "at most the one that was under way"


@pytest.mark.slow
def test_sigterm_loses_no_answer_of_a_pipelining_producer(start):
    """What was appended was answered, though requests were on their way when the broker left."""
    broker = start()
    with broker.connect() as connection:
        create(connection, "t", partitions=4)

    def push(pipe, partition):
        """No more at once than answers have room with us, or a stop might wait too short for them."""
        fields = asking.produce_fields("t", batch_of("x" * 500), partition=partition)
        with contextlib.suppress(OSError):
            data = frame(pipe.encoded("Produce", 7, **fields))
            while not gone.is_set():
                if room[partition].acquire(timeout=0.1):
                    pipe._socket.sendall(data)

    def count(pipe, answers, partition):
        while pipe.receive() is not None:
            answers[partition] += 1
            room[partition].release()
            if answers[partition] == 200:
                going.release()

    gone, going, answers = threading.Event(), threading.Semaphore(0), [0] * 4
    room = [threading.Semaphore(500) for _ in range(4)]
    with ExitStack() as stack:
        threads = []
        for partition in range(4):
            pipe = stack.enter_context(Pipe(broker))
            pipe.push("ApiVersions", 0)
            pipe.pull()
            threads.append(threading.Thread(target=push, args=(pipe, partition)))
            threads.append(threading.Thread(target=count, args=(pipe, answers, partition)))
        for thread in threads:
            thread.start()
        for _ in range(4):
            assert going.acquire(timeout=60)
        assert broker.stop() == 0
        gone.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    broker.restart()
    with broker.connect() as connection:
        ends = [asking.list_offset(connection, "t", -1, partition=i)["offset"] for i in range(4)]
    assert ends == answers


def test_stopping_right_after_the_start(start):
    broker = start()
    assert broker.stop() == 0
    broker.restart()
    with broker.connect() as connection:
        assert connection.ask("ApiVersions", 0)["error_code"] == 0


def test_signals_up_to_the_very_end_of_a_stop_are_no_crash(tmp_path):
    """Python gives the signals back to the system before it ends."""
    where = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0")
    with serve("--log-dirs", str(tmp_path), *where) as process:
        assert process.stdout.readline().startswith("ready ")
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.0005)
        assert process.returncode == 0, process.stderr.read()


def test_two_sigterms_are_one(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t")
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.stop() == 0
