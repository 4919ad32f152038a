"""Brokers for tests: a pytest plugin that is active as soon as tidelog is installed.

    def test_retention(tidelog_broker_factory):
        broker = tidelog_broker_factory({"num.partitions": 3}, clock="manual")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        ...
        broker.clock.step("8d")
        assert broker.sweep()  # what retention deleted, and why

    def test_failover(tidelog_cluster):
        cluster = tidelog_cluster(brokers=3)
        ...
        cluster.kill(2)  # .pause(2), .resume(2), .restart(2); .cut(1, 2), .heal()

`tidelog_broker` is one broker for the whole session (under pytest-xdist, of each worker), so give topics
their own names. `tidelog_broker_factory` and `tidelog_cluster` start a tidelog.process.BrokerProcess and a
tidelog.cluster.BrokerCluster that live as long as the test. Brokers run as processes of their own, listen
on free ports of 127.0.0.1, keep their files below pytest's temporary directory, and never outlive pytest,
not even if it is killed. A broker that does not start fails the test with its last log lines.

`tidelog_settings` in the ini file are settings of the session's broker, name=value, one a line.
docs/testing.md has the clock, faults, and all the rest.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tidelog.cluster import BrokerCluster
    from tidelog.process import BrokerProcess


class BrokerFactory(Protocol):
    """The type of the fixture tidelog_broker_factory."""

    def __call__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        clock: str | None = None,
        faults: bool = False,
    ) -> BrokerProcess:
        """Starts a broker with these settings, by Kafka's names; clock="manual": a manual clock."""
        ...


class ClusterFactory(Protocol):
    """The type of the fixture tidelog_cluster."""

    def __call__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        clock: str | None = None,
        faults: bool = True,
    ) -> BrokerCluster:
        """Starts a cluster whose brokers have these settings; see BrokerCluster."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the two ini options."""
    parser.addini("tidelog_settings", "settings of the session's broker, name=value", "linelist")
    parser.addini(
        "tidelog_ready_within_s", "how long a broker may take to start, in s", default="60"
    )


def _ready_within_s(config: pytest.Config) -> float:
    text = str(config.getini("tidelog_ready_within_s"))
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"tidelog_ready_within_s={text}: expected a number") from None


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    found: dict[str, object] = {}
    for line in config.getini("tidelog_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"tidelog_settings: {line!r} is not name=value")
        found[name.strip()] = value.strip()
    return found


def _directory(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("tidelog") / "data"


@pytest.fixture(scope="session")
def tidelog_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One broker for the whole session."""
    from tidelog.process import BrokerProcess

    settings = _ini_settings(request.config)
    within_s = _ready_within_s(request.config)
    directory = _directory(tmp_path_factory)
    with BrokerProcess(directory, settings, ready_within_s=within_s) as broker:
        yield broker


@pytest.fixture
def tidelog_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts brokers for one test."""
    from tidelog.process import BrokerProcess

    within_s = _ready_within_s(request.config)
    with ExitStack() as brokers:

        def start(settings: Mapping[str, object] | None = None, **more: Any) -> BrokerProcess:
            directory = _directory(tmp_path_factory)
            broker = BrokerProcess(directory, settings, ready_within_s=within_s, **more)
            return brokers.enter_context(broker)

        yield start


@pytest.fixture
def tidelog_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """A function that starts clusters for one test."""
    from tidelog.cluster import BrokerCluster

    within_s = _ready_within_s(request.config)
    with ExitStack() as clusters:

        def start(*args: Any, **more: Any) -> BrokerCluster:
            directory = _directory(tmp_path_factory)
            cluster = BrokerCluster(directory, *args, ready_within_s=within_s, **more)
            return clusters.enter_context(cluster)

        yield start
