"""Placement of replicas: leaders and replicas are spread, and racks differ where they can."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.controller.placement import circle_of, place

numbers = st.integers(0, 50)


@st.composite
def placements(draw):
    """Brokers with their racks, a number of partitions and of replicas, and the placed replicas."""
    brokers = draw(st.sets(st.integers(0, 30), min_size=1, max_size=9))
    kinds = draw(st.sampled_from(["abc", "ab", "a", "abcde"]))
    racks = {broker: draw(st.sampled_from(kinds)) for broker in brokers}
    if draw(st.booleans()):
        racks[draw(st.sampled_from(sorted(brokers)))] = None
    factor, partitions = draw(st.integers(1, len(racks))), draw(st.integers(1, 40))
    first = draw(numbers)
    placed = place(
        racks, partitions, factor, start=draw(numbers), shift=draw(numbers), first_partition=first
    )
    return racks, partitions, factor, placed


@given(placements())
def test_each_partition_has_so_many_brokers_none_of_them_twice(found):
    racks, partitions, factor, placed = found
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert racks.keys() >= set(replicas)


@given(placements())
def test_no_broker_leads_two_partitions_more_than_another(found):
    racks, _, _, placed = found
    led = Counter(replicas[0] for replicas in placed)
    counts = [led[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1


@given(placements())
def test_as_many_racks_as_there_are_replicas(found):
    racks, _, factor, placed = found
    if None in racks.values():
        return
    for replicas in placed:
        assert len({racks[each] for each in replicas}) == min(factor, len(set(racks.values())))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), numbers, numbers, st.data())
def test_racks_of_one_size_have_the_same_number_of_replicas(
    size, count, rounds, start, shift, data
):
    racks = {number: f"rack-{number % count}" for number in range(size * count)}
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(racks, rounds * len(racks), factor, start=start, shift=shift)
    held = Counter(broker for replicas in placed for broker in replicas)
    assert set(held.values()) == {rounds * factor}


@given(st.integers(2, 8), numbers, numbers)
def test_the_other_replicas_of_what_a_broker_leads_are_on_all_others(size, start, shift):
    racks = dict.fromkeys(range(size))
    placed = place(racks, size * (size - 1), 2, start=start, shift=shift)
    assert len(set(placed)) == size * (size - 1)


@given(placements(), numbers, numbers)
def test_a_topic_that_grows_is_placed_as_if_it_had_been_created_so_large(found, start, shift):
    racks, partitions, factor, _ = found
    whole = place(racks, partitions + 5, factor, start=start, shift=shift)
    later = place(racks, 5, factor, start=start, shift=shift, first_partition=partitions)
    assert whole[partitions:] == later


def test_neighbours_are_in_different_racks():
    assert circle_of({0: "a", 1: "a", 2: "b", 3: "c", 4: "b", 5: "c"}) == [0, 2, 3, 1, 4, 5]


def test_the_example_of_the_proposal():
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    placed = place(racks, 7, 3, start=0, shift=0)
    assert [{racks[each] for each in replicas} for replicas in placed] == [{"r1", "r2", "r3"}] * 7
    assert placed[0] == (0, 3, 1)


@pytest.mark.parametrize("factor", [0, 4])
def test_more_replicas_than_brokers_are_refused(factor):
    with pytest.raises(ValueError, match=f"{factor} replicas cannot be on 3 brokers"):
        place({1: "a", 2: "b", 3: "c"}, 1, factor, start=0, shift=0)
