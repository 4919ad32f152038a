"""The contract of a key-value store, held by every engine: a model decides what each answer must be."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import (
    NO_LEASE,
    Change,
    CompactedError,
    Compare,
    Delete,
    KeyValue,
    Put,
    absent,
    unchanged_since,
)
from tidelog.config.broker.etcd_address import parse_etcd
from tidelog.protocol.errors import KafkaStorageError

KEPT = 5
BARRIER_AFTER_S = 20  # a barrier is a revision that the model does not know
KEYS = ("a", "a/1", "a/2", "b")

keys = st.sampled_from(KEYS)
revisions = st.integers(0, 12)
compares = st.builds(
    Compare, keys, st.sampled_from(("create", "mod")), st.sampled_from("<=>"), revisions
)
operations = st.one_of(
    st.builds(Put, keys, st.binary(max_size=3), st.just(NO_LEASE)), st.builds(Delete, keys)
)
steps = st.one_of(
    st.tuples(
        st.lists(compares, max_size=2),
        st.lists(operations, max_size=3, unique_by=lambda operation: operation.key),
    ),
    st.tuples(st.just("read"), st.sampled_from(("", "a", "a/", "c"))),
    st.tuples(st.just("changes"), revisions),
)


class Model:
    """Every revision's whole state, kept for good."""

    def __init__(self):
        self.states = [{}]

    @property
    def revision(self):
        return len(self.states) - 1

    def transact(self, compares, operations):
        state = self.states[-1]
        for compare in compares:
            found = state.get(compare.key)
            actual = 0
            if found is not None:
                actual = found.create_revision if compare.target == "create" else found.mod_revision
            holds = {"<": actual < compare.revision, "=": actual == compare.revision}
            if not holds.get(compare.relation, actual > compare.revision):
                return None
        after, number = dict(state), self.revision + 1
        touched = False
        for operation in operations:
            found = after.pop(operation.key, None)
            touched = touched or found is not None or isinstance(operation, Put)
            if isinstance(operation, Put):
                created = number if found is None else found.create_revision
                after[operation.key] = KeyValue(operation.key, operation.value, created, number)
        if touched:
            self.states.append(after)
        return self.revision

    def read(self, prefix):
        found = (pair for key, pair in sorted(self.states[-1].items()) if key.startswith(prefix))
        return (self.revision, tuple(found))

    def changes(self, after):
        if after < self.revision - KEPT:
            return CompactedError
        return [
            Change(number, key, None if now is None else now.value)
            for number in range(after + 1, self.revision + 1)
            for key in sorted(KEYS)
            if (now := self.states[number].get(key)) != self.states[number - 1].get(key)
        ]


@pytest.fixture(params=["memory", "sqlite", "etcd"])
def make_store(request, tmp_path):
    numbers = itertools.count()
    if request.param == "etcd":
        etcd, folder = request.getfixturevalue("etcd"), tmp_path.name

        from tests.broker.metadata.etcd.shifted import Shifted  # loads gRPC

        def make_in_etcd():
            address = parse_etcd(etcd.url(f"{folder}-{next(numbers)}"))
            return Shifted(address, kept_revisions=KEPT, barrier_after_s=BARRIER_AFTER_S)

        return make_in_etcd

    def make():
        if request.param == "memory":
            return MemoryStore(kept_revisions=KEPT)
        path = tmp_path / f"{next(numbers)}.sqlite"
        return SqliteStore(path, kept_revisions=KEPT, poll_interval_s=0.01)

    return make


async def within(store, work):
    await store.open()
    try:
        return await work(store)
    finally:
        await store.close()


async def _changes(store, after):
    try:
        return await store.changes(after)
    except CompactedError:
        return CompactedError


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=st.lists(steps, max_size=25))
async def test_every_answer_is_the_models(make_store, script):
    model = Model()

    async def play(store):
        for step in script:
            if step[0] == "read":
                assert await store.read(step[1]) == model.read(step[1])
            elif step[0] == "changes":
                assert await _changes(store, step[1]) == model.changes(step[1])
            else:
                assert await store.transact(*step) == model.transact(*step), step
        assert await store.read() == model.read("")

    await within(make_store(), play)


async def test_a_watch_tells_everything_in_order_from_a_revision_on(make_store):
    async def watch(store):
        first = await store.transact((), (Put("a", b"0"),))
        seen = []

        async def follow():
            async for changes in store.watch(first):
                seen.extend(changes)

        watching = asyncio.create_task(follow())
        for number in range(1, 20):
            assert await store.transact((), (Put("a", b"%d" % number), Put("b", b"x")))
            if number % 3 == 0:  # it may fall behind, within what is kept
                await _until(lambda last=number: len(seen) == 2 * last)
        await store.transact((), (Delete("a"),))
        await _until(lambda: seen[-1].value is None)
        watching.cancel()
        await asyncio.wait([watching])
        return first, seen

    first, seen = await within(make_store(), watch)
    assert [change.revision for change in seen[:-1:2]] == list(range(first + 1, first + 20))
    assert [change.value for change in seen[:-1:2]] == [b"%d" % number for number in range(1, 20)]
    assert {change.key for change in seen[1:-1:2]} == {"b"}
    assert seen[-1] == Change(first + 20, "a", None)


async def test_a_watch_of_forgotten_changes_says_so(make_store):
    async def watch(store):
        for number in range(KEPT + 2):
            await store.transact((), (Put("a", b"%d" % number),))
        with pytest.raises(CompactedError):
            await anext(store.watch(1))
        assert (await anext(store.watch(2)))[0].revision == 3

    await within(make_store(), watch)


async def test_a_watch_ends_with_its_store(make_store):
    async def watch(store):
        async def follow():
            return [changes async for changes in store.watch(0)]

        watching = asyncio.create_task(follow())
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(10):
            return await asyncio.gather(watching, return_exceptions=True)

    store = make_store()
    await store.open()
    (outcome,) = await watch(store)
    assert outcome == [] or isinstance(outcome, KafkaStorageError)


async def test_of_changes_on_one_revision_one_wins(make_store):
    async def race(store):
        before = await store.transact(absent("a"), (Put("a", b""),))
        assert await store.transact(absent("a"), (Put("a", b"again"),)) is None
        outcomes = await asyncio.gather(
            *(
                store.transact(unchanged_since("a", before), (Put("a", b"%d" % number),))
                for number in range(8)
            )
        )
        assert len([each for each in outcomes if each is not None]) == 1
        await store.transact((), (Delete("a"),))
        assert await store.transact(unchanged_since("a", before + 5), (Put("a", b""),)) is None

    await within(make_store(), race)


async def test_a_key_is_named_once_in_a_transaction(make_store):
    async def name_twice(store):
        with pytest.raises(ValueError, match="once"):
            await store.transact((), (Put("a", b""), Delete("a")))
        assert (await store.read()).revision == 0

    await within(make_store(), name_twice)


async def test_two_stores_on_one_file_see_each_others_changes(tmp_path):
    path = tmp_path / "one.sqlite"
    one, two = (SqliteStore(path, poll_interval_s=0.01) for _ in range(2))
    await one.open()
    await two.open()
    try:
        seen = two.watch(0)
        await one.transact((), (Put("a", b"1"),))
        async with asyncio.timeout(10):
            assert await anext(seen) == [Change(1, "a", b"1")]
        outcomes = await asyncio.gather(
            *(store.transact(unchanged_since("a", 1), (Put("a", b"2"),)) for store in (one, two))
        )
        assert sorted(outcomes, key=str) == [2, None]
        await seen.aclose()
    finally:
        await one.close()
        await two.close()


async def _until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what it waits for is a list of the test
            await asyncio.sleep(0.002)
