"""Changes of topics, cut short at every step between the metadata and the logs.

Before and after each step a copy of the directory is taken: what kill -9 would leave. A broker that
starts on it must have the change whole or not at all, and never a log that its topic does not explain.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from tests.broker import asking
from tests.broker.logs.test_interrupted_changes import Broker
from tidelog.protocol.errors import KafkaStorageError

STEPS = ("create_partition", "delete_partition", "assign_topic_id", "set_aside", "set_config")


class Crashes:
    """Copies of a broker's directory, one for each moment at which it might have crashed."""

    def __init__(self, broker, directory):
        self.copies = []
        self._source, self._directory = broker.directory, directory
        for name in STEPS:
            setattr(broker.store, name, self._copying(getattr(broker.store, name)))
        transact = broker.metadata.store.transact

        async def copying(*arguments):
            self.copy()
            outcome = await transact(*arguments)
            self.copy()
            return outcome

        broker.metadata.store.transact = copying

    def _copying(self, step):
        def copying(*arguments, **named):
            self.copy()
            outcome = step(*arguments, **named)
            self.copy()
            return outcome

        return copying

    def copy(self):
        target = self._directory / str(len(self.copies))
        shutil.copytree(self._source, target)
        self.copies.append(target)


def described(broker, name="t"):
    """What a started broker has of a topic: None, or its partitions and its own settings."""
    topic = broker.metadata.image.topics.get(name)
    logs = broker.logs(name)
    if topic is None:
        assert logs == []
        return None
    assert sorted(logs) == list(range(topic.partitions))
    assert {broker.store.topic_id(name, index) for index in logs} == {topic.topic_id}
    assert broker.store.config_of(name) == broker.node.settings.served(topic)
    assert not broker.metadata.image.deletions
    return topic.partitions, dict(topic.configs)


async def after_each_crash(tmp_path, change, prepare=None):
    """What is there of topic `t` after each crash, in order, without repetitions."""
    source, copies = tmp_path / "source", tmp_path / "copies"
    source.mkdir()
    copies.mkdir()
    async with Broker(source) as broker:
        if prepare is not None:
            await prepare(broker)
        crashes = Crashes(broker, copies)
        await change(broker)
        crashes.copy()
    found = []
    for copy in crashes.copies:
        async with Broker(copy) as broker:
            now = described(broker)
        async with Broker(copy) as broker:
            assert described(broker) == now, "a second start changes nothing"
        if not found or found[-1] != now:
            found.append(now)
    assert len(crashes.copies) > 3
    return found


SETTINGS = {"retention.ms": "12345"}


async def _create(broker, partitions=3):
    await broker.node.topics.create("t", partitions=partitions, configs=SETTINGS)


async def _create_and_fill(broker):
    await _create(broker)
    broker.node.appends.append(broker.node.partitions.get("t", 0), asking.batch_of("a"), 7)


async def test_a_creation_is_there_whole_or_not_at_all(tmp_path):
    assert await after_each_crash(tmp_path, _create) == [None, (3, SETTINGS)]


async def test_a_deletion_leaves_everything_or_nothing(tmp_path):
    found = await after_each_crash(
        tmp_path, lambda broker: broker.node.topics.delete("t"), _create_and_fill
    )
    assert found == [(3, SETTINGS), None]


async def test_partitions_are_added_all_or_none(tmp_path):
    found = await after_each_crash(
        tmp_path, lambda broker: broker.node.topics.add_partitions("t", lambda _: 6), _create
    )
    assert found == [(3, SETTINGS), (6, SETTINGS)]


async def test_settings_are_the_old_or_the_new(tmp_path):
    changed = {"retention.ms": "99999", "segment.bytes": "20000"}
    found = await after_each_crash(
        tmp_path,
        lambda broker: broker.node.topics.alter("t", changed, validate_only=False),
        _create,
    )
    assert found == [(3, SETTINGS), (3, changed)]


async def test_a_topic_deleted_and_created_anew_is_one_or_the_other(tmp_path):
    async def anew(broker):
        await broker.node.topics.delete("t")
        await broker.node.topics.create("t", partitions=2)

    found = await after_each_crash(tmp_path, anew, _create_and_fill)
    assert found == [(3, SETTINGS), None, (2, {})]


def fail(broker, *names, after=0):
    """Let calls of the store fail as they do when descriptors run out."""
    calls = {}
    for name in names:
        step = getattr(broker.store, name)

        def failing(*arguments, name=name, step=step, **named):
            calls[name] = calls.get(name, 0) + 1
            if calls[name] > after:
                raise KafkaStorageError(f"{name} failed: too many open files")
            return step(*arguments, **named)

        setattr(broker.store, name, failing)


async def _fail_to_create(broker):
    fail(broker, "create_partition", after=2)
    with pytest.raises(KafkaStorageError, match="too many open files"):
        await _create(broker)
    assert "t" not in broker.metadata.image.topics


async def test_a_creation_that_fails_is_not_there_later(tmp_path):
    """Between its two writes the metadata say it: there a crash makes it whole, for nobody was told."""
    found = await after_each_crash(tmp_path, _fail_to_create)
    assert found == [None, (3, SETTINGS), None]


async def test_what_cannot_be_removed_of_a_failed_creation_is_removed_at_the_next_start(tmp_path):
    """Descriptors have run out for everything: for the logs to be made, and for removing those made."""

    async def run_out(broker):
        fail(broker, "delete_partition")
        await _fail_to_create(broker)
        assert broker.logs("t") == [0, 1]

    async with Broker(tmp_path) as broker:
        await run_out(broker)
        assert list(broker.metadata.image.deletions.values()) == ["t"]
    async with Broker(tmp_path) as broker:
        assert described(broker) is None


async def test_a_failed_creation_that_cannot_be_withdrawn_is_made_whole_later(tmp_path):
    async with Broker(tmp_path) as broker:
        fail(broker, "create_partition", after=1)

        async def refuse(*_):
            raise KafkaStorageError("unable to open database file")

        broker.node.topics.admin.roll_back_topic = refuse
        with pytest.raises(KafkaStorageError, match="too many open files"):
            await _create(broker)
    async with Broker(tmp_path) as broker:
        assert described(broker) == (3, SETTINGS)


async def test_partitions_that_cannot_be_added_are_taken_back(tmp_path):
    async def grow(broker):
        fail(broker, "create_partition", after=1)
        with pytest.raises(KafkaStorageError, match="too many open files"):
            await broker.node.topics.add_partitions("t", lambda _: 6)
        assert broker.metadata.image.topics["t"].partitions == 3

    found = await after_each_crash(tmp_path, grow, _create)
    assert found == [(3, SETTINGS), (6, SETTINGS), (3, SETTINGS)]


async def test_a_log_that_names_no_topic_survives_every_failure(tmp_path):
    """A creation takes it over last: what was withdrawn before has not touched it."""
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
        await broker.metadata.delete_topic("t")
        (topic_id,) = broker.metadata.image.deletions
        await broker.metadata.deletion_done(topic_id)
        broker.store.partition("t", 0).topic_id = None
        (tmp_path / "t-0" / "partition.metadata").unlink()
        await _fail_to_create_over_it(broker)
    async with Broker(tmp_path) as broker:
        assert broker.node.partitions.get("t", 0).log_end_offset == 1


async def _fail_to_create_over_it(broker):
    fail(broker, "create_partition", after=0)
    with pytest.raises(KafkaStorageError):
        await broker.node.topics.create("t", partitions=5)
    assert "t" not in broker.metadata.image.topics


async def test_changes_of_another_broker_are_followed(tmp_path):
    """Written to the metadata behind the broker's back: its logs follow."""
    async with Broker(tmp_path) as broker:
        following = asyncio.create_task(broker.node.topics.run())
        try:
            await broker.metadata.create_topic("t", 2, SETTINGS)
            await _until(lambda: "t" in broker.node.reconciler.served)
            assert described(broker) == (2, SETTINGS)
            await broker.metadata.alter_topic_configs("t", {"retention.ms": "777"})
            await _until(lambda: broker.store.config_of("t").retention_ms == 777)
            await broker.metadata.delete_topic("t")
            await _until(lambda: not broker.logs("t"))
        finally:
            following.cancel()
            await asyncio.wait([following])
            await broker.node.topics.stop()


async def _until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - it looks at what has no event
            await asyncio.sleep(0.005)
