"""Other users of the machine: what they can open of a broker's files, and what they can hold.

The other user is a process of its own that knows nothing of the product. It works in the broker's directory,
so that the folders above, which only the test's user may enter, do not protect anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys

import pytest

from tests.broker.asking import create, produce, records_for
from tests.oracle import wire
from tidelog.process import BrokerProcess
from tidelog.storage.lock_file import LockFile

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

STRANGER = """
import fcntl, json, os, socket, sys
held, kinds = [], sys.argv[2:]
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(65534)
for line in sys.stdin:
    said = {}
    for name in json.loads(line):
        try:
            if name.endswith(".sock"):
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(name)
            else:
                held.append(os.open(name, os.O_RDONLY))
                if name.endswith(".lock") and "flock" in kinds:
                    fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                if name.endswith(".lock") and "lockf" in kinds:
                    fcntl.lockf(held[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
            said[name] = "yes"
        except OSError as error:
            said[name] = type(error).__name__
    print(json.dumps(said), flush=True)
"""
NOBODY = 65534
LOG = "t-0/00000000000000000000.log"
LOCKS = [".lock", "broker-1.lock"]
OURS = [*LOCKS, "tidelog.sqlite", "broker-1.sock", "registration", "clock-checkpoint", LOG]


class Stranger:
    """A process of another user, in a directory."""

    def __init__(self, directory, group=NOBODY, kinds=("flock", "lockf")):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", STRANGER, str(group), *kinds],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def opens(self, names):
        """What opening, and with lock files locking, each file comes to."""
        self.process.stdin.write(json.dumps(names) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.process:
            self.process.kill()


def started(directory, **settings):
    """A broker of a cluster of one: it has a session, and the files of several brokers."""
    store = {"metadata.store": f"sqlite:{directory / 'tidelog.sqlite'}", "node.id": 1}
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerProcess(directory, {**store, **named}, faults=True)


def filled(broker):
    """A log with a segment that compaction has written in its process, and an active one."""
    with contextlib.closing(wire.Connection(broker.bootstrap)) as connection:
        create(connection, "t", **{"cleanup.policy": "compact", "segment.bytes": "200"})
        for _ in range(5):
            produce(connection, "t", records_for(9, "a" * 100))
    broker.compact()


def modes(directory):
    """The permissions of everything in a directory, and its own, without Python's view of the umask."""
    found = [directory, *directory.rglob("*")]
    return {str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in found}


def test_everything_that_a_broker_makes_is_its_users_alone(tmp_path):
    directory = tmp_path / "data"
    with started(directory) as broker:
        filled(broker)
        found = modes(directory)
        assert set(OURS) <= found.keys()
        for name, mode in found.items():
            assert mode == (0o700 if (directory / name).is_dir() else 0o600), name
        assert stat.S_IMODE(broker.log_file.stat().st_mode) == 0o600
        with Stranger(directory) as stranger:
            assert stranger.opens(OURS) == dict.fromkeys(OURS, "PermissionError")
        assert "accessible to other users" not in broker.log()


def test_a_group_may_read_logs_and_hold_nothing(tmp_path):
    directory = tmp_path / "data"
    with started(directory, log_dir_group_readable="true") as broker:
        filled(broker)
        os.chown(directory, -1, NOBODY)
        directory.chmod(0o750)
        for path in (directory / LOG, (directory / LOG).parent):
            os.chown(path, -1, NOBODY)
        assert modes(directory)[LOG] == 0o640
        assert modes(directory)["t-0"] == 0o750
        secret = [*LOCKS, "tidelog.sqlite", "broker-1.sock"]
        with Stranger(directory) as stranger:
            said = stranger.opens([*secret, LOG])
        assert said == dict.fromkeys(secret, "PermissionError") | {LOG: "yes"}
    assert broker.stop() == 0


@pytest.mark.slow
def test_files_that_others_could_open_are_taken_away_from_them(tmp_path):
    """As an earlier version left them, and another user holds what can be locked."""
    directory = tmp_path / "data"
    with started(directory) as broker:
        filled(broker)
        broker.stop()
        for path in (directory, *directory.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        with Stranger(directory) as early, Stranger(directory) as late:
            assert early.opens(LOCKS) == dict.fromkeys(LOCKS, "yes")
            broker.restart()
            refused = dict.fromkeys([*LOCKS, "tidelog.sqlite", "broker-1.sock"], "PermissionError")
            assert late.opens([*refused]) == refused
            assert broker.log().count("accessible to other users") == 1
            assert f"chmod 700 {directory}" in broker.log()
            with started_beside(directory) as second:
                assert second.wait(60) == 1, "the new lock keeps another broker out"
            broker.kill()
            broker.restart()  # the files that were locked are held still
            with contextlib.closing(wire.Connection(broker.bootstrap)) as connection:
                create(connection, "u")


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_either_kind_of_lock_of_another_user_keeps_nobody_out(tmp_path, kind):
    path = tmp_path / ".lock"
    path.touch()
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    with Stranger(tmp_path, kinds=[kind]) as stranger:
        assert stranger.opens([".lock"]) == {".lock": "yes"}
        lock = LockFile(path, for_java=True)
        with pytest.raises(BlockingIOError):
            LockFile(path, for_java=True)
        lock.release()


def test_a_lock_that_was_taken_by_a_process_which_has_ended_is_held(tmp_path):
    """A child of it has the descriptor, whose user the kernel does not list."""
    path = tmp_path / ".lock"
    taken = "import fcntl; fcntl.flock(0, fcntl.LOCK_EX)"
    with path.open("w") as held:
        path.chmod(0o644)
        subprocess.run([sys.executable, "-S", "-c", taken], stdin=held, check=True)
        with pytest.raises(BlockingIOError):
            LockFile(path)


@contextlib.contextmanager
def started_beside(directory):
    command = [sys.executable, "-m", "tidelog", "serve", "--log-dirs", str(directory)]
    with subprocess.Popen(
        [*command, "--listeners", "PLAINTEXT://127.0.0.1:0"], stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
