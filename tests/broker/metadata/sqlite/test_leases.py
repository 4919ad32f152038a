"""Leases in a SQLite file: the clock by which they end, and what other boots have left."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidelog.broker.clock import machine_boot_id
from tidelog.broker.metadata.liveness.peers import Peers
from tidelog.broker.metadata.sqlite import lease_clock
from tidelog.broker.metadata.sqlite.lease_clock import LeaseClock, machine_lease_clock
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import (
    LeaseEndedError,
    MetadataError,
    Put,
    absent,
)
from tidelog.protocol.errors import KafkaStorageError

ROOT = Path(__file__).parents[4]
READING = (
    "from tidelog.broker.metadata.sqlite.lease_clock import machine_lease_clock as clock; "
    "print(clock().now_ms(), clock().name)"
)


class Time:
    """A clock that the test moves."""

    def __init__(self, name="boot", now_ms=1_000_000):
        self.now_ms, self.name = now_ms, name

    def clock(self):
        return LeaseClock(self.name, lambda: self.now_ms)


@asynccontextmanager
async def opened(path, time, **settings):
    store = SqliteStore(path, clock=time.clock(), **settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.sqlite"


async def keys(store):
    return [pair.key for pair in (await store.read()).pairs]


async def test_a_lease_survives_its_process_and_ends_at_its_deadline(path):
    time = Time()
    async with opened(path, time) as store:
        lease = await store.grant(3_000)
        await store.transact((), (Put("a", b"", lease), Put("b", b"", lease), Put("c", b"")))
    time.now_ms += 2_999
    async with opened(path, time) as store:
        assert await keys(store) == ["a", "b", "c"]
        time.now_ms += 1
        assert await keys(store) == ["c"]
        assert [each.revision for each in await store.changes(1)] == [2, 2]
        assert await store.keep_alive(lease) is False
        with pytest.raises(LeaseEndedError, match=f"lease {lease} has ended"):
            await store.transact(absent("a"), (Put("a", b"", lease), Put("d", b"")))
        assert await store.transact(absent("c"), (Put("a", b"", lease),)) is None
        assert await keys(store) == ["c"]


async def test_a_lease_of_another_boot_has_ended_with_it(path):
    async with opened(path, Time("first")) as store:
        await store.transact((), (Put("a", b"", await store.grant(10**9)),))
    async with opened(path, Time("second", now_ms=5)) as store:
        assert await keys(store) == []


async def test_where_boots_have_no_name_a_deadline_too_far_away_is_of_another(path):
    async with opened(path, Time("")) as store:
        await store.transact((), (Put("a", b"", await store.grant(3_000)),))
    async with opened(path, Time("", now_ms=5)) as store:
        assert await keys(store) == []


async def test_a_span_is_above_zero(path):
    async with opened(path, Time()) as store:
        for ttl_ms in (0, -1):
            with pytest.raises(ValueError, match=f"a lease of {ttl_ms} ms has no time"):
                await store.grant(ttl_ms)


def reading(*prefix):
    """What a process reads from the clock: milliseconds and the name."""
    said = subprocess.run(
        [*prefix, sys.executable, "-c", READING],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if said.returncode and prefix:
        pytest.skip(f"no time namespace can be made here: {said.stderr.strip()}")
    now_ms, name = said.stdout.split()
    return int(now_ms), name


def test_processes_of_all_time_namespaces_read_one_clock():
    before_ms = machine_lease_clock().now_ms()
    inside = ("unshare", "--user", "--map-root-user", "--time", "--monotonic", "86400", "--fork")
    now_ms, name = reading(*inside)
    assert before_ms <= now_ms <= machine_lease_clock().now_ms()
    assert name == machine_boot_id()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """What the kernel says of a process that has made a time namespace for its children."""
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns/time").symlink_to("time:[1]")
    monkeypatch.setattr(lease_clock, "_SELF", tmp_path)
    return tmp_path


OFFSET_UNKNOWN = "leases need one time namespace for a broker and its children"


async def test_a_process_whose_offset_is_unknown_has_keys_but_no_lease(own, path):
    (own / "ns/time_for_children").symlink_to("time:[2]")
    store = SqliteStore(path)
    await store.open()
    try:
        await store.transact((), (Put("a", b""),))
        assert await keys(store) == ["a"]
        with pytest.raises(KafkaStorageError, match=OFFSET_UNKNOWN):
            await store.grant(3_000)
        assert await keys(store) == ["a"]
    finally:
        await store.close()


async def test_a_process_whose_offset_is_unknown_shares_no_file(own, path):
    (own / "ns/time_for_children").symlink_to("time:[2]")
    store = SqliteStore(path, peers=Peers(path.parent, 1, lambda _: None))
    with pytest.raises(MetadataError, match=OFFSET_UNKNOWN):
        await store.open()


def test_a_system_without_time_namespaces_has_no_offset(own):
    before_ms = machine_lease_clock().now_ms()
    assert before_ms <= reading()[0]
