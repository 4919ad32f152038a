"""Logins at members that hang: nobody waits for them who asks another one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("aetcd", reason="aetcd is not installed (make setup)")

import grpc

from tidelog.broker.metadata.etcd.login import EtcdLogin, EtcdUser


class EtcdMember:
    """A member that answers logins when it is let, one token after another."""

    def __init__(self, name):
        self.endpoint, self.auth = name, self
        self.logins = 0
        self.is_asked, self.answers = asyncio.Event(), asyncio.Event()
        self.hangs_up = False

    async def Authenticate(self, request, **options):
        self.logins += 1
        self.is_asked.set()
        await self.answers.wait()
        if self.hangs_up:
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, None, None)
        return SimpleNamespace(token=f"{self.endpoint}-{self.logins}")


@pytest.fixture
def login(tmp_path):
    password = tmp_path / "password"
    password.write_text("x")
    return EtcdLogin(EtcdUser("broker", password))


async def asked(login, member, times):
    """Calls that ask for a token at a member, and wait for it."""
    tasks = [asyncio.create_task(login.metadata(member)) for _ in range(times)]
    async with asyncio.timeout(30):
        await member.is_asked.wait()
    return tasks


async def test_a_member_that_hangs_keeps_nobody_from_another_one(login):
    hanging, well = EtcdMember("a"), EtcdMember("b")
    well.answers.set()
    waiting = await asked(login, hanging, 3)
    async with asyncio.timeout(30):
        assert await login.metadata(well) == (("token", "b-1"),)
        assert await login.metadata(hanging) == (("token", "b-1"),)

    hanging.hangs_up = True
    hanging.answers.set()
    async with asyncio.timeout(30):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in found] == [grpc.aio.AioRpcError] * 3
    assert hanging.logins == 1  # not one after another
    assert await login.metadata(hanging) == (("token", "b-1"),)


async def test_calls_share_one_login_and_one_that_is_cancelled_ends_none(login):
    member = EtcdMember("a")
    first, *others = await asked(login, member, 3)
    first.cancel()
    await asyncio.wait([first])
    member.answers.set()
    assert await asyncio.gather(*others) == [(("token", "a-1"),)] * 2
    assert login.discard_token("etcdserver: invalid auth token", (("token", "a-1"),))
    assert await login.metadata(member) == (("token", "a-2"),)
