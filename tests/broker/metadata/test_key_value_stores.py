"""What every engine of a key-value store promises beside the contract that schedules judge (`contract/`)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import Delete, Put
from tidelog.config.broker.etcd_address import parse_etcd
from tidelog.protocol.errors import KafkaStorageError


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def store(request, tmp_path):
    if request.param == "etcd":
        from tidelog.broker.metadata.etcd.store import EtcdStore  # loads gRPC

        etcd = request.getfixturevalue("etcd")
        made = EtcdStore(parse_etcd(etcd.url(tmp_path.name)))
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "one.sqlite", poll_interval_s=0.01)
    else:
        made = MemoryStore()
    await made.open()
    yield made
    with contextlib.suppress(KafkaStorageError):  # a test may have closed it
        await made.close()


async def test_a_watch_ends_with_its_store(store):
    revision = (await store.read()).revision

    async def follow():
        return [changes async for changes in store.watch(revision)]

    watching = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(10):
        (outcome,) = await asyncio.gather(watching, return_exceptions=True)
    assert outcome == [] or isinstance(outcome, KafkaStorageError)


async def test_a_key_is_named_once_in_a_transaction(store):
    before = await store.read()
    with pytest.raises(ValueError, match="once"):
        await store.transact((), (Put("a", b""), Delete("a")))
    assert await store.read() == before
