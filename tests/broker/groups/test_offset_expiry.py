"""Which committed offsets expire: of empty groups, and of topics that nobody reads any more."""

import pytest

from broker.groups.group import Group, State
from broker.groups.offset_expiry import expired_offsets
from broker.groups.store import Committed, StoredGroup
from protocol.records.layout import NO_TIMESTAMP

NAME = ("t", 0)
RETENTION_MS = 100


def stored(state, *, protocol_type, since_ms=0, expire_ms=NO_TIMESTAMP):
    group = Group("g", 0, 10)
    group.state, group.protocol_type = state, protocol_type
    committed = Committed(5, -1, "", commit_ms=1_000, expire_ms=expire_ms)
    return StoredGroup(group, {NAME: committed}, since_ms=since_ms, seen=state)


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
    assert expired_offsets(kept, first_ms - 1, RETENTION_MS) == []
    assert expired_offsets(kept, first_ms, RETENTION_MS) == [NAME]


@pytest.mark.parametrize("state", [State.PREPARING, State.STABLE])
def test_offsets_of_other_groups_with_members_do_not_expire(state):
    kept = stored(state, protocol_type="connect")
    assert expired_offsets(kept, 10**15, RETENTION_MS) == []
