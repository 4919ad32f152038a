"""OffsetFetch while a transaction ends, at any of the moments in which others have their turn."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import pytest

from tidelog.broker.api import offset_fetch
from tidelog.broker.coordinators.groups.committed import Committed
from tidelog.broker.coordinators.groups.pending_offsets import PendingBatch, PendingOffsets
from tidelog.broker.security.authorizer import OpenAuthorizer
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNSTABLE, PRODUCER = 88, 7
OLD, NEW = Committed(1, -1, "", 0), Committed(2, -1, "", 0)
INDEXES = list(range(40))
NAMES = [("t", index) for index in INDEXES]


class Group:
    """A group with an offset for each partition, and newer ones of an open transaction."""

    def __init__(self):
        self.offsets = dict.fromkeys(NAMES, OLD)
        self.pending_offsets = PendingOffsets()
        self.pending_offsets.add(PRODUCER, PendingBatch(dict.fromkeys(NAMES, NEW), 5))

    def commit(self):
        assert self.pending_offsets.end(PRODUCER, 6)
        self.offsets.update(dict.fromkeys(NAMES, NEW))


def asked(group, version):
    services = SimpleNamespace(
        authorizer=OpenAuthorizer(),
        coordinator=SimpleNamespace(get=lambda _, may_be_empty: group),
    )
    context = SimpleNamespace(version=version, session=Session(ANONYMOUS, "", "PLAINTEXT"))
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=INDEXES)],
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(name="t", partition_indexes=INDEXES)],
            )
        ],
        require_stable=True,
    )
    return offset_fetch.handle(services, request, context)


def steps_of(work):
    """Goes on with a coroutine to its next checkpoint, each time; returns what it returns."""
    while True:
        try:
            yield work.send(None)
        except StopIteration as end:
            return end.value


def answered(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("version", [7, 8])
def test_an_offset_is_stable_or_not_at_the_moment_in_which_it_is_read(version):
    count = len(list(steps_of(asked(Group(), version))))
    assert count > len(NAMES)
    seen = set()
    for before in range(count + 1):
        group = Group()
        steps = steps_of(asked(group, version))
        assert len(list(islice(steps, before))) == before
        group.commit()
        answer = answered(steps)
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        found = {(each.committed_offset, each.error_code) for each in topics[0].partitions}
        assert found <= {(-1, UNSTABLE), (NEW.offset, 0)}
        seen |= found
    assert len(seen) == 2
