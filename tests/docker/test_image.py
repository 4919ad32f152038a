"""The image, built and run: what is in it, how it starts, stops, keeps its data and takes its settings.

Run with `make test-docker`; needs docker or podman, and the image it is built on.
"""

from __future__ import annotations

import secrets
import time

import pytest
from kafka import KafkaProducer

from tests.docker import engine
from tests.docker.containers import Container, produce, ready, values
from tidelog import __version__

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def broker(image):
    started_s = time.monotonic()
    with Container(image) as container:
        container.until_ready()
        print(f"\nready for HTTP {time.monotonic() - started_s:.2f} s after `run` was called")
        yield container


def test_what_is_in_it(image, broker):
    config = engine.inspect("image", image)["Config"]
    assert config["User"] == "1000:1000"
    assert list(config["Volumes"]) == ["/var/lib/tidelog"]
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert set(config["ExposedPorts"]) == {"9092/tcp", "8080/tcp"}
    labels = {
        name.removeprefix("org.opencontainers.image."): value
        for name, value in config["Labels"].items()
    }
    assert (labels["title"], labels["version"]) == ("tidelog", __version__)
    assert labels["base.name"] == engine.image("PYTHON_IMAGE")
    told = broker.execute(
        *("/opt/tidelog/bin/python", "-c"),
        "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/metrics').read().decode())",
    )
    assert f'tidelog_build_info{{commit="{labels["revision"]}",python="3.' in told
    assert broker.execute("id", "-u").strip() == "1000"
    for tool in ("cc", "gcc", "pip", "make"):
        assert broker.execute("sh", "-c", f"command -v {tool} || echo none").strip() == "none"
    broker.until_told("ready listeners=PLAINTEXT://0.0.0.0:9092")
    assert "slower Python kernels" not in broker.log()


def test_the_health_check_tells_a_broker_from_none(image, broker):
    health = engine.inspect("image", image)
    test = (health["Config"].get("Healthcheck") or health["Healthcheck"])["Test"]
    assert test[0] == "CMD"
    broker.execute(*test[1:])
    words = [engine.name(), "run", "--rm", "--entrypoint", test[1], image, *test[2:]]
    told = engine.run(*words, status=1)  # nobody serves there
    assert "ConnectionRefusedError" in told


def test_commands_run_inside(broker):
    produce(broker.bootstrap, "inside", 3)
    told = broker.execute("tidelog", "offsets", "inside", "--at", "-1h", "--json")
    assert '"topic": "inside"' in told
    # Nothing is that old: to delete, it would have to reach the listener, which is told to the host.
    words = ("tidelog", "delete-records", "inside", "--before", "-1h", "--yes", "--json")
    assert '"deleted": false' in broker.execute(*words)


def test_settings_from_the_environment_and_flags(image):
    environ = ("KAFKA_LOG_MESSAGE_TIMESTAMP_TYPE=LogAppendTime", "KAFKA_NUM_PARTITIONS=3")
    arguments = ("--set", "num.partitions=5")  # flags win over the environment
    with Container(image, environ=environ, arguments=arguments) as container:
        container.until_ready()
        (sent,) = produce(container.bootstrap, "set", 1, partition=0, timestamp_ms=1)
        assert sent.timestamp > 1_500_000_000_000
        producer = KafkaProducer(bootstrap_servers=container.bootstrap)
        assert producer.partitions_for("set") == set(range(5))
        producer.close()


def test_a_mistake_in_the_environment_is_told(image):
    with Container(image, environ=("KAFKA_LOG_RETENTION_MS=soon",)) as container:
        assert container.ended() == 2
        container.until_told("KAFKA_LOG_RETENTION_MS")


@pytest.fixture
def volume(image):
    name = f"tidelog-test-{secrets.token_hex(4)}"
    engine.run(engine.name(), "volume", "create", name)
    yield name
    engine.run(engine.name(), "volume", "rm", name)


@pytest.mark.parametrize(("signal", "status"), [("TERM", 0), ("KILL", 137)])
def test_another_container_goes_on_with_the_volume(image, volume, signal, status):
    """After a stop, and after a crash."""
    with Container(image, volume=volume) as container:
        container.until_ready()
        produce(container.bootstrap, "kept", 10)
        engine.run(engine.name(), "kill", "--signal", signal, container.name)
        assert container.ended() == status
        if signal == "TERM":
            container.until_told('msg="broker stopped"')
        else:
            assert 'msg="broker stopped"' not in container.log()
        assert not ready(container.http)
    with Container(image, volume=volume) as container:
        container.until_ready()
        (sent,) = produce(container.bootstrap, "kept", 1)
        assert sent.offset == 10
        assert values(container.bootstrap, "kept", 11) == [*(b"%d" % n for n in range(10)), b"0"]
