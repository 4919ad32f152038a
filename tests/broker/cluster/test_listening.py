"""A broker of a cluster listens to clients when it is unfenced, and not before.

Until then its image may have no broker that is not fenced, as after a kill of all brokers: clients that
believed it would forget every broker they know. HTTP answers from the start, and says what is missing.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.broker.partitions.load import create
from tests.broker.subject import eventually, page_at
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import asyncio, select, sys
sys.path.insert(0, sys.argv.pop(1))
from tidelog.broker.lifecycle.cluster import Cluster
start = Cluster.start
async def held(self, listeners):
    listeners = list(listeners)
    for each in listeners:
        print(*each.advertised, flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        await asyncio.sleep(0.01)
    sys.stdin.readline()
    await start(self, listeners)
Cluster.start = held
from tidelog.cli import main
sys.exit(main())
"""


@pytest.fixture
def held(tmp_path):
    """A broker that begins to register when it reads a line."""
    options = ["--listeners", "PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0"]
    options += ["--log-dirs", str(tmp_path)]
    options += ["--set", f"metadata.store=sqlite:{tmp_path}/tidelog.sqlite"]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ROOT), "serve", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.terminate()
        assert process.wait(60) == 0


def test_nobody_connects_before_the_broker_is_unfenced(held):
    """HTTP answers meanwhile."""
    host, port = held.stdout.readline().split()
    http = ":".join(held.stdout.readline().split())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=60)
    assert page_at(http, "/healthz") == (200, "ok\n")
    assert page_at(http, "/readyz") == (503, "not ready: not registered in the cluster yet\n")
    assert page_at(http, "/v1/cluster")[0] == 200
    assert page_at(http, "/metrics")[0] == 200
    held.stdin.write("\n")
    held.stdin.flush()
    assert held.stdout.readline().startswith("ready ")
    assert page_at(http, "/readyz") == (200, "ready\n")
    socket.create_connection((host, int(port)), timeout=60).close()


def test_a_broker_that_waits_to_be_unfenced_can_be_stopped(held):
    held.stdout.readline()
    held.stdout.readline()
    held.terminate()
    assert held.wait(60) == 0
    assert held.stdout.read() == ""


@pytest.mark.slow
def test_brokers_whose_sessions_are_lost_are_not_ready_and_every_diagnosis_says_so(
    tmp_path, capsys
):
    with BrokerCluster(tmp_path, 2, {"broker.session.timeout.ms": 4000}) as cluster:
        create(cluster, "t", replicas=2)
        at = [broker.http for broker in cluster]
        assert [page_at(http, "/readyz") for http in at] == [(200, "ready\n")] * 2
        # A broker that is only cut off keeps its session; one that was paused past its lease steps down.
        for broker in (1, 2):
            cluster.cut(broker)
            cluster.pause(broker)
        time.sleep(5)
        for broker in (1, 2):
            cluster.resume(broker)
        why = "not ready: the session in the cluster is lost: its lease has ended"
        for http in at:
            eventually(lambda http=http: page_at(http, "/readyz")[0] == 503)
            assert page_at(http, "/readyz")[1] == f"{why}\n"
            found = findings(capsys, "doctor", http)
            assert "broker not serving" in {each["finding"] for each in found}
            assert f"{why}." in " ".join(each["sentence"] for each in found)
            found = {each["finding"]: each for each in findings(capsys, "cluster", "doctor", http)}
            assert found["broker missing"]["sentence"].startswith("Broker ")
            assert found["no leader"]["partitions"] == ["t-0"]
            assert "nothing has to be elected by hand" in found["no leader"]["help"]
            assert page_at(http, "/v1/topics/t/offsets?partition=0")[0] == 503
        cluster.heal()
        for http in at:
            eventually(lambda http=http: page_at(http, "/readyz") == (200, "ready\n"))


def findings(capsys, *command_and_http):
    """What a command has found, which is something."""
    *command, http = command_and_http
    capsys.readouterr()
    assert main([*command, "--http", http, "--json"]) == 1
    return json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.slow
def test_brokers_reach_each_other_by_the_listener_that_is_named_for_them(tmp_path):
    """Nobody listens where the first listener is said to be."""
    settings = {
        "listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "advertised.listeners": "OUTSIDE://127.0.0.1:1",
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "inside",
        "min.insync.replicas": 2,
    }
    with BrokerCluster(tmp_path, 2, settings) as cluster:
        inside = cluster[1].bootstrap.split(",")[1]
        producer = KafkaProducer(bootstrap_servers=inside, acks="all")
        assert producer.send("t", b"v").get(60).offset == 0
        producer.close()
