"""The compose stack: a broker that clients on the host and inside the network reach, and its Prometheus.

Run with `make test-docker`. Grafana is not started: its files are judged in test_dashboard.py.
"""

from __future__ import annotations

import re
import time

import pytest
from kafka import KafkaProducer

from tests.docker import engine
from tests.docker.compose_stack import ComposeStack, needs_compose
from tests.docker.containers import on_free_ports, produce, ready, values

pytestmark = pytest.mark.docker

# A client in a container of its own on the stack's network. The image has no foreign client, so it is ours.
INSIDE = """
from tidelog.client import Client
from tidelog.protocol.records.batch import Record, build, records
with Client("broker:29092") as client:
    print("told", client.leader("both", 0).address)
    client.produce("both", 0, build([Record(0, -1, None, b"from inside")]))
    found = records(client.fetch("both", 0, 0).records)
    print("read", " and ".join(bytes(one.value).decode() for one in found))
"""


class Stack(ComposeStack):
    """The broker of compose.yaml, and Prometheus where it can be had."""

    def __init__(self, image):
        super().__init__(image, ["broker"])

    def up(self):
        on_free_ports(3, self._start)
        deadline_s = time.monotonic() + 120
        while not ready(self.http):
            assert time.monotonic() < deadline_s, self.broker_log()

    def _start(self, port, http_port, prometheus_port):
        self.port, self.http = port, http_port
        self.start(prometheus_port, TIDELOG_PORT=port, TIDELOG_HTTP_PORT=http_port)

    def broker(self):
        return self.container("broker")

    def broker_log(self):
        return engine.run(engine.name(), "logs", self.broker())


@pytest.fixture(scope="module")
def stack(image):
    needs_compose()
    stack = Stack(image)
    try:
        stack.up()
        yield stack
    finally:
        stack.remove()


def test_clients_on_the_host_and_inside_the_network(stack):
    bootstrap = f"localhost:{stack.port}"
    produce(bootstrap, "both", 1, partition=0)
    words = [engine.name(), "run", "--rm", "--network", stack.network]
    words += ["--entrypoint", "/opt/tidelog/bin/python", stack.image, "-c", INSIDE]
    told = engine.run(*words, within_s=240)
    assert "told broker:29092\n" in told
    assert "read 0 and from inside" in told
    assert values(bootstrap, "both", 2) == [b"0", b"from inside"]
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    (host,) = producer._metadata.brokers()
    producer.close()
    assert (host.host, host.port) == ("localhost", stack.port)


def test_the_broker_cannot_take_all_of_the_machine(stack):
    status = engine.run(engine.name(), "exec", stack.broker(), "cat", "/proc/1/status")
    assert "NoNewPrivs:\t1\n" in status
    limits = engine.run(engine.name(), "exec", stack.broker(), "cat", "/proc/1/limits")
    assert re.search(r"Max open files +16384 +16384 ", limits), limits
    memory, pids = engine.run(
        engine.name(),
        "inspect",
        "--format",
        "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}",
        stack.broker(),
    ).split()
    assert memory == str(1 << 30)
    # podman-compose 1.0 does not pass pids_limit on. The containers then have podman's own limit.
    assert pids == "256" or (engine.name(), pids) == ("podman", "2048")


def test_prometheus_scrapes_the_broker_and_knows_the_alerts(stack):
    stack.check_prometheus(["tidelog", "prometheus"])
    stack.check_health()


def test_the_logs_outlive_the_containers(stack):
    produce(f"localhost:{stack.port}", "kept", 5)
    stack.down()
    stack.up()
    assert values(f"localhost:{stack.port}", "kept", 5) == [b"%d" % n for n in range(5)]
