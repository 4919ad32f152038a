"""Brokers and comparisons that the oracle tests share: each broker starts once per session.

The summary of every comparison is printed at the end of the run, whatever the tests say.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.oracle import apache_kafka as launcher
from tests.oracle.brokers import Tidelog

SUMMARIES: list[tuple[str, str]] = []


@pytest.fixture(scope="session")
def summarize():
    """Keep a text for the end of the run."""

    def keep(title: str, text: str) -> None:
        SUMMARIES.append((title, text))

    return keep


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory):
    """A context manager that runs Apache Kafka of a version; skips if it cannot run here."""

    @contextlib.contextmanager
    def run(version: str, **properties: object):
        usable = launcher.available(version)
        if not usable:
            pytest.skip(f"no Apache Kafka {version}: {usable.reason}")
        with launcher.ApacheKafka(version, tmp_path_factory.mktemp("kafka"), properties) as kafka:
            yield kafka

    return run


@pytest.fixture(scope="session")
def tidelog(tmp_path_factory):
    """A context manager that runs the broker under test."""
    return lambda: Tidelog(tmp_path_factory.mktemp("tidelog"))


def pytest_terminal_summary(terminalreporter):
    for title, text in SUMMARIES:
        terminalreporter.write_sep("-", title)
        terminalreporter.write_line(text)
