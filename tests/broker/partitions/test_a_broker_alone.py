"""What a broker loads at its start, and that one that is alone loads nothing of a cluster."""

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
OF_A_CLUSTER = (
    "tidelog.broker.controller.controller_loop",
    "tidelog.broker.controller.rules",
    "tidelog.broker.controller.sessions",
    "tidelog.broker.lifecycle.clean_start",
    "tidelog.broker.lifecycle.cluster",
    "tidelog.broker.lifecycle.controlled_shutdown",
    "tidelog.broker.lifecycle.keep_alive",
    "tidelog.broker.lifecycle.lease",
    "tidelog.broker.lifecycle.proof",
    "tidelog.broker.lifecycle.registration",
    "tidelog.broker.lifecycle.session",
    "tidelog.broker.lifecycle.unregistration",
    "tidelog.broker.logs.disks",
    "tidelog.broker.logs.slow_disks",
    "tidelog.broker.metadata.etcd",
    "tidelog.broker.metadata.liveness",
    "tidelog.broker.partitions.fetch.followers",
    "tidelog.broker.partitions.following",
    "tidelog.broker.partitions.leading",
    "tidelog.broker.partitions.partition",
    "tidelog.broker.partitions.replica_manager",
    "tidelog.broker.partitions.replication",
    "tidelog.broker.partitions.replication_state",
    "tidelog.storage.log.replication.leader_state",
    "tidelog.storage.log.replication.received",
    "tidelog.storage.log.replication.replica",
    "tidelog.storage.log.replication.roles",
    *("aetcd", "grpc", "google.protobuf"),
)


# What a broker needs when a batch of that codec, the first topic or the first request over HTTP comes.
FOR_LATER = (
    "aiohttp",
    "tidelog.broker.controller.controller",
    "tidelog.broker.controller.election",
    "tidelog.broker.controller.placement",
    "tidelog.broker.controller.reassignment",
    "tidelog.broker.controller.topics.placing",
    "tidelog.broker.controller.unfinished",
    "tidelog.broker.http.api",
    "tidelog.broker.http.routes",
    "cramjam",
    "lz4",
    "prometheus_client",
    "tidelog.protocol.records.codecs",
    "tidelog.protocol.records.kernels.kernels_py",
    "rich",
    "tidelog.storage.log.partition",
    "tidelog.storage.segment",
    "zstandard",
)


def loaded_by(directory, work=lambda _told: None):
    """Returns the modules that a broker has loaded when it has stopped after some work."""
    options = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--log-dirs", str(directory))
    options += ("--http", "127.0.0.1:0")
    command = [sys.executable, "-c", PROGRAM, str(ROOT), "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        work(dict(part.partition("=")[::2] for part in process.stdout.readline().split()[1:]))
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    return rest.split()


def test_a_start_without_topics_loads_no_codec_no_log_and_no_page(tmp_path):
    loaded = loaded_by(tmp_path)
    assert "tidelog.broker.network.dispatch" in loaded
    assert [name for name in loaded if name.startswith(FOR_LATER)] == []


def test_a_broker_that_is_alone_loads_nothing_of_a_cluster(tmp_path):
    def work(told):
        with Connection(told["listeners"].rpartition("/")[2]) as connection:
            create(connection, "t")
            produce(connection, "t", batch_of("x"))
            assert read_values(connection, "t") == [b"x"]

    loaded = loaded_by(tmp_path, work)
    assert "tidelog.broker.api.fetch" in loaded
    assert not list(tmp_path.glob("broker-*"))  # the lock and the socket of one of several
    assert [name for name in loaded if name.startswith(OF_A_CLUSTER)] == []
