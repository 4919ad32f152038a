"""The services of a compose file, on ports of their own and under a name of their own, and their Prometheus.

A subclass says which services there are, and which variables name their ports.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import urllib.request

import pytest
import yaml

from tests.broker.subject import eventually
from tests.docker import engine
from tests.docker.engine import succeeds

PROMETHEUS = "PROMETHEUS_IMAGE"
SCRAPED_WITHIN_S, HEALTHY_WITHIN_S = 120, 60


class ComposeStack:
    """Services that docker/containers.sh starts, and Prometheus beside them where it can be had."""

    file = "compose.yaml"
    """The compose file, below docker/."""

    up_verb, down_verb = "up", "down"
    """The commands of the script that start and stop the services."""

    def __init__(self, image, services, **images):
        """`images` are those of other services, by the variables of the compose file."""
        self.image = image
        self.project = f"tidelog-test-{secrets.token_hex(4)}"
        self.network = f"{self.project}_default"
        prometheus = engine.image(PROMETHEUS)
        self.services = [*services, *(["prometheus"] if prometheus else [])]
        self.environ = {
            "COMPOSE_PROJECT_NAME": self.project,
            "TIDELOG_IMAGE": image,
            PROMETHEUS: prometheus or "",
            **images,
        }

    def start(self, prometheus_port, **ports):
        """Starts the services; `ports` are the others, by the variables of the compose file."""
        self.prometheus_port = prometheus_port
        self.environ |= {name: str(port) for name, port in ports.items()}
        self.environ["PROMETHEUS_PORT"] = str(prometheus_port)
        try:
            engine.run(engine.SCRIPT, self.up_verb, *self.services, environ=self.environ)
        except AssertionError:
            self.down()
            raise

    def down(self, *options):
        engine.run(engine.SCRIPT, self.down_verb, *options, environ=self.environ)

    def remove(self):
        """Removes everything; older versions of podman-compose leave the network."""
        self.down("-v")
        engine.run(engine.name(), "network", "rm", self.network, status=None)

    def container(self, service):
        joined = {f"{self.project}{sign}{service}{sign}1" for sign in "_-"}
        names = engine.run(engine.name(), "ps", "--all", "--format", "{{.Names}}").split()
        (name,) = joined.intersection(names)
        return name

    def check_health(self):
        """Waits until the health checks of the compose file succeed, inside the containers."""
        text = (engine.ROOT / "docker" / self.file).read_text(encoding="utf-8")
        known = yaml.safe_load(text)["services"]
        for service in self.services:
            if check := known[service].get("healthcheck"):
                words = (engine.name(), "exec", self.container(service), *check["test"][1:])
                eventually(lambda words=words: succeeds(*words), HEALTHY_WITHIN_S, service)

    def ask_prometheus(self, path):
        """Returns what its API answers; nothing while it does not."""
        url = f"http://127.0.0.1:{self.prometheus_port}/api/v1/{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except OSError:  # it starts
            return {}

    def check_prometheus(self, jobs):
        """Waits until Prometheus scrapes all targets, and checks that it knows the alerts.

        `jobs` has the name of each job as often as the job has targets.
        """
        if "prometheus" not in self.services:
            pytest.skip(
                f"{engine.OFFICIAL[PROMETHEUS]} cannot be pulled; {PROMETHEUS} names another"
            )
        deadline_s = time.monotonic() + SCRAPED_WITHIN_S
        found = []
        while found != sorted((job, "up") for job in jobs):
            assert time.monotonic() < deadline_s, found
            targets = self.ask_prometheus("targets").get("activeTargets", [])
            found = sorted((each["labels"]["job"], each["health"]) for each in targets)
        rules = self.ask_prometheus("rules")["groups"][0]["rules"]
        file = (engine.ROOT / "docker/prometheus/alerts.yml").read_text(encoding="utf-8")
        assert [rule["name"] for rule in rules] == re.findall(r"- alert: (\w+)", file)
        assert all(not rule.get("lastError") for rule in rules)


def needs_compose():
    """Skips the test if the services of a compose file cannot be run here."""
    if not engine.has_compose():
        pytest.skip("no compose for the engine that runs here (podman-compose, docker compose)")
