"""The buckets of clients: shared as the entity says, bounded, and kept when a quota changes."""

from __future__ import annotations

from tidelog.broker.quotas import clients
from tidelog.broker.quotas.clients import ClientQuotas
from tidelog.broker.quotas.entity import CLIENT_ID, FETCH, MUTATION, PRODUCE, REQUEST, USER
from tidelog.broker.quotas.rates import Windows

ANY_CLIENT, ANY_USER = ((CLIENT_ID, None),), ((USER, None),)


def quotas_of(entity, **values):
    return {entity: values}


def fresh():
    return ClientQuotas(Windows(), Windows())


def test_connections_of_one_client_share_a_bucket_and_others_do_not():
    buckets, quotas = fresh(), quotas_of(ANY_CLIENT, producer_byte_rate=100.0)
    a, b = (buckets.of(quotas, "u", name).produce for name in ("a", "b"))
    assert buckets.record(PRODUCE, a, 1000, 0) == 0
    assert buckets.record(PRODUCE, buckets.of(quotas, "v", "a").produce, 1000, 0) == 10_000
    assert buckets.record(PRODUCE, b, 1000, 0) == 0
    both = quotas_of(ANY_USER, producer_byte_rate=100.0)
    for name, wait_ms in (("x", 0), ("y", 10_000)):
        limit = buckets.of(both, "w", name).produce
        assert buckets.record(PRODUCE, limit, 1000, 0) == wait_ms


def test_who_has_no_quota():
    buckets, quotas = fresh(), quotas_of(((USER, "anna"),), producer_byte_rate=1.0)
    assert buckets.of(quotas, "ben", "") is None
    limits = buckets.of(quotas, "anna", "")
    assert limits.produce.value == 1
    assert (limits.fetch, limits.request, limits.mutation) == (None, None, None)


def test_a_changed_quota_holds_at_once_for_what_was_counted():
    buckets = fresh()
    limit = buckets.of(quotas_of(ANY_CLIENT, producer_byte_rate=100.0), "u", "a").produce
    assert buckets.record(PRODUCE, limit, 1000, 0) == 0
    limit = buckets.of(quotas_of(ANY_CLIENT, producer_byte_rate=50.0), "u", "a").produce
    assert buckets.record(PRODUCE, limit, 0, 0) == 10_000
    assert buckets.of({}, "u", "a") is None


def test_requests_wait_for_one_window_at_most():
    buckets = fresh()
    limit = buckets.of(quotas_of(ANY_CLIENT, request_percentage=1.0), "u", "a").request
    assert buckets.record(REQUEST, limit, 100 * 5.0, 0) == 1000
    limit = buckets.of(quotas_of(ANY_CLIENT, consumer_byte_rate=1.0), "u", "a").fetch
    assert buckets.record(FETCH, limit, 500, 0) == 490_000


def test_a_fetch_that_got_nothing_is_taken_back():
    buckets = fresh()
    limit = buckets.of(quotas_of(ANY_CLIENT, consumer_byte_rate=100.0), "u", "a").fetch
    assert buckets.max_burst_bytes(limit) == 1000
    assert buckets.is_idle(FETCH, limit, 0)
    assert buckets.record(FETCH, limit, 2000, 0) > 0
    buckets.unrecord(FETCH, limit, 2000, 0)
    assert buckets.is_idle(FETCH, limit, 0)


def test_changes_of_partitions():
    buckets = fresh()
    limit = buckets.of(quotas_of(ANY_CLIENT, controller_mutation_rate=1.0), "u", "a").mutation
    assert buckets.mutation_wait_ms(limit, 0) == 0
    assert buckets.record_mutations(limit, 13, 0) == 2000
    assert buckets.mutation_wait_ms(limit, 1000) == 1000
    assert [used.key for used in buckets.used(0)] == [MUTATION]


def test_buckets_are_bounded_and_unused_ones_go(monkeypatch):
    monkeypatch.setattr(clients, "MOST_BUCKETS", 10)
    monkeypatch.setattr(clients, "MOST_CLIENTS", 10)
    buckets, quotas = fresh(), quotas_of(ANY_CLIENT, producer_byte_rate=100.0)

    def take(name, now_ms):
        return buckets.record(PRODUCE, buckets.of(quotas, "u", name).produce, 1000, now_ms)

    for number in range(50):
        take(f"c{number}", 0)
        assert take("steady", 0) == number * 10_000  # who is used stays
    assert len(list(buckets.used(0))) == 10
    take("late", clients.UNUSED_MS)
    assert len(list(buckets.used(clients.UNUSED_MS))) == 1


def test_what_is_shown():
    buckets = fresh()
    limit = buckets.of(quotas_of(ANY_CLIENT, producer_byte_rate=100.0), "u", "a").produce
    buckets.throttled(PRODUCE, limit, buckets.record(PRODUCE, limit, 2000, 0))
    assert list(buckets.used(0)) == [(PRODUCE, ANY_CLIENT, 200.0, 10_000)]
