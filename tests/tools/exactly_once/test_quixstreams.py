"""Quix Streams, exactly once: numbers are summed up, while the program and the broker are killed.

A transaction holds the sums, the changelog of the state and the offsets of the group. The state is in a
database of the program's own, which is thrown away once: it is restored from the changelog then.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients.environments import Unavailable, environment
from tests.oracle import apache_kafka
from tests.tools.exactly_once.counting import Numbers, Reader, create, through_kills

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("quix_sums.py")


@pytest.fixture
def python():
    """The Python that has Quix Streams."""
    try:
        return environment("quixstreams") / "bin" / "python"
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_sums_are_exact(broker, tmp_path, python):
    numbers = Numbers(broker.bootstrap)
    sums, state = f"sums-of-{numbers.topic}", tmp_path / "state"
    create(broker.bootstrap, sums)
    started = []

    def start():
        if len(started) == 2:
            shutil.rmtree(state)
        words = [broker.bootstrap, numbers.topic, sums, str(state)]
        started.append(apache_kafka.Process("quix", [str(python), str(PROGRAM), *words], tmp_path))
        return started[-1]

    reader = Reader(broker.bootstrap, sums)
    through_kills(numbers.write, reader, start, broker, ["program", "broker", "both", "program"])
    numbers.check(sums)
