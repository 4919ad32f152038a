"""One etcd for the tests of a process that need it, one after another."""

from __future__ import annotations

import pytest

from tests.broker.metadata.etcd.server import running_etcd


@pytest.fixture(scope="session")
def etcd():
    """An etcd of one member, which no test harms."""
    with running_etcd() as server:
        yield server
