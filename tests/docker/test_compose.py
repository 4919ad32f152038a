"""The compose stack: a broker that clients on the host and inside the network reach, and its Prometheus.

Run with `make test-docker`. Grafana is not started: its files are judged in test_dashboard.py.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import urllib.request
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.docker import engine
from tests.docker.containers import on_free_ports, produce, ready, values

pytestmark = pytest.mark.docker

# A client in a container of its own on the stack's network. The image has no foreign client, so it is ours.
INSIDE = """
from tidelog._house import open_house
open_house()
from client import Client
from protocol.records.batch import Record, build, records
with Client("broker:29092") as client:
    print("told", client.leader("both", 0).address)
    client.produce("both", 0, build([Record(0, -1, None, b"from inside")]))
    found = records(client.fetch("both", 0, 0).records)
    print("read", " and ".join(bytes(one.value).decode() for one in found))
"""


class Stack:
    """The services of compose.yaml that can be run here, under a name and on ports of their own."""

    def __init__(self, image):
        self.image = image
        self.project = f"tidelog-test-{secrets.token_hex(4)}"
        prometheus = engine.image("PROMETHEUS_IMAGE")
        self.services = ["broker"] if prometheus is None else ["broker", "prometheus"]
        self.environ = {
            "COMPOSE_PROJECT_NAME": self.project,
            "TIDELOG_IMAGE": image,
            "PROMETHEUS_IMAGE": prometheus or "",
        }

    def up(self):
        on_free_ports(3, self._start)
        deadline_s = time.monotonic() + 120
        while not ready(self.http):
            assert time.monotonic() < deadline_s, self.broker_log()

    def _start(self, port, http_port, prometheus_port):
        self.port, self.http, self.prometheus = port, http_port, prometheus_port
        self.environ |= {
            "TIDELOG_PORT": str(port),
            "TIDELOG_HTTP_PORT": str(http_port),
            "PROMETHEUS_PORT": str(prometheus_port),
        }
        try:
            engine.run(engine.SCRIPT, "up", *self.services, environ=self.environ)
        except AssertionError:
            self.down()
            raise

    def down(self, *options):
        engine.run(engine.SCRIPT, "down", *options, environ=self.environ)

    def broker_log(self):
        names = engine.run(engine.name(), "ps", "--all", "--format", "{{.Names}}").split()
        (name,) = (name for name in names if self.project in name and "broker" in name)
        return engine.run(engine.name(), "logs", name)

    def ask_prometheus(self, path):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]


@pytest.fixture(scope="module")
def stack(image):
    if not engine.has_compose():
        pytest.skip("no compose for the engine that runs here (podman-compose, docker compose)")
    stack = Stack(image)
    try:
        stack.up()
        yield stack
    finally:
        stack.down("-v")  # older versions of podman-compose leave the network
        engine.run(engine.name(), "network", "rm", f"{stack.project}_default", status=None)


def test_clients_on_the_host_and_inside_the_network(stack):
    bootstrap = f"localhost:{stack.port}"
    produce(bootstrap, "both", 1, partition=0)
    words = [engine.name(), "run", "--rm", "--network", f"{stack.project}_default"]
    words += ["--entrypoint", "/opt/tidelog/bin/python", stack.image, "-c", INSIDE]
    told = engine.run(*words, within_s=240)
    assert "told broker:29092\n" in told
    assert "read 0 and from inside" in told
    assert values(bootstrap, "both", 2) == [b"0", b"from inside"]
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    (host,) = producer._metadata.brokers()
    producer.close()
    assert (host.host, host.port) == ("localhost", stack.port)


def test_prometheus_scrapes_the_broker_and_knows_the_alerts(stack):
    if "prometheus" not in stack.services:
        pytest.skip(
            f"{engine.OFFICIAL['PROMETHEUS_IMAGE']} cannot be pulled; PROMETHEUS_IMAGE names another"
        )
    deadline_s = time.monotonic() + 120
    up = {}
    while up != {"tidelog": "up", "prometheus": "up"}:
        assert time.monotonic() < deadline_s, up
        try:
            targets = stack.ask_prometheus("targets")["activeTargets"]
        except OSError:  # it starts
            continue
        up = {target["labels"]["job"]: target["health"] for target in targets}
    rules = stack.ask_prometheus("rules")["groups"][0]["rules"]
    file = Path(engine.ROOT / "docker/prometheus/alerts.yml").read_text(encoding="utf-8")
    assert [rule["name"] for rule in rules] == re.findall(r"- alert: (\w+)", file)
    assert all(not rule.get("lastError") for rule in rules)


def test_the_logs_outlive_the_containers(stack):
    produce(f"localhost:{stack.port}", "kept", 5)
    stack.down()
    stack.up()
    assert values(f"localhost:{stack.port}", "kept", 5) == [b"%d" % n for n in range(5)]
