"""What a new topic costs does not grow with the topics that there are, but for a look at each.

The work is counted in lines of Python that the event loop executes, so no machine makes a difference.
"""

from __future__ import annotations

import sys

from tests.broker.inside import Inside
from tests.broker.network.test_holds import WorkClock

FEW, MORE = 20, 300
MOST_LINES = 5  # for each topic that is there, in all that an image of the metadata sets going
TOPIC = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def create(broker, *names):
    with broker.connect() as connection:
        answer = connection.ask(
            "CreateTopics",
            4,
            topics=[{"name": name, **TOPIC} for name in names],
            timeout_ms=60_000,
            validate_only=False,
        )
    assert [each["error_code"] for each in answer["topics"]] == [0] * len(names)


def test_a_new_topic_costs_little_more_among_many(tmp_path):
    clock = WorkClock()

    def lines_of_one(broker, name):
        begin = clock.lines
        broker.call(lambda: sys.settrace(clock.trace))
        create(broker, name)
        broker.call(lambda: sys.settrace(None))
        return clock.lines - begin

    with Inside(tmp_path, clock) as broker:
        create(broker, *(f"few-{number}" for number in range(FEW)))
        lines_of_one(broker, "first")  # what is imported now is no work of the next
        among_few = lines_of_one(broker, "second")
        create(broker, *(f"more-{number}" for number in range(MORE)))
        among_more = lines_of_one(broker, "third")
    assert among_more - among_few < MOST_LINES * MORE
