"""Brokers for the tests of this directory."""

from __future__ import annotations

import pytest

from tests.broker.partitions.inside import brokers

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {
    number: {"broker.rack": rack, "replica.selector.class": RACK_AWARE}
    for number, rack in {1: "a", 2: "b", 3: "c"}.items()
}


@pytest.fixture
async def three(tmp_path):
    """Three brokers on the loop of the test."""
    async with brokers(tmp_path) as made:
        yield made


@pytest.fixture
async def two(tmp_path):
    async with brokers(tmp_path, 2) as made:
        yield made


@pytest.fixture
async def racked(tmp_path):
    """Three brokers, each in a rack of its own, from which consumers in its rack read."""
    async with brokers(tmp_path, settings=RACKS) as made:
        yield made
