"""A broker that is alone loads nothing of replication, also when it has appended and answered."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.broker.asking import batch_of, create, produce, read_values
from tests.oracle.wire import Connection

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from tidelog.cli import main
status = main()
print("loaded", *sys.modules)
sys.exit(status)
"""
OF_REPLICATION = (
    "tidelog.broker.replication",
    "tidelog.broker.replicas",
    "tidelog.broker.partitions.replication_state",
    "tidelog.storage.log.replication.leader_state",
    "tidelog.storage.log.replication.received",
    "tidelog.storage.log.replication.replica",
    "tidelog.storage.log.replication.roles",
)


def test_a_broker_that_is_alone_loads_nothing_of_replication(tmp_path):
    options = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--log-dirs", str(tmp_path))
    command = [sys.executable, "-c", PROGRAM, str(ROOT), "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = dict(part.partition("=")[::2] for part in process.stdout.readline().split()[1:])
        with Connection(told["listeners"].rpartition("/")[2]) as connection:
            create(connection, "t")
            produce(connection, "t", batch_of("x"))
            assert read_values(connection, "t") == [b"x"]
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    loaded = rest.split()
    assert "tidelog.broker.api.fetch" in loaded
    assert [name for name in loaded if name.startswith(OF_REPLICATION)] == []
