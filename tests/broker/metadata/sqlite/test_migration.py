"""Metadata files of older layouts: everything in them is there, also after a crash in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metadata.records import NO_LEADER, UNKNOWN_EPOCH
from tidelog.broker.metadata.sqlite import migration
from tidelog.broker.metadata.sqlite.store import SqliteStore, wal_is_safe
from tidelog.broker.metadata.store import NO_LEASE, Change, KeyValue, MetadataError, Put

ROOT = Path(__file__).parents[4]
WRITTEN = {
    layout: Path(__file__).with_name(f"layout_{layout}.sql").read_text() for layout in (2, 3)
}


@pytest.fixture
def layout():
    return 2


@pytest.fixture
def old(tmp_path, layout):
    """A file as the old code wrote it: with a log that is written ahead, too."""
    path = tmp_path / "tidelog.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(WRITTEN[layout])
    return path


async def image_of(path):
    metadata = local_metadata(path)
    await metadata.open()
    try:
        return metadata.image, await metadata.allocate_producer_ids(1)
    finally:
        await metadata.close()


def check(image, ids, *, deletions=True, leaders=(NO_LEADER, UNKNOWN_EPOCH)):
    assert image.cluster_id == "5n68LJKmRlC1uQFoL8apTA"
    assert ids == range(1500, 1501)
    assert dict(image.broker_configs) == {
        "log.retention.ms": "86400000",
        "log.segment.bytes": "1000000",
    }
    assert {name: topic.topic_id.int for name, topic in image.topics.items()} == {
        "plain": 0x1111,
        "with.settings": 0x2222,
    }
    topic = image.topics["with.settings"]
    assert dict(topic.configs) == {"retention.ms": "5", "cleanup.policy": "compact,delete"}
    assert (topic.partitions, image.topics["plain"].partitions) == (12, 1)
    assert {(each.leader, each.leader_epoch) for each in topic.assignments} == {leaders}
    assert dict(image.deletions) == ({UUID(int=0x3333): "gone"} if deletions else {})


async def test_everything_of_the_old_layout_is_there(old):
    check(*await image_of(old))
    with closing(sqlite3.connect(old)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (migration.LAYOUT,)
        tables = {
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
    assert tables == {"kv", "change", "counter", "lease"}


@pytest.mark.parametrize("layout", [3])
async def test_keys_without_leases_keep_their_revisions_and_changes(old, layout):
    with closing(sqlite3.connect(old)) as db:
        keys, changes = (
            db.execute(f"SELECT * FROM {name}").fetchall() for name in ("kv", "change")
        )
    store = SqliteStore(old)
    await store.open()
    try:
        snapshot = await store.read()
        assert list(snapshot.pairs) == [KeyValue(*row, lease=NO_LEASE) for row in keys]
        assert await store.changes(2) == [Change(*row) for row in changes]
        lease = await store.grant(1_000)
        assert await store.transact((), (Put("live/1", b"", lease),)) == snapshot.revision + 1
        await store.revoke(lease)
        assert await store.changes(snapshot.revision + 1) == [
            Change(snapshot.revision + 2, "live/1", None)
        ]
    finally:
        await store.close()
    check(*await image_of(old), leaders=(1, 0))


async def test_a_migrated_file_is_read_like_any_other(old):
    first, _ = await image_of(old)
    second, ids = await image_of(old)
    assert ids == range(1501, 1502)
    assert second._replace(revision=0, next_producer_id=0) == first._replace(
        revision=0, next_producer_id=0
    )


async def test_the_first_layout_had_no_deletions(old):
    with closing(sqlite3.connect(old)) as db:
        db.execute("DROP TABLE deleted_topic")
        db.execute("PRAGMA user_version = 1")
    check(*await image_of(old), deletions=False)


def statements(layout):
    """How many statements a migration of the fixture has."""
    count = 0
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(WRITTEN[layout])

        def counted(_statement):
            nonlocal count
            count += 1

        db.set_trace_callback(counted)
        migration.migrate(db)
    return count


KILLED = """
import os, signal, sqlite3, sys
from tidelog.broker.metadata.sqlite import migration

db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = " + sys.argv[3])
db.execute("PRAGMA cache_size = 1")  # pages go to the file before the end
left = int(sys.argv[2])

def crash(statement):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

db.execute("BEGIN IMMEDIATE")
db.set_trace_callback(crash)
migration.migrate(db)
os.kill(os.getpid(), signal.SIGKILL)  # before the commit
"""


def kill_during_migration(old, layout, share, journal_mode):
    calls = round(share * statements(layout))
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(old), str(calls), journal_mode],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("layout", "share", "journal_mode"),
    [(2, 0.4, "WAL"), (2, 1.0, "TRUNCATE"), (3, 0.8, "WAL"), (3, 0.4, "TRUNCATE")],
)
async def test_a_crash_in_the_middle_leaves_the_old_file(old, layout, share, journal_mode):
    ended = kill_during_migration(old, layout, share, journal_mode)
    assert ended.returncode == -signal.SIGKILL
    leaders = (NO_LEADER, UNKNOWN_EPOCH) if layout == 2 else (1, 0)
    check(*await image_of(old), leaders=leaders)


async def test_old_values_that_nobody_wrote_are_refused_and_left(old):
    with closing(sqlite3.connect(old)) as db, db:
        db.execute("UPDATE meta SET value = 'many' WHERE name = 'next_producer_id'")
    before = shutil.copy(old, old.with_suffix(".before"))
    with pytest.raises(MetadataError, match="damaged"):
        await image_of(old)
    dumps = []
    for path in (before, old):
        with closing(sqlite3.connect(path)) as db:
            dumps.append(list(db.iterdump()))
    assert dumps[0] == dumps[1]


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 6, 23), False),
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 3), False),
        ((3, 49, 9), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_wal_is_for_releases_with_the_fix(version, safe):
    assert wal_is_safe(version) is safe


@pytest.mark.parametrize(
    ("version", "mode"), [((3, 40, 1), "truncate"), ((3, 51, 3), "wal"), ((3, 51, 2), "truncate")]
)
async def test_the_journal_is_chosen_by_the_release(old, monkeypatch, version, mode):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    check(*await image_of(old))
    with closing(sqlite3.connect(old)) as db:
        # A file remembers WAL; every other mode is the connection's own.
        assert (db.execute("PRAGMA journal_mode").fetchone() == ("wal",)) is (mode == "wal")
