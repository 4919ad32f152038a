"""One broker, and one Java process for each version of Kafka's tools, that all tests here share."""

from __future__ import annotations

import pytest

from tests.broker.asking import create, new_name
from tests.broker.subject import Subject
from tests.oracle import apache_kafka
from tests.tools.java_tools import JavaTools

VERSIONS = ("3.9.1", "4.1.1")
# What some tools grant a broker is little for a busy machine: the first gives up after 5 s, the other loses
# what was not acknowledged within four times 1.5 s. Neither says so with its exit status.
PATIENCE = {
    "kafka-consumer-groups": ("--timeout", "60000"),
    "kafka-console-producer": (
        *("--request-timeout-ms", "60000"),
        *("--message-send-max-retries", "1000"),  # of itself 3, 100 ms apart
    ),
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    settings = {"log.retention.ms": "-1", "auto.create.topics.enable": "false"}
    with Subject(tmp_path_factory.mktemp("tools") / "data", settings) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]
        assert subject.stop() == 0, subject.log()[-8000:]


@pytest.fixture(scope="session", params=VERSIONS)
def tools(request, tmp_path_factory):
    apache_kafka.require(f"tools-{request.param}")
    with JavaTools(request.param, tmp_path_factory.mktemp("java")) as running:
        yield running


@pytest.fixture
def patient_client(tmp_path):
    """Options for a tool whose client waits for 5 s of itself, and has no option for that alone."""
    path = tmp_path / "client.properties"
    path.write_text("request.timeout.ms=60000\n")
    return "--command-config", str(path)


@pytest.fixture
def run(broker, tools):
    """Run a tool against the broker; it must succeed, unless it is expected to fail."""

    def run_one(tool, *arguments, status=0, stdin=None):
        where = ("--bootstrap-server", broker.bootstrap, *PATIENCE.get(tool, ()))
        done = tools.run(tool, *where, *arguments, stdin=stdin)
        assert done.status == status, done
        return done

    return run_one


@pytest.fixture
def topic(broker):
    name = new_name("tools")
    with broker.connect() as connection:
        create(connection, name, partitions=2)
    return name
