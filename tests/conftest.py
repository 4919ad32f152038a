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

from tests import heavy, sampling
from tests.oracle.apache_kafka import available

settings.register_profile(
    "whatever the load",
    settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]),
)
settings.load_profile("whatever the load")


# Zero stands for "none" in the tests that read it. Processes of pytest-xdist inherit it.
os.environ.setdefault("TIDELOG_FUZZ_SEED", str(random.SystemRandom().randrange(1, 2**32)))


def pytest_report_header() -> str:
    """The seeds that repeat this run's choices."""
    shown = ("TIDELOG_FUZZ_SEED", "TIDELOG_SHARE", "TIDELOG_SHARE_SEED")
    return " ".join(f"{name}={os.environ[name]}" for name in shown if name in os.environ)


_SUMMARIES: heavy.Summaries = []


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> heavy.Groups | None:
    """Lets processes share the heavy tests group by group."""
    return heavy.Groups(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not in this run's share; lets the longest of the heavy tests begin first."""
    if sampling.SHARE > 1:
        left_out = [item for item in items if not _is_shared(item)]
        items[:] = [item for item in items if _is_shared(item)]
        config.hook.pytest_deselected(items=left_out)
    if config.getoption("loadgroup", default=False):
        heavy.put_longest_first(items)


def _is_shared(item: pytest.Item) -> bool:
    """Whether a test is in this run's share: with all of its function, or of what is dear to start."""
    if any(item.get_closest_marker(name) for name in ("oracle", "clients", "spark")):
        return sampling.is_shared(heavy.group_of(item.nodeid, {}))
    return not item.get_closest_marker("slow") or sampling.is_shared(item.nodeid.partition("[")[0])


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
