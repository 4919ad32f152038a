"""The store in etcd where etcd differs from the other stores: real leases, others' keys, and no space."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("aetcd", reason="aetcd is not installed (make setup)")

from tests.broker.metadata.etcd.proxy import Proxy
from tests.broker.metadata.etcd.server import Etcd, need_etcd, running_etcd
from tests.certificates import Authority
from tidelog.broker.metadata.etcd import etcd_watch as following
from tidelog.broker.metadata.etcd import members
from tidelog.broker.metadata.etcd.members import EtcdTls
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.store import (
    MOST_OPERATIONS,
    Change,
    CompactedError,
    Delete,
    LeaseEndedError,
    MetadataError,
    Put,
    WentBackError,
    absent,
)
from tidelog.config.broker.etcd_address import parse_etcd
from tidelog.protocol.errors import KafkaStorageError

SLACK_S = 5.0  # etcd looks for leases that are over every half second, and the machine may be busy


async def until(condition, within_s=20):
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - it asks etcd
            await asyncio.sleep(0.05)


@asynccontextmanager
async def opened(etcd, name, endpoints=None, **options):
    """A store on the keys of a name."""
    store = EtcdStore(parse_etcd(etcd.url(name, endpoints)), **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def proxied(etcd, port=0):
    """A proxy before an etcd."""
    proxy = Proxy(etcd.endpoints[0], port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


@pytest.fixture
def own_etcd():
    """An etcd in which nobody else writes: its revisions have no gaps."""
    with running_etcd() as server:
        yield server


async def test_a_lease_ends_after_its_span_and_not_before_with_all_its_keys_at_once(own_etcd):
    async with opened(own_etcd, "leases") as store:
        begun_s = time.monotonic()
        lease = await store.grant(1_500)
        revision = await store.transact((), (Put("a", b"", lease), Put("b", b"", lease)))
        (changes,) = [await anext(store.watch(revision))]
        assert time.monotonic() - begun_s >= 1.5
        assert time.monotonic() - begun_s <= 2 + 2 * SLACK_S
        assert [(each.revision, each.key, each.value) for each in changes] == [
            (revision + 1, "a", None),
            (revision + 1, "b", None),
        ]
        assert not await store.keep_alive(lease)
        with pytest.raises(LeaseEndedError):
            await store.transact((), (Put("a", b"", lease),))


@pytest.mark.slow
async def test_a_lease_that_is_kept_alive_stays(etcd):
    async with opened(etcd, "kept") as store:
        lease = await store.grant(4_000)
        await store.transact((), (Put("a", b"", lease),))
        for _ in range(10):
            await asyncio.sleep(0.5)
            assert await store.keep_alive(lease)
        assert (await store.read("a")).pairs


async def test_clusters_in_one_etcd_do_not_see_each_other(etcd):
    async with opened(etcd, "one") as one, opened(etcd, "two") as two:
        first = await one.transact(absent("a"), (Put("a", b"1"),))
        second = await two.transact(absent("a"), (Put("a", b"2"),))
        assert second > first
        assert [pair.value for pair in (await one.read()).pairs] == [b"1"]
        assert [change.value for change in await one.changes(first - 1)] == [b"1"]
        assert [change.value for change in await two.changes(first)] == [b"2"]


async def test_changes_do_not_wait_for_what_others_have_written(etcd):
    """The watch of one cluster hears nothing of the other; a key of its own tells how far it is."""
    async with opened(etcd, "quiet") as one, opened(etcd, "loud") as two:
        first = await one.transact((), (Put("a", b"1"),))
        for _ in range(3):
            await two.transact((), (Put("b", b""),))
            async with asyncio.timeout(10):
                assert [each.key for each in await one.changes(first - 1)] == ["a"]
        assert [pair.key for pair in (await one.read()).pairs] == ["a"]


async def test_many_keys_are_read_at_one_revision(etcd, monkeypatch):
    monkeypatch.setattr(
        members, "_ATTEMPT_S", 60.0
    )  # a busy machine is slow, and that is not tested
    async with opened(etcd, "many") as store:
        for number in range(25):
            keys = (f"part/{number:03}/{each:03}" for each in range(MOST_OPERATIONS))
            await store.transact((), tuple(Put(key, bytes(300)) for key in keys))
        writing = asyncio.create_task(_write_for_ever(store))
        for _ in range(5):
            found = await store.read("part/")
            assert len(found.pairs) == 25 * MOST_OPERATIONS
            assert [pair.key for pair in found.pairs] == sorted({p.key for p in found.pairs})
            # Both keys are changed by the same transactions.
            assert found.pairs[0].value == found.pairs[-1].value
            assert max(pair.mod_revision for pair in found.pairs) <= found.revision
        writing.cancel()
        await asyncio.wait([writing])


async def _write_for_ever(store):
    for number in range(1 << 30):
        value = b"%d" % number
        await store.transact((), (Put("part/000/000", value), Put("part/024/119", value)))


@pytest.fixture
def hears(monkeypatch):
    """Watches hear of nothing but what this function says, and soon look for what they have lost."""

    async def deaf(follower):
        follower._has_begun()
        await asyncio.sleep(3600)

    monkeypatch.setattr(following, "_COMPARE_S", 0.2)
    monkeypatch.setattr(following.EtcdWatch, "_one_watch", deaf)
    # What etcd sends comes into the store nowhere else.
    return lambda store, revision, *changes: store._log.add([(revision, list(changes))])


async def check_lost(watching):
    with pytest.raises(CompactedError):
        await asyncio.wait_for(watching, 20)


async def test_what_the_watch_has_lost_is_found_and_everything_is_read_again(etcd, hears):
    async with opened(etcd, "lost") as store:
        first = (await store.read()).revision
        watching = asyncio.create_task(anext(store.watch(first)))
        await asyncio.sleep(0)
        await store.transact((), (Put("a", b""),))
        hears(store, await store.transact((), (Put("b", b""),)))  # and only what comes later
        await check_lost(watching)
        assert [pair.key for pair in (await store.read()).pairs] == ["a", "b"]


@pytest.mark.parametrize("is_last", [True, False])
async def test_who_has_heard_the_last_revision_reads_again_too(etcd, hears, is_last):
    async with opened(etcd, f"heard-{is_last}") as store:
        heard = (await store.read()).revision
        await store.transact((), (Put("a", b""),))  # the watch has lost this
        if not is_last:
            heard = await store.transact((), (Put("b", b""),))
            hears(store, heard, Change(heard, "b", b""))
        await check_lost(anext(store.watch(heard)))
        assert (await store.read()).revision > heard


async def test_a_key_that_was_deleted_unheard_and_put_again_is_found(etcd, hears):
    async with opened(etcd, "again") as other:
        await other.transact((), (Put("a", b""),))
        async with opened(etcd, "again") as store:
            await other.transact((), (Delete("a"),))  # the watch has lost this
            heard = await other.transact((), (Put("a", b""),))
            hears(store, heard, Change(heard, "a", b""))
            await check_lost(anext(store.watch(heard)))


async def test_a_watch_that_has_not_gone_on_yet_has_lost_nothing(etcd, monkeypatch, caplog):
    monkeypatch.setattr(following, "_REACH_S", 0.2)
    monkeypatch.setattr(following, "_COMPARE_S", 0.2)
    async with (
        proxied(etcd) as proxy,
        opened(etcd, "cut", endpoints=[proxy.endpoint]) as store,
        opened(etcd, "cut") as other,
    ):
        first = (await store.read()).revision
        watching = asyncio.create_task(anext(store.watch(first)))
        await asyncio.sleep(0)
        monkeypatch.setattr(following.EtcdWatch, "_one_watch", _unheard)
        proxy.drop()
        await other.transact((), (Put("a", b""),))
        await asyncio.wait([watching], timeout=1)  # several comparisons
        assert not watching.done()
        assert "etcd watch lost changes" not in caplog.text
        watching.cancel()


async def _unheard(_):
    await asyncio.sleep(3600)


async def test_an_etcd_without_space_says_so_and_goes_on_when_it_has_some():
    options = ("--quota-backend-bytes", str(1 << 20))
    with running_etcd(options=options) as etcd:
        async with opened(etcd, "full") as store:
            await check_full(etcd, store)


async def check_full(etcd, store):
    lease = await store.grant(60_000)
    with pytest.raises(KafkaStorageError, match=r"out of space.*alarm disarm"):
        await _fill(store)
    assert (await store.read("a/")).pairs
    assert await store.keep_alive(lease)  # so the sessions of brokers go on
    revision = (await store.read()).revision
    await store.changes(revision)

    etcd.compact(revision)
    etcd.control("maintenance/defragment", {})
    etcd.disarm()
    assert await store.transact((), (Put("a/0", b""),)) > revision


async def _fill(store):
    for number in range(200):
        await store.transact((), (Put(f"a/{number % 4}", bytes(100_000)),))


async def test_a_deletion_that_compaction_takes_from_the_watch_is_heard_of(own_etcd, caplog):
    """A watch from the revision of a deletion on, which is compacted, is not told it (etcd 18089).

    So it begins a revision earlier, and is refused; nobody hears later changes without the deletion.
    """
    async with (
        proxied(own_etcd) as proxy,
        opened(own_etcd, "compacted") as other,
        opened(own_etcd, "compacted", endpoints=[proxy.endpoint]) as store,
    ):
        first = await other.transact((), (Put("live/1", b""), Put("live/2", b"")))
        watched = store.watch(first)
        put = await other.transact((), (Put("live/2", b""),))
        await anext(watched)
        heard = asyncio.create_task(anext(watched))
        proxy.cut()
        deleted = await other.transact((), (Delete("live/1"),))
        own_etcd.compact(deleted)
        proxy.heal()
        with pytest.raises(CompactedError):
            async with asyncio.timeout(20):
                await heard
        found = await store.read()
        assert [(pair.key, pair.mod_revision) for pair in found.pairs] == [("live/2", put)]
        assert "etcd compacted changes before the watch returned them" in caplog.text
        assert "etcd watch lost changes" not in caplog.text


@pytest.fixture
async def majority():
    """An etcd of three members, and a store."""
    with running_etcd(3) as etcd:
        async with opened(etcd, "majority") as store:
            yield etcd, store


async def succeeds(call):
    try:
        return await call() is not None
    except KafkaStorageError:
        return False


@pytest.mark.slow
async def test_without_a_majority_calls_fail_in_time_and_go_on_afterwards(majority):
    etcd, store = majority
    first = await store.transact(absent("a"), (Put("a", b""),))
    etcd.kill(0)
    etcd.kill(1)
    for call in (
        store.read,
        lambda: store.transact((), (Put("a", b"x"),)),
        lambda: store.changes(first),
        lambda: store.grant(5_000),
    ):
        begun_s = time.monotonic()
        with pytest.raises(KafkaStorageError, match="etcd"):
            await call()
        assert time.monotonic() - begun_s < 15
    etcd.restart(0)
    await until(lambda: succeeds(lambda: store.transact((), (Put("b", b""),))), 60)
    assert (await store.changes(first))[-1].key == "b"


@pytest.mark.slow
async def test_a_member_that_hangs_is_passed_over(majority):
    etcd, store = majority

    async def renewed():
        return await store.keep_alive(await store.grant(60_000)) or None

    for number in etcd.numbers:
        etcd.pause(number)
        await until(lambda: succeeds(renewed), 30)
        revision = (await store.read()).revision
        await store.changes(revision)
        etcd.resume(number)


@pytest.mark.slow
async def test_an_etcd_out_of_reach_is_refused_in_a_sentence():
    store = EtcdStore(parse_etcd("etcd://127.0.0.1:1"), wait_s=0)
    with pytest.raises(MetadataError, match=r"etcd is out of reach: no connection to 127.0.0.1:1"):
        await store.open()
    with pytest.raises(KafkaStorageError, match="closed"):
        await store.read()


@pytest.mark.slow
async def test_a_store_waits_for_an_etcd_that_starts_later(etcd, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def says():
        return any(
            each.getMessage() == "waiting for etcd" and "etcd is out of reach" in each.reason
            for each in caplog.records
        )

    async def written():
        async with opened(etcd, "later", endpoints=[f"127.0.0.1:{port}"]) as store:
            return await store.transact(absent("a"), (Put("a", b""),))

    writing = asyncio.create_task(written())
    await until(says)
    async with proxied(etcd, port):
        assert await writing
    assert caplog.text.count("waiting for etcd") == 1


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """An etcd that asks for a certificate, and the files to speak to it."""
    need_etcd()
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("tests")
    issued = authority.issue("broker", hosts=["127.0.0.1"])
    files = EtcdTls(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
    contents = (authority.pem, issued.certificate_pem, issued.key_pem())
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    etcd = Etcd(tls=files)
    try:
        yield etcd.start(), files
    finally:
        etcd.close()


async def test_tls_with_the_certificate_of_the_broker(secured):
    etcd, files = secured
    async with opened(etcd, "tls", tls=files) as store:
        assert await store.transact(absent("a"), (Put("a", b""),))


@pytest.mark.slow
async def test_who_shows_no_certificate_or_trusts_another_authority_is_refused(secured, tmp_path):
    etcd, files = secured
    other = tmp_path / "other.pem"
    other.write_text(Authority("others").pem)
    without = files._replace(certificate=None, key=None)

    async def refused(tls):
        with pytest.raises(MetadataError, match="etcd"):
            async with opened(etcd, "tls", tls=tls, wait_s=0):
                pass

    await asyncio.gather(*map(refused, (without, files._replace(ca=other), None)))


async def test_a_file_that_is_missing_is_named(tmp_path):
    files = EtcdTls(tmp_path / "gone.pem", None, None)
    with pytest.raises(MetadataError, match=r"cannot read .*gone.pem: No such file"):
        await EtcdStore(parse_etcd("etcd://127.0.0.1:1"), files).open()


async def test_a_store_that_went_back_does_nothing_more_but_keep_leases(own_etcd):
    async with opened(own_etcd, "restored") as store:
        lease = await store.grant(60_000)
        revision = await store.transact((), (Put("a", b"1"),))
        own_etcd.stop(0)
        data, older = own_etcd.folder / "m0", own_etcd.folder / "older"
        shutil.copytree(data, older)
        own_etcd.restart(0)
        await until(lambda: succeeds(lambda: store.transact((), (Put("a", b"2"),))))
        own_etcd.stop(0)
        shutil.rmtree(data)
        older.rename(data)
        own_etcd.restart(0)

        with pytest.raises(WentBackError, match=f"gone back from revision [0-9]+ to {revision}"):
            await anext(store.watch(revision + 100))
        for call in (
            store.changes(revision),
            store.read(),
            store.transact((), (Put("b", b""),)),
            store.grant(1_000),
        ):
            with pytest.raises(WentBackError):
                await call
        assert "gone back" in await store.why_no_writes()
        assert await store.keep_alive(lease)
        await store.revoke(lease)
