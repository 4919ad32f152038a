"""Brokers for the tests of this directory."""

from __future__ import annotations

import pytest

from tests.broker.replicas.inside import brokers


@pytest.fixture
async def three(tmp_path):
    """Three brokers on the loop of the test."""
    async with brokers(tmp_path) as made:
        yield made
