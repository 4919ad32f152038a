"""Brokers that the oracle tests share."""

from __future__ import annotations

import contextlib

import pytest

from tests.oracle import apache_kafka as launcher
from tests.oracle.brokers import Tidelog


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory):
    """A context manager that runs Apache Kafka of a version; skips if it cannot run here."""

    @contextlib.contextmanager
    def run(version: str, **properties: object):
        launcher.require(version)
        directory = tmp_path_factory.mktemp("kafka")
        with launcher.ApacheKafka(version, directory, properties, jvm=launcher.QUICK) as kafka:
            yield kafka

    return run


@pytest.fixture(scope="session")
def tidelog(tmp_path_factory):
    """A context manager that runs the broker under test."""
    return lambda: Tidelog(tmp_path_factory.mktemp("tidelog"))
