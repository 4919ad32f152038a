"""Brokers for tests: a pytest plugin that is active as soon as tidelog is installed.

    def test_orders(tidelog_broker, tidelog_topic):
        producer = KafkaProducer(bootstrap_servers=tidelog_broker.bootstrap)
        assert producer.send(tidelog_topic, b"1").get(60).offset == 0

    def test_retention(tidelog_broker_factory):
        broker = tidelog_broker_factory({"num.partitions": 3}, clock="manual")
        ...
        broker.clock.step("8d")
        assert broker.sweep()  # what retention deleted, and why

    def test_failover(tidelog_cluster_factory):
        cluster = tidelog_cluster_factory(brokers=3)
        ...
        cluster.kill(2)  # .pause(2), .resume(2), .restart(2); .cut(1, 2), .heal()

`tidelog_broker` is one broker for the whole session (under pytest-xdist, of each worker), and
`tidelog_topic` a new topic of it for each test. `tidelog_broker_factory` and `tidelog_cluster_factory`
start a tidelog.process.BrokerProcess and a tidelog.cluster.BrokerCluster that live as long as the test;
those with `module` or `session` in their names, as long as these. Brokers run as processes of their own,
listen on free ports of 127.0.0.1, keep their files below pytest's temporary directory, and never outlive
pytest, not even if it is killed. The report of a failed test has the last log lines of its brokers.

`tidelog_settings` in the ini file are settings of the session's broker, name=value, one a line, and
`tidelog_topics` topics that it has from the start. docs/testing.md has the clock, faults, and all the rest.
"""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from tidelog.cluster import BrokerCluster
    from tidelog.process import BrokerProcess

__tracebackhide__ = True  # what a fixture raises is shown where the test called it

_SHOWN_LINES = 50
_LONGEST_NAME = 200
_RUNNING = pytest.StashKey[dict[str, list["BrokerProcess | BrokerCluster"]]]()
"""What each fixture that is set up now has started, by the fixture's name."""


class BrokerFactory(Protocol):
    """The type of the fixture tidelog_broker_factory."""

    def __call__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        clock: str | None = None,
        faults: bool = False,
        topics: Mapping[str, int] | None = None,
    ) -> BrokerProcess:
        """Starts a broker with these settings, by Kafka's names; clock="manual": a manual clock."""
        ...


class ClusterFactory(Protocol):
    """The type of the fixture tidelog_cluster_factory."""

    def __call__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        clock: str | None = None,
        faults: bool = True,
        topics: Mapping[str, int] | None = None,
    ) -> BrokerCluster:
        """Starts a cluster whose brokers have these settings; see BrokerCluster."""
        ...


# --- the ini file --------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the ini options."""
    parser.addini("tidelog_settings", "settings of the session's broker, name=value", "linelist")
    parser.addini("tidelog_topics", "topics of the session's broker, name=partitions", "linelist")
    parser.addini(
        "tidelog_ready_within_s", "how long a broker may take to start, in s", default="60"
    )


def _ready_within_s(config: pytest.Config) -> float:
    text = str(config.getini("tidelog_ready_within_s"))
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"tidelog_ready_within_s={text}: expected a number") from None


def _ini_pairs(config: pytest.Config, option: str, form: str) -> Iterator[tuple[str, str]]:
    for line in config.getini(option):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{option}: {line!r} is not {form}")
        yield name.strip(), value.strip()


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    return dict(_ini_pairs(config, "tidelog_settings", "name=value"))


def _ini_topics(config: pytest.Config) -> dict[str, int]:
    form = "name=partitions"
    topics = dict(_ini_pairs(config, "tidelog_topics", form))
    for name, partitions in topics.items():
        if not partitions.isdecimal():
            raise pytest.UsageError(f"tidelog_topics: {f'{name}={partitions}'!r} is not {form}")
    return {name: int(partitions) for name, partitions in topics.items()}


# --- reports -------------------------------------------------------------------------------------


@pytest.hookimpl(
    hookwrapper=True, tryfirst=True
)  # pytest 7 may not know wrappers of the newer kind
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Adds the end of the log of each broker that a failed test has used."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.failed:
        running = item.config.stash.get(_RUNNING, {})
        for fixture in getattr(item, "fixturenames", ()):
            for broker in _each_broker(running.get(fixture, ())):
                report.sections.append(_section(broker))


def _each_broker(started: Iterable[BrokerProcess | BrokerCluster]) -> Iterator[BrokerProcess]:
    from tidelog.cluster import BrokerCluster

    for each in started:
        yield from each if isinstance(each, BrokerCluster) else (each,)


def _section(broker: BrokerProcess) -> tuple[str, str]:
    """Returns a section of a report, named as pytest names what it has captured."""
    number = f"broker {broker.settings['node.id']}, " if "node.id" in broker.settings else ""
    try:
        end = broker.log_end(_SHOWN_LINES) or "(nothing)"
    except OSError as error:  # the test may have removed it
        end = f"({error.strerror})"
    return (
        f"Captured log of tidelog ({number}{broker.bootstrap})",
        f"{end}\n(all: {broker.log_file})",
    )


@contextmanager
def _reported(request: pytest.FixtureRequest) -> Iterator[list[BrokerProcess | BrokerCluster]]:
    """Has a list of what a fixture starts, for the reports of tests that use the fixture."""
    running = request.config.stash.setdefault(_RUNNING, {})
    assert request.fixturename is not None
    started = running[request.fixturename] = []
    try:
        yield started
    finally:
        del running[request.fixturename]


# --- fixtures ------------------------------------------------------------------------------------


def _directory(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("tidelog") / "data"


@pytest.fixture(scope="session")
def tidelog_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One broker for the whole session."""
    topics = _ini_topics(request.config)
    with _broker_factory(request, tmp_path_factory) as start:
        yield start(_ini_settings(request.config), topics=topics)


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest, tidelog_broker: BrokerProcess) -> str:
    """The name of a topic of the session's broker that is new to this test."""
    test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_LONGEST_NAME]
    return tidelog_broker.create_topic(f"{test}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def tidelog_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts brokers for one test."""
    with _broker_factory(request, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def tidelog_module_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts brokers for the tests of one module."""
    with _broker_factory(request, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="session")
def tidelog_session_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts brokers for the whole session."""
    with _broker_factory(request, tmp_path_factory) as start:
        yield start


@contextmanager
def _broker_factory(
    request: pytest.FixtureRequest, directories: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    from tidelog.process import BrokerProcess

    within_s = _ready_within_s(request.config)
    with ExitStack() as brokers, _reported(request) as started:

        def start(settings: Mapping[str, object] | None = None, **more: Any) -> BrokerProcess:
            directory = _directory(directories)
            broker = BrokerProcess(directory, settings, ready_within_s=within_s, **more)
            started.append(broker)
            return brokers.enter_context(broker)

        yield start


@pytest.fixture
def tidelog_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """A function that starts clusters for one test."""
    with _cluster_factory(request, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def tidelog_module_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """A function that starts clusters for the tests of one module."""
    with _cluster_factory(request, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="session")
def tidelog_session_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """A function that starts clusters for the whole session."""
    with _cluster_factory(request, tmp_path_factory) as start:
        yield start


@contextmanager
def _cluster_factory(
    request: pytest.FixtureRequest, directories: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    from tidelog.cluster import BrokerCluster

    within_s = _ready_within_s(request.config)
    with ExitStack() as clusters, _reported(request) as started:

        def start(*args: Any, **more: Any) -> BrokerCluster:
            directory = _directory(directories)
            cluster = BrokerCluster(directory, *args, ready_within_s=within_s, **more)
            started.append(cluster)
            return clusters.enter_context(cluster)

        yield start
