"""Three brokers for each file that asks for them, and tools that know two of them."""

from __future__ import annotations

import pytest

from tests.broker.cluster.brokers import Brokers
from tests.tools.cluster.three import Three
from tests.tools.conftest import PATIENCE


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Three brokers; a new topic has three replicas."""
    found = Brokers(tmp_path_factory.mktemp("brokers"))
    settings = {"log.retention.ms": "-1", "default.replication.factor": 3}
    found.start(1, 2, 3, settings=settings)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """`tidelog serve --brokers 3`, which starts a broker again that is killed."""
    with Three(tmp_path_factory.mktemp("three"), {"log.retention.ms": -1}) as found:
        yield found


def runner(tools, where):
    """Returns a function that runs a tool at some brokers; it must succeed, unless told otherwise."""

    def run_one(tool, *arguments, status=0, stdin=None):
        words = 1 if tool == "kafka-cluster" else 0  # which says what to do before anything else
        at = ("--bootstrap-server", where, *PATIENCE.get(tool, ()))
        given = (*arguments[:words], *at, *arguments[words:])
        done = tools.run(tool, *given, stdin=stdin)
        assert done.status == status, done
        return done

    return run_one


@pytest.fixture
def run_tool(brokers, tools):
    """Runs a tool that knows two of the brokers."""
    return runner(tools, ",".join(brokers[each].bootstrap for each in (1, 2)))


@pytest.fixture
def run(three, tools):
    """Runs a tool that knows all three brokers."""
    return runner(tools, three.bootstrap)
