"""Real consumers share a topic: by cooperative rebalancing (KIP-429), and as static members (KIP-345).

The members are Java's verifiable consumers of 3.9 and 4.1, and librdkafka's; all kinds in one group, too.
"""

from __future__ import annotations

import contextlib
import threading

import pytest
from confluent_kafka import Producer

from tests.broker.asking import create, new_name
from tests.broker.members import all_fetched
from tests.broker.subject import eventually
from tests.oracle import apache_kafka
from tests.tools.conftest import VERSIONS
from tests.tools.rebalancing import (
    COOPERATIVE,
    EAGER,
    Event,
    JavaMember,
    LibrdkafkaMember,
    Place,
    generation,
    moves,
    overlaps,
    owned,
)

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

PARTITIONS = frozenset(range(6))
PATIENCE_S = 150
LIBRDKAFKA = "librdkafka"
KINDS = {
    "java 3.9": (VERSIONS[0],) * 3,
    "java 4.1": (VERSIONS[1],) * 3,
    LIBRDKAFKA: (LIBRDKAFKA,) * 3,
    "all kinds": (VERSIONS[0], LIBRDKAFKA, VERSIONS[1]),
}


@pytest.fixture
def place(broker, tmp_path):
    name = new_name("shared")
    with broker.connect() as connection:
        create(connection, name, partitions=len(PARTITIONS))
    return Place(broker.bootstrap, name, name, tmp_path)


@pytest.fixture
def joined(place):
    """Start a member, of a version of Java's client or of librdkafka."""
    with contextlib.ExitStack() as stack:

        def start(kind, strategies, instance=None):
            if kind == LIBRDKAFKA:
                made = LibrdkafkaMember(place, strategies, instance)
            else:
                apache_kafka.require(f"tools-{kind}")
                made = JavaMember(place, kind, strategies, instance)
            stack.callback(made.stop)
            return made

        yield start


@contextlib.contextmanager
def written(place):
    """Records go on being written to every partition; how many there are of each, at the end."""
    producer, over, counts = Producer({"bootstrap.servers": place.bootstrap}), threading.Event(), {}

    def write():
        while not over.wait(0.05):
            for partition in PARTITIONS:
                producer.produce(place.topic, b"x", partition=partition)
                counts[partition] = counts.get(partition, 0) + 1
            producer.poll(0)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()


def shared(members):
    """Whether all partitions are owned, each by one, evenly."""
    parts = [owned(member) for member in members]
    fair = {len(PARTITIONS) // len(members)}
    return frozenset().union(*parts) == PARTITIONS and {len(part) for part in parts} == fair


def is_beyond(committed, ends):
    """Whether more than these offsets were committed."""
    return all(committed.get(place, 0) > end for place, end in ends.items())


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_partitions_move_one_by_one(broker, place, joined, kinds):
    """Who keeps a partition never loses it on the way, nobody has what another has, nothing is unread."""
    members = []
    with written(place) as counts:
        for kind in kinds:
            members.append(joined(kind, COOPERATIVE))
            eventually(lambda: shared(members), PATIENCE_S, f"fair shares of {len(members)}")
        eventually(lambda: counts and min(counts.values()) > 20)
        # A commit that a rebalance refuses is made up for by the next record's: let there be one.
        with broker.connect() as connection:
            written_by_then = {(place.topic, one): count for one, count in counts.items()}
            eventually(
                lambda: is_beyond(all_fetched(connection, place.group), written_by_then),
                PATIENCE_S,
                "commits of all partitions",
            )
    kept = owned(members[0])
    taken = [each.partitions for each in members[0].history() if not each.is_given]
    assert taken
    assert not kept & frozenset().union(*taken), "what it keeps was taken from it in between"
    expected = {(one, at) for one, count in counts.items() for at in range(count)}
    eventually(
        lambda: frozenset().union(*(each.read() for each in members)) == expected, PATIENCE_S
    )
    ends = {(place.topic, one): count for one, count in counts.items()}
    with broker.connect() as connection:
        eventually(lambda: all_fetched(connection, place.group) == ends, PATIENCE_S)
    members[0].stop()
    eventually(lambda: shared(members[1:]), PATIENCE_S, "the others take over")
    assert overlaps(members) == []


@pytest.mark.parametrize(
    "kind", [*VERSIONS, LIBRDKAFKA], ids=["java 3.9", "java 4.1", "librdkafka"]
)
@pytest.mark.parametrize("strategies", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_static_member_comes_back(broker, place, joined, kind, strategies):
    """Its place is kept for it and nobody is invalidated; who has its name takes it; who had it is told."""
    first = joined(kind, strategies, "one")
    eventually(lambda: owned(first) == PARTITIONS, PATIENCE_S)
    second = joined(kind, strategies, "two")
    eventually(lambda: shared([first, second]), PATIENCE_S)
    before = eventually(lambda: generation(broker, place.group, "one"), PATIENCE_S, "a generation")
    moved, part = moves(first), owned(second)
    second.vanish()
    second = joined(kind, strategies, "two")
    eventually(lambda: owned(second) == part, PATIENCE_S, "the same part again")
    third = joined(kind, strategies, "two")
    eventually(lambda: owned(third) == part, PATIENCE_S, "the part of the one it replaces")
    eventually(second.has_given_up, PATIENCE_S, "told that another has its name")
    assert generation(broker, place.group, "one") == before, "the other one was invalidated"
    assert moves(first) == moved
    with broker.connect() as connection:
        gone = {"member_id": "", "group_instance_id": "two", "reason": "an operator says so"}
        answer = connection.ask("LeaveGroup", 5, group_id=place.group, members=[gone])
    assert [each["error_code"] for each in answer["members"]] == [0]
    eventually(
        lambda: any(not each.is_given for each in moves(third)) and shared([first, third]),
        PATIENCE_S,
        "who was sent away comes back",
    )


def test_an_overlap_is_noticed():
    """The checks of these tests can fail."""

    class Told:
        def __init__(self, *events):
            self._events = [Event(at, given, frozenset(parts)) for at, given, parts in events]

        def history(self):
            return self._events

    one = Told((1, True, {0, 1}), (5, False, {1}))
    assert overlaps([one, Told((5, True, {1}))]) == []
    assert overlaps([one, Told((4, True, {1}))]) != []
    assert overlaps([one, Told((9, True, {0}))]) != []
    assert owned(one) == {0}
