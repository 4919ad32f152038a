"""Long lists of messages that are done with are freed in slices, and nothing that is still in use."""

from __future__ import annotations

import pytest

from tests.broker.inside import Inside
from tidelog.broker.network.leftovers import LEAST, Leftovers
from tidelog.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


class Element:
    """Takes a while to be freed, by the clock of the test."""

    def __init__(self, clock):
        self.clock = clock

    def __del__(self):
        self.clock.now_s += 2e-6
        self.clock.freed += 1


class Clock:
    def __init__(self):
        self.now_s, self.freed = 0.0, 0


@pytest.fixture
def clock():
    return Clock()


def run(queue, clock):
    """Calls each turn; returns how long each took."""
    took = []
    while queue:
        began_s = clock.now_s
        queue.pop(0)()
        took.append(clock.now_s - began_s)
    return took


def test_each_turn_frees_as_much_as_it_has_time_for(clock):
    queue = []
    leftovers = Leftovers(lambda: clock.now_s, queue.append)
    request = DeleteGroupsRequest(groups_names=[Element(clock) for _ in range(10_000)])
    response = DeleteGroupsResponse(results=[Element(clock) for _ in range(5_000)])
    leftovers.take(request, response)
    leftovers.take(DeleteGroupsRequest(groups_names=[Element(clock) for _ in range(LEAST)]))
    assert len(queue) == 1
    del request, response
    assert clock.freed == 0
    took = run(queue, clock)
    assert clock.freed == 15_000 + LEAST
    assert max(took) < 0.003
    assert len(took) >= 15


def test_short_lists_and_what_is_no_list_are_let_alone(clock):
    queue = []
    leftovers = Leftovers(lambda: clock.now_s, queue.append)
    leftovers.take(
        DeleteGroupsRequest(groups_names=[Element(clock) for _ in range(LEAST - 1)]),
        DeleteGroupsResponse(results=range(LEAST)),
        None,
    )
    assert not queue
    assert clock.freed == LEAST - 1


def test_what_somebody_still_refers_to_stays(clock):
    queue = []
    leftovers = Leftovers(lambda: clock.now_s, queue.append)
    names = [Element(clock) for _ in range(LEAST)]
    kept, request = names[7], DeleteGroupsRequest(groups_names=names)
    leftovers.take(request)
    del names
    run(queue, clock)
    assert (len(request.groups_names), clock.freed) == (LEAST, 0)
    del request
    assert clock.freed == LEAST - 1
    assert kept.clock is clock


def test_a_long_request_is_taken_after_its_answer(tmp_path, monkeypatch):
    names, taken, take = [f"g{number}" for number in range(20_000)], [], Leftovers.take

    def noted(leftovers, *messages):
        taken.extend(messages)
        take(leftovers, *messages)

    monkeypatch.setattr(Leftovers, "take", noted)
    with Inside(tmp_path) as broker, broker.connect() as connection:
        answer = connection.ask("DeleteGroups", 1, groups_names=names)
        assert len(answer["results"]) == len(names)
        connection.ask("ApiVersions", 0)
    requests = [each for each in taken if isinstance(each, DeleteGroupsRequest)]
    assert [each.groups_names for each in requests] == [names]
