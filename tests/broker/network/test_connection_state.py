"""The states of a connection: what the tables say of it, walked through without a socket."""

from __future__ import annotations

from itertools import product

import pytest

from tidelog.broker.network.answers import CloseConnection, Pending
from tidelog.broker.network.connection_state import (
    READING,
    SERVING,
    ConnectionState,
    Event,
    IllegalEvent,
    ReadState,
    RequestKind,
    ServeState,
    UnderWay,
)


def reached(*events):
    """The state that some events lead to."""
    state = ConnectionState()
    for event in events:
        state.on(event)
    return state


def waiting(state, frame):
    """The same connection, whose request is under way."""
    state.wait(UnderWay(RequestKind.of(frame), Pending(None, list)))
    return state


def test_every_state_is_in_a_table_and_can_be_reached():
    seen, found = {(ReadState.OPEN, ServeState.READY)}, [(ReadState.OPEN, ServeState.READY)]
    while found:
        reading, serving = found.pop()
        after = [(reading, each) for each in SERVING[serving].values()]
        after += [(each, serving) for each in READING[reading].values()]
        found += set(after) - seen
        seen |= set(after)
    assert seen == set(product(ReadState, ServeState))


def test_each_event_belongs_to_one_table():
    of_reading = {event for table in READING.values() for event in table}
    of_serving = {event for table in SERVING.values() for event in table}
    assert of_reading.isdisjoint(of_serving)
    assert of_reading | of_serving == set(Event)


def test_an_event_changes_one_state_or_raises():
    for reading, serving, event in product(ReadState, ServeState, Event):
        state = ConnectionState()
        state.reading, state.serving = reading, serving
        expected = READING[reading].get(event, reading), SERVING[serving].get(event, serving)
        if event in READING[reading] or event in SERVING[serving]:
            state.on(event)
        else:
            with pytest.raises(IllegalEvent, match=f"{event}: .* {reading} and {serving}$"):
                state.on(event)
        assert (state.reading, state.serving) == expected


def test_the_socket_is_read_while_a_request_is_under_way_and_not_while_muted_or_queued():
    assert reached().may_read
    assert waiting(reached(), b"\0\1").may_read
    for event in (Event.TURN_OVER, Event.THROTTLE_STARTED):
        assert not reached(event).may_read
        assert reached(event, Event.BROKER_STOPS).may_read
    assert not reached(Event.PEER_CLOSED).may_read
    assert not reached(Event.CONNECTION_LOST).may_read


def test_a_throttle_that_starts_while_a_request_is_under_way_lasts_beyond_its_answer():
    state = waiting(reached(), b"\0\1")
    state.on(Event.THROTTLE_STARTED)
    assert (state.is_muted, state.is_behind) == (True, True)
    state.answered()
    assert (state.is_muted, state.serving, state.under_way) == (True, ServeState.MUTED, None)
    state.on(Event.THROTTLE_ENDED)
    assert state.serving is ServeState.READY


def test_a_turn_that_comes_while_the_client_is_muted_serves_nothing():
    state = reached(Event.TURN_OVER, Event.THROTTLE_STARTED, Event.TURN_CAME)
    assert (state.serving, state.is_muted) == (ServeState.MUTED, True)


@pytest.mark.parametrize(
    ("frame", "kind", "is_behind"),
    [
        (b"\0\0...", RequestKind.PRODUCE, False),
        (b"\0\1...", RequestKind.LOOKUP, True),
        (memoryview(b"\0\2..."), RequestKind.LOOKUP, True),
        (b"\0\3...", RequestKind.OTHER, True),
    ],
)
def test_only_what_waits_for_a_produce_is_sure_to_come_soon(frame, kind, is_behind):
    assert RequestKind.of(frame) is kind
    assert waiting(reached(), frame).is_behind is is_behind


class TestTheEnd:
    def test_what_was_complete_is_served_before_the_connection_closes(self):
        state = waiting(reached(), b"\0\3")
        state.on(Event.PEER_CLOSED)
        assert not state.is_done
        state.answered()
        assert state.is_done
        assert state.refusal is None

    def test_invalid_data_ends_reading_also_when_it_is_found_after_the_peer_has_closed(self):
        state, reason = reached(Event.PEER_CLOSED), CloseConnection("not a frame")
        state.refuse(reason)
        assert (state.reading, state.refusal, state.is_done) == (ReadState.ENDED, reason, True)

    def test_a_broker_that_stops_waits_for_its_peer_to_close(self):
        state = reached()
        state.refuse(CloseConnection("not a frame"))
        state.stop()
        assert (state.reading, state.refusal, state.is_done) == (ReadState.LEAVING, None, False)

    def test_a_request_that_writes_goes_on_when_the_connection_is_lost(self):
        state = waiting(reached(), b"\0\0")
        state.on(Event.CONNECTION_LOST)
        assert state.serving is ServeState.ANSWERING
        state.answered()
        assert (state.reading, state.serving) == (ReadState.LOST, ServeState.READY)
