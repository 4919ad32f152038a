"""A metadata file that is cut short or zeroed: a clear refusal, or all that was in it; and no log suffers."""

import random

import pytest
import pytest_asyncio

from tests.broker import asking
from tests.broker.subject import eventually
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metadata.store import MetadataError
from tidelog.process import BrokerFailed

TOPICS = {f"topic-{i}": {"retention.ms": str(i), "segment.bytes": "1000"} for i in range(60)}


async def _with_store(path, work):
    store = local_metadata(path)
    try:
        await store.open()
        return await work(store)
    finally:
        await store.close()


async def _fill(store):
    for name, configs in TOPICS.items():
        await store.create_topic(name, 2, configs)


async def _topics(store):
    return {topic.name: dict(topic.configs) for topic in store.image.topics.values()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "tidelog.sqlite"
    await _with_store(path, _fill)
    return path.read_bytes()


def places(whole):
    chance = random.Random(3)
    ends = {page + edge for page in range(0, len(whole), 4096) for edge in (0, 1, 100, 4095)}
    return sorted(ends | {chance.randrange(len(whole)) for _ in range(30)} - {0})


@pytest.mark.parametrize("how", ["cut", "zeros"])
async def test_a_damaged_file_is_refused_in_a_sentence_or_is_whole(tmp_path, whole, how):
    refused = 0
    for at in places(whole):
        if at <= 1 and how == "cut":
            continue  # to SQLite that is a new file; see below
        path = tmp_path / f"{at}.sqlite"
        path.write_bytes(whole[:at] + (bytes(len(whole) - at) if how == "zeros" else b""))
        try:
            topics = await _with_store(path, _topics)
        except MetadataError as error:
            refused += str(path) in str(error)
        else:
            assert topics == TOPICS, at
    assert refused > 20


@pytest.mark.slow
def test_a_broker_with_damaged_metadata_says_so_and_touches_no_log(start):
    broker = start()
    with broker.connect() as connection:
        asking.create(connection, "t", retention_ms="1", segment_bytes="1000")
        asking.produce(connection, "t", asking.batch_of("a", "b"))
    broker.stop()
    path = broker.log_dir / "tidelog.sqlite"
    whole = path.read_bytes()
    logs = {each: each.read_bytes() for each in (broker.log_dir / "t-0").iterdir()}
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokerFailed):
        broker.restart()
    eventually(lambda: broker.lines("broker stopped on error", "metadata"), what="the reason")
    assert {each: each.read_bytes() for each in logs} == logs
    path.write_bytes(whole)
    broker.restart()
    with broker.connect() as connection:
        assert asking.read_values(connection, "t") == [b"a", b"b"]


@pytest.mark.slow
def test_lost_metadata_leave_every_record(start):
    """Then the logs are somebody's data: they are served, and kept until somebody sets a policy."""
    broker = start({"log.retention.check.interval.ms": "50"})
    with broker.connect() as connection:
        asking.create(connection, "t", retention_ms="1", segment_bytes="1000")
        asking.create(connection, "kept", retention_ms="-1")
        asking.produce(connection, "kept", asking.batch_of("a", "b"))
    broker.stop()
    for path in broker.log_dir.glob("tidelog.sqlite*"):
        path.write_bytes(b"")
    broker.restart()
    with broker.connect() as connection:
        assert asking.read_values(connection, "kept") == [b"a", b"b"]
