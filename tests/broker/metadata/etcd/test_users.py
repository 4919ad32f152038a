"""The store in an etcd that asks for a user: tokens that end, passwords, and permissions."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aetcd", reason="aetcd is not installed (make setup)")

from tests.broker.metadata.etcd.server import running_etcd
from tests.broker.partitions.load import create
from tests.broker.subject import eventually, json_at
from tidelog.broker.metadata.etcd.login import EtcdUser
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.store import MetadataError, Put, absent
from tidelog.cluster import BrokerCluster
from tidelog.config.broker.etcd_address import parse_etcd
from tidelog.protocol.errors import KafkaStorageError

PASSWORD = "correct horse"
TOKEN_S = 2  # how long etcd keeps a token that nobody uses
PREFIX = "/tidelog/ours/"


@pytest.fixture
def etcd():
    """An etcd with the user `broker`, who may use the keys of the cluster `ours` alone."""
    with running_etcd(options=("--auth-token-ttl", str(TOKEN_S))) as server:
        server.add_user("broker", PASSWORD, [PREFIX])
        server.enable_users()
        yield server


@pytest.fixture
def password(tmp_path):
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


def store_of(etcd, user, name="ours", **options):
    return EtcdStore(parse_etcd(etcd.url(name)), user=user, **options)


@pytest.fixture
async def store(etcd, password):
    opened = store_of(etcd, EtcdUser("broker", password))
    await opened.open()
    yield opened
    await opened.close()


async def works(store, key):
    """Whether a key can be written, is heard of, and a lease goes on."""
    heard = store.watch(await store.transact((), (Put("0", b""),)))
    lease = await store.grant(60_000)
    revision = await store.transact(absent(key), (Put(key, b"1", lease),))
    async with asyncio.timeout(20):
        changes = await anext(heard)
    await heard.aclose()
    assert [each.key for each in changes] == [key]
    assert [pair.key for pair in (await store.read(key)).pairs] == [key]
    assert await store.why_no_writes() is None
    return revision is not None and await store.keep_alive(lease)


@pytest.mark.slow
async def test_a_token_that_etcd_has_forgotten_is_replaced(etcd, store):
    assert await works(store, "a")
    await asyncio.sleep(2 * TOKEN_S)  # etcd measures it
    assert await works(store, "b")
    etcd.kill(0)  # tokens are in the memory of members
    etcd.restart(0)
    assert await works(store, "c")


async def test_a_change_of_users_ends_no_session(etcd, store):
    lease = await store.grant(60_000)
    etcd.add_user("another", "x", ["/other/"])  # every token is older than that
    assert await store.keep_alive(lease)
    assert await works(store, "a")


async def test_a_new_password_is_read_from_the_file(etcd, store, password):
    etcd.control("auth/user/changepw", {"name": "broker", "password": "battery staple"})
    with pytest.raises(KafkaStorageError, match="refuses user broker"):
        await store.read()
    password.write_text("battery staple")
    assert await works(store, "a")


async def test_who_is_not_let_in_is_told_at_once_why(etcd, password, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("x")
    for user, name, sentence in (
        (None, "ours", "asks for a user: set metadata.store.user"),
        (EtcdUser("broker", wrong), "ours", "the name, or the password in .*wrong, is wrong"),
        (EtcdUser("nobody", password), "ours", "refuses user nobody"),
        (EtcdUser("broker", tmp_path / "gone"), "ours", "password.file cannot be read: .*gone"),
        (EtcdUser("broker", password), "theirs", "does not let user broker read and write"),
    ):
        async with asyncio.timeout(10):  # less than it waits for an etcd that is out of reach
            with pytest.raises(MetadataError, match=sentence):
                await store_of(etcd, user, name).open()


async def test_an_etcd_without_users_says_so(password):
    sentence = r"knows no users: .*leave out metadata.store.user"
    with running_etcd() as server, pytest.raises(MetadataError, match=sentence):
        await store_of(server, EtcdUser("broker", password)).open()


@pytest.mark.slow
def test_brokers_go_on_with_new_tokens(etcd, password, tmp_path):
    settings = {
        "metadata.store": etcd.url("ours"),
        "metadata.store.user": "broker",
        "metadata.store.password.file": password,
        "broker.session.timeout.ms": 6000,
    }

    def error(broker):
        return json_at(broker.http, "/v1/cluster")[1]["own"]["metadata_error"]

    with BrokerCluster(tmp_path / "data", settings=settings) as cluster:
        create(cluster, "a")
        etcd.kill(0)
        etcd.restart(0)
        etcd.add_user("another", "x", ["/other/"])
        eventually(lambda: not any(error(each) for each in cluster), 30)
        create(cluster, "b")
        assert all(PASSWORD not in each.log() for each in cluster)
