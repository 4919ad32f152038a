"""What a topic costs that is made or deleted does not grow with the others, but for a look at each.

The work is counted in lines of Python that the event loop executes, so no machine makes a difference.
"""

from __future__ import annotations

import sys

import pytest

from tests.broker import asking
from tests.broker.inside import Inside
from tests.broker.network.test_holds import WorkClock

FEW, MORE = 20, 100
SAMPLES = 8  # of which some have no timer in them, also on a busy machine
MOST_LINES = 3.5  # for each topic that is there, in all that an image of the metadata sets going


def create(broker, *names):
    with broker.connect() as connection:
        for name in names:
            asking.create(connection, name)


def delete(broker, name):
    with broker.connect() as connection:
        answer = connection.ask("DeleteTopics", 0, topic_names=[name], timeout_ms=60_000)
    assert [each["error_code"] for each in answer["responses"]] == [0]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines that it takes to make, and to delete, a topic among few and among more."""
    clock = WorkClock()

    def lines_of(work, broker, name):
        begin = clock.lines
        broker.call(lambda: sys.settrace(clock.trace))
        work(broker, name)
        broker.call(lambda: sys.settrace(None))
        return clock.lines - begin

    found = {}
    with Inside(tmp_path_factory.mktemp("topics"), clock) as broker:
        create(broker, *(f"few-{number}" for number in range(FEW)))
        for name in ("first", "among few", "among more"):
            if name == "among more":
                create(broker, *(f"more-{number}" for number in range(MORE)))
            # What the first one imports is no work of the next, nor is what timers do meanwhile.
            topics = [f"{name.replace(' ', '-')}-{number}" for number in range(SAMPLES)]
            for work in (create, delete):
                found[work.__name__, name] = min(lines_of(work, broker, each) for each in topics)
    return found


@pytest.mark.parametrize("work", ["create", "delete"])
def test_a_topic_costs_little_more_among_many(lines, work):
    assert lines[work, "among few"] > 0
    assert lines[work, "among more"] - lines[work, "among few"] < MOST_LINES * MORE
