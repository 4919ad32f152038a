"""What all tests have in common.

Property tests are judged by what they find, not by how long it took; where CI is set in the environment,
Hypothesis tries the same examples in every run, elsewhere new ones. Tests that mutate frames or try a share
of their cases choose by TIDELOG_FUZZ_SEED, which is one for all processes of a run and printed at the start.
No test is blamed for a socket that kafka-python left to the garbage collector in another. The heavy tests are
shared among processes, and the summaries of comparisons printed at the end, as `heavy.py` says.
"""

from __future__ import annotations

import os
import random
import socket

import pytest
from hypothesis import HealthCheck, settings
from kafka.net.inet import KafkaNetSocket

from tests import heavy
from tests.oracle.apache_kafka import available

settings.register_profile(
    "whatever the load",
    settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]),
)
settings.load_profile("whatever the load")


# Zero stands for "none" in the tests that read it. Processes of pytest-xdist inherit it.
os.environ.setdefault("TIDELOG_FUZZ_SEED", str(random.SystemRandom().randrange(1, 2**32)))


def pytest_report_header() -> str:
    """The seed that repeats this run's choices."""
    return f"TIDELOG_FUZZ_SEED={os.environ['TIDELOG_FUZZ_SEED']}"


_SUMMARIES: heavy.Summaries = []


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> heavy.Groups | None:
    """Lets processes share the heavy tests group by group."""
    return heavy.Groups(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets the longest of the heavy tests begin first."""
    if config.getoption("loadgroup", default=False):
        heavy.put_longest_first(items)


@pytest.fixture(scope="session")
def summarize():
    """Keeps a text, by its title, for the end of the run."""
    return lambda title, text: _SUMMARIES.append((title, text))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands over what the process that prints is to know."""
    heavy.hand_over(session.config, _SUMMARIES)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Takes over what a process of pytest-xdist has kept."""
    heavy.take_over(node, _SUMMARIES)


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints what was kept."""
    for title, text in _SUMMARIES:
        terminalreporter.write_sep("-", title)
        terminalreporter.write_line(text)


class _Left(socket.socket):
    """A socket of kafka-python, which closes none of a connection that was lost or never made.

    The garbage collector does, with a warning, and warnings are errors to the test that runs just then.
    """

    def __del__(self) -> None:
        self.close()


def _left(
    _: KafkaNetSocket, family: int, kind: int = socket.SOCK_STREAM, protocol: int = 0
) -> socket.socket:
    return _Left(family, kind, protocol)


assert callable(KafkaNetSocket.socket)
KafkaNetSocket.socket = _left


@pytest.fixture(scope="session")
def secured(tmp_path_factory):
    """Apache Kafka with secured listeners (`secured_kafka`), for tests marked `oracle`."""
    usable = available("3.9.1")
    if not usable:
        pytest.skip(f"no Apache Kafka 3.9.1: {usable.reason}")
    from tests.secured_kafka import secured_kafka

    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running
