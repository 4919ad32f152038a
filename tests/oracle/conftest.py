"""Brokers and comparisons that the oracle tests share: each broker starts once per session.

The summary of every comparison is printed at the end of the run, whatever the tests say.
"""

from __future__ import annotations

import pytest

from tests.oracle import apache_kafka

SUMMARIES: list[tuple[str, str]] = []


@pytest.fixture(scope="session")
def summarize():
    """Keep a text for the end of the run."""

    def keep(title: str, text: str) -> None:
        SUMMARIES.append((title, text))

    return keep


@pytest.fixture(scope="session")
def run_apache_kafka(tmp_path_factory):
    """Start Apache Kafka of a version with some properties; skip if it cannot run here."""
    running = []

    def start(version: str, **properties: object) -> apache_kafka.ApacheKafka:
        usable = apache_kafka.available(version)
        if not usable:
            pytest.skip(f"no Apache Kafka {version}: {usable.reason}")
        kafka = apache_kafka.ApacheKafka(version, tmp_path_factory.mktemp("kafka"), properties)
        kafka.start()
        running.append(kafka)
        return kafka

    yield start
    for kafka in running:
        kafka.stop()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """A directory for the broker under test."""
    return tmp_path_factory.mktemp("tidelog")


def pytest_terminal_summary(terminalreporter):
    for title, text in SUMMARIES:
        terminalreporter.write_sep("-", title)
        terminalreporter.write_line(text)
