"""The course of operations without sockets and without time: events in, actions out."""

from __future__ import annotations

import pytest

from tidelog.client import apis, flow
from tidelog.client.calls import groups, producers, records
from tidelog.client.cluster import ClusterState
from tidelog.client.errors import (
    ClusterUnreachable,
    ConnectionBroken,
    HandshakeBroken,
    NoListener,
    RequestError,
    UnsupportedByBroker,
    VersionMismatch,
    none_reached,
)
from tidelog.client.flow import Ask, Pause
from tidelog.client.retry import Backoff, Retry
from tidelog.protocol.api import find_coordinator, init_producer_id, list_offsets, metadata, produce
from tidelog.protocol.errors import ErrorCode

FIRST, ONE, TWO = ("first", 1), ("one", 1), ("two", 2)


class Clock:
    """A clock that goes on by what is paused."""

    now = 0.0

    def __call__(self):
        return self.now


class Script:
    """Drives steps: what answers each request, by its API's key, is the next of a list."""

    def __init__(self, state, clock, **answers):
        self.state = state
        self.clock = clock
        self.answers = {getattr(apis, name): list(each) for name, each in answers.items()}
        self.asked = []  # the addresses and API of every request
        self.pauses = []

    def run(self, steps):
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.clock.now += step.seconds
                    step = next(steps)
                    continue
                assert isinstance(step, Ask)
                self.asked.append((step.addresses, step.key))
                answer = self.answers[step.key].pop(0)
                step = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
        except StopIteration as stop:
            return stop.value

    def perform(self, call, timeout_s=60.0):
        return self.run(flow.perform(self.state, call, Retry(self.clock, timeout_s)))


def brokers_with(leader, epoch=0):
    """Metadata of topic t, whose one partition `leader` leads."""
    partition = metadata.MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2]
    )
    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=1, host="one", port=1),
            metadata.MetadataResponseBroker(node_id=2, host="two", port=2),
        ],
        controller_id=2,
        topics=[metadata.MetadataResponseTopic(name="t", partitions=[partition])],
    )


def offset_is(offset, error_code=0):
    one = list_offsets.ListOffsetsPartitionResponse(
        partition_index=0, error_code=error_code, offset=offset, timestamp=-1
    )
    topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[one])
    return list_offsets.ListOffsetsResponse(topics=[topic])


@pytest.fixture
def clock():
    return Clock()


def script(clock, **answers):
    return Script(ClusterState([FIRST]), clock, **answers)


END = records.list_offset("t", 0, records.LATEST)


def test_a_leader_is_looked_up_once_and_asked(clock):
    one = script(clock, METADATA=[brokers_with(2)], LIST_OFFSETS=[offset_is(5), offset_is(6)])
    assert [one.perform(END).offset for _ in range(2)] == [5, 6]
    assert one.asked == [
        ((FIRST,), apis.METADATA),
        ((TWO,), apis.LIST_OFFSETS),
        ((TWO,), apis.LIST_OFFSETS),
    ]


def test_a_wrong_leader_is_looked_up_again(clock):
    refused = offset_is(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    one = script(
        clock,
        METADATA=[brokers_with(1), brokers_with(1), brokers_with(2)],
        LIST_OFFSETS=[refused, refused, offset_is(5)],
    )
    assert one.perform(END).offset == 5
    asked = [address for address, key in one.asked if key == apis.LIST_OFFSETS]
    assert asked == [(ONE,), (ONE,), (TWO,)]
    assert 0.025 <= one.pauses[0] <= 0.05 <= one.pauses[1] <= 0.1  # they double


def test_a_partition_without_a_leader_is_waited_for(clock):
    one = script(clock, METADATA=[brokers_with(-1), brokers_with(1)], LIST_OFFSETS=[offset_is(5)])
    assert one.perform(END).offset == 5
    assert len(one.pauses) == 1


def test_a_broken_connection_is_made_again_until_time_is_up(clock):
    broken = [ConnectionBroken("reset")] * 1000
    one = script(
        clock, METADATA=[ConnectionBroken("reset"), brokers_with(1)], LIST_OFFSETS=[offset_is(5)]
    )
    assert one.perform(END).offset == 5
    two = script(clock, METADATA=broken)
    began = clock.now
    with pytest.raises(ClusterUnreachable, match="reset"):
        two.perform(END, timeout_s=10)
    assert 8 < clock.now - began <= 10
    assert max(two.pauses) <= 1.0


def test_a_topic_that_is_missing_is_waited_for_a_moment_only(clock):
    missing = brokers_with(1)
    missing.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    one = script(clock, METADATA=[missing] * 1000)
    with pytest.raises(RequestError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        one.perform(END)
    assert 1 < clock.now <= 3


def test_what_will_not_pass_is_raised_at_once(clock):
    refused = offset_is(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    one = script(clock, METADATA=[brokers_with(1)], LIST_OFFSETS=[refused])
    with pytest.raises(RequestError, match="TOPIC_AUTHORIZATION_FAILED"):
        one.perform(END)
    two = script(clock, METADATA=[brokers_with(1)], LIST_OFFSETS=[VersionMismatch("too old")])
    with pytest.raises(UnsupportedByBroker, match="too old"):
        two.perform(END)
    assert one.pauses == two.pauses == []


def test_an_append_is_sent_once(clock):
    for failure, raised in (
        (ConnectionBroken("reset"), ClusterUnreachable),
        (produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER), RequestError),
    ):
        one = script(clock, METADATA=[ConnectionBroken("no"), brokers_with(1)], PRODUCE=[failure])
        with pytest.raises(raised):
            one.perform(records.append("t", 0, b""))
        assert [key for _, key in one.asked] == [apis.METADATA, apis.METADATA, apis.PRODUCE]
        assert not one.state.knows("t")  # the next append asks who leads


def produce_error(code):
    one = produce.PartitionProduceResponse(index=0, error_code=code)
    topic = produce.TopicProduceResponse(name="t", partition_responses=[one])
    return produce.ProduceResponse(responses=[topic])


def test_a_coordinator_is_found_by_its_key_and_forgotten_when_it_moves(clock):
    def found(host, port, code=0):
        return find_coordinator.FindCoordinatorResponse(host=host, port=port, error_code=code)

    def given(code=0):
        return init_producer_id.InitProducerIdResponse(
            producer_id=7, producer_epoch=3, error_code=code
        )

    one = script(
        clock,
        FIND_COORDINATOR=[
            found("", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            found(*ONE),
            found(*TWO),
        ],
        INIT_PRODUCER_ID=[given(ErrorCode.NOT_COORDINATOR), given(), given()],
    )
    assert one.perform(producers.init("tx")) == (7, 3)
    assert one.perform(producers.init("tx")) == (7, 3)
    asked = [address for address, key in one.asked if key == apis.INIT_PRODUCER_ID]
    assert asked == [(ONE,), (TWO,), (TWO,)]


def test_any_broker_is_one_that_is_known(clock):
    state = ClusterState([FIRST])
    assert state.any_addresses() == (FIRST,)
    state.learn_metadata(brokers_with(1))
    assert state.any_addresses() == (ONE, TWO, FIRST)
    state.forget()
    assert state.any_addresses() == (ONE, TWO, FIRST)


def test_the_controller_and_a_broker_by_its_id(clock):
    one = script(clock, METADATA=[brokers_with(1)])
    assert one.run(flow.resolve(one.state, flow.ControllerTarget())) == (TWO,)
    assert one.run(flow.resolve(one.state, flow.Node(1))) == (ONE,)
    one.answers[apis.METADATA].append(brokers_with(1))
    with pytest.raises(ConnectionBroken, match="no broker 9"):
        one.run(flow.resolve(one.state, flow.Node(9)))


def test_a_partition_that_does_not_exist_is_named():
    state = ClusterState([FIRST])
    state.learn_metadata(brokers_with(1))
    with pytest.raises(RequestError, match="topic t has 1 partitions"):
        state.leader("t", 1)


def test_a_broker_that_cannot_be_reached_is_left_alone_for_a_while():
    backoff = Backoff()
    assert backoff.wait_s(100.0) == 0
    waits = []
    for _ in range(10):
        backoff.failed(100.0)
        waits.append(backoff.wait_s(100.0))
    assert 0.04 <= waits[0] <= 0.05
    assert 0.8 <= waits[-1] <= 1.0
    assert sorted(waits[:5]) == waits[:5]
    assert backoff.wait_s(102.0) == 0
    backoff.succeeded()
    assert backoff.wait_s(100.0) == 0


def test_an_assignment_of_a_consumer():
    data = b"\0\1\0\0\0\1\0\1t\0\0\0\2\0\0\0\3\0\0\0\1\xff\xff\xff\xff"
    assert groups.assigned_partitions(data) == (("t", 1), ("t", 3))
    assert groups.assigned_partitions(b"") == ()
    for cut in range(1, len(data) - 4):
        with pytest.raises(ValueError, match="no consumer's assignment"):
            groups.assigned_partitions(data[:cut])


REFUSED, RESET = NoListener("refused"), ConnectionBroken("reset")
CLOSED = HandshakeBroken("before it answered")


@pytest.mark.parametrize(
    ("errors", "is_first", "least_s", "most_s"),
    [
        ([CLOSED], False, 3, 6),  # it speaks another protocol: waiting longer does not help
        ([RESET, CLOSED], False, 50, 61),  # a broker that starts may close some connections
        ([REFUSED], False, 50, 61),  # one that has answered before is restarting
        ([REFUSED], True, 8, 11),  # one that never has is named wrongly, or down
        ([REFUSED, RESET], True, 50, 61),
        ([REFUSED, CLOSED], True, 50, 61),
    ],
)
def test_how_long_what_fails_is_tried_again(clock, errors, is_first, least_s, most_s):
    retry = Retry(clock, 60, is_first_contact=is_first)

    def try_on():
        for error in errors * 1000:
            clock.now += retry.pause_after(error)

    with pytest.raises(ClusterUnreachable):
        try_on()
    assert least_s < clock.now < most_s


@pytest.mark.parametrize(
    ("failures", "kind"),
    [
        ([NoListener("a"), NoListener("b")], NoListener),
        ([HandshakeBroken("a"), HandshakeBroken("b")], HandshakeBroken),
        ([NoListener("a"), HandshakeBroken("b")], ConnectionBroken),
        ([NoListener("a"), ConnectionBroken("b")], ConnectionBroken),
    ],
)
def test_several_addresses_fail_as_all_of_them_do(failures, kind):
    found = none_reached(failures)
    assert (type(found), str(found)) == (kind, "a; b")


def test_a_broker_whose_leaders_were_wrong_is_asked_last():
    state = ClusterState([FIRST])
    state.heard(ONE)
    state.learn_metadata(brokers_with(1))

    def order(*opened):
        return state.by_standing(state.any_addresses(), opened.__contains__)

    assert order() == [ONE, TWO, FIRST]
    assert order(TWO) == [TWO, ONE, FIRST]
    state.forget()
    assert order(ONE) == [TWO, FIRST, ONE]
    state.forget()  # it has told nothing since then
    state.doubt(TWO)
    assert order(ONE, TWO) == [FIRST, ONE, TWO]
    state.doubt(ONE)
    assert order() == [FIRST, TWO, ONE]
