"""A broker of a test file's own, whose clock stands at new year 2026 until a test moves it."""

from __future__ import annotations

import pytest

from tests.broker.conftest import healthy


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("broker"), {"clock": "manual"}) as subject:
        yield subject


@pytest.fixture
def broker(one):
    one.clock.freeze("2026-01-01T00:00Z")
    return one


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection
