"""Brokers of one machine for the tests of this directory."""

from __future__ import annotations

import pytest

from tests.broker.cluster.brokers import Brokers
from tests.broker.metadata.etcd.server import running_etcd


@pytest.fixture
def brokers(tmp_path):
    found = Brokers(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def etcd():
    with running_etcd() as server:
        yield server
