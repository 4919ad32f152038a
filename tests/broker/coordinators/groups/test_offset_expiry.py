"""Which committed offsets expire: of empty groups, and of topics that nobody reads any more."""

import pytest

from tidelog.broker.coordinators.groups.committed import Committed
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.coordinators.groups.offset_expiry import correct_times, expired_offsets
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.corrections import ForwardStep
from tidelog.storage.time.trusted_clock import Leap, StepBack, as_of

NAME = ("t", 0)
RETENTION_MS = 100


def stored(state, *, protocol_type, since_ms=0, expire_ms=NO_TIMESTAMP):
    group = Group("g", 0, 10)
    group.state, group.protocol_type = state, protocol_type
    committed = Committed(5, -1, "", commit_ms=1_000, expire_ms=expire_ms)
    return GroupMetadata(group, {NAME: committed}, since_ms=since_ms, seen=state)


@pytest.mark.parametrize(
    ("kept", "first_ms"),
    [
        (stored(State.EMPTY, protocol_type=None), 1_100),
        (stored(State.EMPTY, protocol_type=None, since_ms=5_000), 1_100),
        (stored(State.EMPTY, protocol_type="consumer", since_ms=5_000), 5_100),
        (stored(State.EMPTY, protocol_type="consumer", since_ms=500), 1_100),
        (stored(State.EMPTY, protocol_type="consumer", expire_ms=1_050), 1_050),
        (stored(State.STABLE, protocol_type="consumer"), 1_100),  # no member reads the topic
    ],
)
def test_an_offset_expires_at_its_time(kept, first_ms):
    assert expired_offsets(kept, [NAME], first_ms - 1, RETENTION_MS) == []
    assert expired_offsets(kept, [NAME], first_ms, RETENTION_MS) == [NAME]


@pytest.mark.parametrize("state", [State.PREPARING, State.STABLE])
def test_offsets_of_other_groups_with_members_do_not_expire(state):
    kept = stored(state, protocol_type="connect")
    assert expired_offsets(kept, [NAME], 10**15, RETENTION_MS) == []


@pytest.mark.parametrize(
    ("change", "time_ms", "counts_as"),
    [
        (StepBack(9_000, 500), 1_000, 500),
        (StepBack(9_000, 1_000), 1_000, 1_000),
        (as_of(StepBack(9_000, 500), 800), 1_000, 800),  # what it gave up to 800 it gave since
        (as_of(StepBack(9_000, 500), 400), 1_000, 500),
        (as_of(StepBack(9_000, 500), 10_000), 1_000, 1_000),
        (StepBack(999, 500), 1_000, 1_000),  # the clock never showed that: a client said it
        (ForwardStep(900, 1_100, 5_000, 7_000), 1_000, 6_000),
        (ForwardStep(900, 1_100, 5_000, 5_500), 1_000, 5_500),
        (ForwardStep(1_001, 1_100, 5_000, 7_000), 1_000, 1_000),
        (Leap(1_000, 9_000), 1_000, 1_000),
    ],
)
def test_times_that_a_wrong_clock_gave_are_corrected(change, time_ms, counts_as):
    kept = stored(State.EMPTY, protocol_type="consumer", since_ms=time_ms, expire_ms=time_ms + 50)
    assert list(correct_times(kept, change)) == []
    assert kept.since_ms == kept.offsets[NAME].commit_ms == counts_as
    assert kept.offsets[NAME].expire_ms == counts_as + 50


@pytest.mark.parametrize("expire_ms", [NO_TIMESTAMP, 2**63 - 1])
def test_an_offset_that_is_kept_for_ever_stays_so(expire_ms):
    kept = stored(State.EMPTY, protocol_type="consumer", expire_ms=expire_ms)
    assert list(correct_times(kept, ForwardStep(0, 2_000, 5_000, 9_000))) == []
    assert kept.offsets[NAME].expire_ms == expire_ms


def test_a_group_with_many_offsets_is_corrected_in_slices():
    kept = stored(State.EMPTY, protocol_type="consumer")
    kept.offsets.update((("t", index), kept.offsets[NAME]) for index in range(1, 2_000))
    slices = correct_times(kept, StepBack(9_000, 500))
    next(slices)
    corrected = [each for each in kept.offsets.values() if each.commit_ms == 500]
    assert 0 < len(corrected) < 1_000, "an event loop has other work to do"
    del kept.offsets["t", 1_999]  # what others do meanwhile
    list(slices)
    assert {each.commit_ms for each in kept.offsets.values()} == {500}
    assert len(kept.offsets) == 1_999
