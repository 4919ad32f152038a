"""A session of a broker begins with its lease, not with what is checked before that is granted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidelog.broker.lifecycle.session import Session
from tidelog.config import load


class Begun(Exception):
    """The renewals of the lease would begin."""


class SlowStore:
    """A store that checks, for longer than a lease lasts, whether its watch has lost changes."""

    def __init__(self, lease_ms):
        self.now_ms, self._lease_ms = 1_000, lease_ms

    async def check_complete(self):
        self.now_ms += 2 * self._lease_ms

    async def grant(self, ttl_ms):
        assert ttl_ms == self._lease_ms
        self.now_ms += 1
        return 7


async def test_a_check_that_lasts_longer_than_a_lease_does_not_end_it():
    config = load(None, {}, {})
    store = SlowStore(config.cluster.broker_session_timeout_ms)
    services = SimpleNamespace(config=config, metadata=SimpleNamespace(store=store))
    leases = []

    def renew(_store, lease_id, lease, *_rest):
        assert lease_id == 7
        leases.append(lease)
        raise Begun

    begun_ms = store.now_ms
    session = Session(services, None, lambda: store.now_ms, renew)
    with pytest.raises(Begun):
        await session.begin((), None, lambda: None, is_fenced=True)
    assert store.now_ms - begun_ms > config.cluster.broker_session_timeout_ms  # it was checked
    assert not leases[0].is_overdue(store.now_ms)
    assert not leases[0].is_lost(store.now_ms)
