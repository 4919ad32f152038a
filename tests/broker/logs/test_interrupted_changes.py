"""Topics whose creation or deletion was interrupted, or overlaps another change."""

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from tests.broker import asking
from tidelog.broker.boot import Services
from tidelog.broker.clock import ManualClock
from tidelog.broker.controller.topics.startup import open_topics
from tidelog.broker.logs.maintenance.retention_rounds import delete_due
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.partitions.fetch.delayed_fetch import wait_for_bytes
from tidelog.config import BrokerConfig, load
from tidelog.protocol.errors import KafkaStorageError, TopicAlreadyExists
from tidelog.storage.directory.store import LogStore


class Broker:
    """A node with real stores and no sockets, in one directory."""

    def __init__(self, directory, before_start=lambda broker: None, *, now_ms=1_000, **settings):
        self.directory = directory
        self.config = load(None, {}, settings) if settings else BrokerConfig()
        self.clock = ManualClock(now_ms)
        self._before_start = before_start

    async def __aenter__(self):
        self.metadata = local_metadata(self.directory / "tidelog.sqlite")
        await self.metadata.open()
        self.store = LogStore([self.directory], default_config=self.config.topic_defaults)
        self.node = Services(self.config, self.clock, self.store, self.metadata, Metrics())
        self._before_start(self)
        await open_topics(self.node)
        await self.node.cluster.start([])
        return self

    async def __aexit__(self, *_):
        self.node.pools.stop()
        self.store.close()
        await self.metadata.close()

    def logs(self, name):
        return [index for topic, index in self.store.names() if topic == name]


async def _create_and_fill(broker):
    await broker.node.topics.create("t", partitions=1, configs={"segment.bytes": "10000"})
    broker.node.appends.append(broker.node.partitions.get("t", 0), asking.batch_of("old"), 7)


async def test_a_deletion_cut_short_leaves_nothing_to_a_new_topic_of_that_name(tmp_path):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)

    async with Broker(tmp_path) as broker:
        await broker.metadata.delete_topic("t")

    async with Broker(tmp_path) as broker:
        assert broker.logs("t") == []  # the start has finished it
        topic = await broker.node.topics.create("t", partitions=1)
        partition = broker.node.partitions.get("t", 0)
        assert partition.topic_id == topic.topic_id
        assert partition.log_end_offset == 0


async def test_a_log_without_a_topic_id_is_taken_over_not_emptied(tmp_path):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
    (tmp_path / "t-0" / "partition.metadata").unlink()

    async with Broker(tmp_path) as broker:
        assert broker.node.partitions.get("t", 0).log_end_offset == 1


async def test_overlapping_deletion_and_creation_end_with_every_log(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=20)
        first, second = await asyncio.gather(
            broker.node.topics.delete("t"), broker.node.topics.create("t", partitions=20)
        )
        assert first.topic_id != second.topic_id
        assert broker.logs("t") == list(range(20))
        assert {broker.store.topic_id("t", index) for index in range(20)} == {second.topic_id}


async def test_changes_of_settings_that_overlap_are_both_kept_live_and_stored(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        await asyncio.gather(
            broker.node.topics.alter("t", {"segment.bytes": "20000"}, validate_only=False),
            broker.node.topics.alter("t", {"max.message.bytes": "5000"}, validate_only=False),
        )
        live = broker.node.partitions.get("t", 0).config
        assert (live.segment_bytes, live.max_message_bytes) == (20_000, 5_000)
        stored = broker.metadata.image.topics["t"].configs
        assert dict(stored) == {"segment.bytes": "20000", "max.message.bytes": "5000"}


async def test_a_topic_id_is_a_topic_of_its_own(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        assert broker.store.topic_id("t", 0) == broker.metadata.image.topics["t"].topic_id
        assert broker.store.topic_id("t", 1) is None
        assert broker.node.metadata.topic_name(broker.metadata.image.topics["t"].topic_id) == "t"
        assert isinstance(broker.store.topic_id("t", 0), uuid.UUID)


async def test_a_topic_whose_settings_do_not_fit_any_more_loses_nothing(tmp_path):
    """It may have asked to keep for ever; the broker's own seven days must not come over it."""
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1, configs={"retention.ms": "-1"})
        broker.node.appends.append(broker.node.partitions.get("t", 0), asking.batch_of("old"), 7)
        await broker.metadata.alter_topic_configs("t", {"from.a.newer.tidelog": "1"})

    async with Broker(tmp_path) as broker:
        broker.node.clock.set(10**12)
        broker.node.ready = True
        assert broker.store.partition("t", 0).log_end_offset == 1
        assert delete_due(broker.node, asked=True) == ([], [], 0)
        assert broker.store.partition("t", 0).log_start_offset == 0


async def test_a_round_goes_on_behind_a_log_that_fails_unexpectedly(tmp_path, caplog):
    async with Broker(tmp_path) as broker:
        for name in ("a", "b", "c"):
            await broker.node.topics.create(name, partitions=1, configs={"retention.ms": "1"})
            broker.node.appends.append(
                broker.node.partitions.get(name, 0), asking.batch_of("old"), 7
            )

        def fail(*_):
            raise ZeroDivisionError("injected")

        broker.node.partitions.get("b", 0).retainer = SimpleNamespace(apply_retention=fail)
        broker.node.clock.set(10**15)
        broker.node.ready = True
        done = delete_due(broker.node)
        assert [swept.topic for swept in done.deleted] == ["a", "c"]
        (failed,) = done.failed
        assert failed[:2] == ("b", 0)
        assert "injected" in failed.reason
        assert "ZeroDivisionError" in caplog.text, "the traceback is what finds such a mistake"


async def test_a_topic_is_never_judged_by_other_settings_than_its_own(tmp_path):
    """Rounds of retention look at the topics that are served; the metadata have a topic earlier."""
    async with Broker(tmp_path) as broker:
        set_config, seen = broker.store.set_config, []

        def look(name, config):
            seen.append(("t" in broker.metadata.image.topics, "t" in broker.node.reconciler.served))
            set_config(name, config)

        broker.store.set_config = look
        await broker.node.topics.create("t", partitions=1, configs={"retention.ms": "12345"})
        assert seen == [(True, False)]
        assert "t" in broker.node.reconciler.served
        assert broker.store.config_of("t").retention_ms == 12345
        with pytest.raises(TopicAlreadyExists):
            await broker.node.topics.create("t", partitions=1, configs={"retention.ms": "1"})
        assert broker.node.partitions.get("t", 0).config.retention_ms == 12345


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "damaged",
    [b"", bytes(43), b"version: 0\ntopic_id: AAAA\n", b"version: 1\n", b"\xff\xfe topic_id"],
)
async def test_a_damaged_topic_id_is_written_anew(tmp_path, damaged, is_clean):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
    path = tmp_path / "t-0" / "partition.metadata"
    whole = path.read_bytes()
    path.write_bytes(damaged)
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()

    async with Broker(tmp_path) as broker:
        topic_id = broker.metadata.image.topics["t"].topic_id
        assert broker.store.topic_id("t", 0) == topic_id
        assert broker.node.partitions.get("t", 0).topic_id == topic_id
        assert broker.node.partitions.get("t", 0).log_end_offset == 1
        assert path.read_bytes() == whole


@pytest.mark.parametrize("damaged", [b"", bytes(43)])
async def test_a_topic_id_damaged_while_the_log_was_closed_is_written_anew(tmp_path, damaged):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
    path = tmp_path / "t-0" / "partition.metadata"
    whole = path.read_bytes()

    async with Broker(tmp_path) as broker:
        assert broker.store.is_closed("t", 0)
        path.write_bytes(damaged)
        partition = await broker.node.partitions.open("t", 0)
        assert partition.topic_id == broker.metadata.image.topics["t"].topic_id
        assert path.read_bytes() == whole


async def test_an_unreadable_topic_id_is_an_error_and_deletes_nothing(tmp_path, monkeypatch):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)

    async with Broker(tmp_path) as broker:

        def unreadable(_):
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr("tidelog.storage.checkpoints.read_topic_id", unreadable)
            with pytest.raises(KafkaStorageError, match="cannot be read: Input/output error"):
                broker.store.topic_id("t", 0)
        assert broker.node.partitions.get("t", 0).log_end_offset == 1


async def test_a_pass_that_breaks_off_loses_no_failure(tmp_path, monkeypatch):
    async with Broker(tmp_path) as broker:
        reconciler = broker.node.topics.reconciler
        with monkeypatch.context() as patched:

            def full(*_, **__):
                raise KafkaStorageError("the disk is full")

            patched.setattr(broker.store, "create_partition", full)
            await broker.metadata.create_topic("a", partitions=1, configs={})
            await reconciler.reconcile()
            topic = broker.metadata.image.topics["a"]
            assert reconciler.failure(topic.topic_id) is not None

            def broken(*_):
                raise RuntimeError("something nobody thought of")

            patched.setattr(broker.node.settings, "served", broken)
            await broker.metadata.create_topic("b", partitions=1, configs={})
            with pytest.raises(RuntimeError):
                await reconciler.one_pass()
            assert reconciler.failure(topic.topic_id) is not None
        await reconciler.one_pass()
        assert reconciler.failure(topic.topic_id) is None
        assert broker.logs("a") == [0]


async def test_a_late_deletion_leaves_the_offsets_of_the_new_topic(tmp_path, monkeypatch):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
        reconciler = broker.node.topics.reconciler
        old = broker.metadata.image.topics["t"]
        with monkeypatch.context() as patched:

            def fails(*_):
                raise KafkaStorageError("the disk fails")

            patched.setattr(broker.store, "delete_partition", fails)
            await broker.metadata.delete_topic("t")
            await reconciler.reconcile()
            assert reconciler.failure(old.topic_id) is not None
            await broker.metadata.create_topic("t", partitions=1, configs={})
        await reconciler.one_pass()
        assert reconciler.failure(old.topic_id) is None
        assert "t" not in reconciler.deleted


@pytest.mark.parametrize("part", ["store.delete_partition", "metadata.deletion_done"])
async def test_a_deletion_that_fails_half_way_wakes_those_who_wait_for_records(
    tmp_path, monkeypatch, part
):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
        partition = broker.node.partitions.get("t", 0)
        waiting = asyncio.create_task(
            wait_for_bytes(broker.node.purgatory, [partition], 1, timeout_s=60)
        )
        await asyncio.sleep(0)

        def fails(*_):
            raise KafkaStorageError("injected")

        holder, _, name = part.partition(".")
        with monkeypatch.context() as patched:
            patched.setattr(getattr(broker, holder), name, fails)
            with pytest.raises(KafkaStorageError, match="injected"):
                await broker.node.topics.delete("t")
        assert await asyncio.wait_for(waiting, 20), "woken, and not by its own timer"


def _failing_once(step):
    calls = []

    def fails_once(*arguments, **named):
        calls.append(arguments)
        if len(calls) == 1:
            raise KafkaStorageError("too many open files")
        return step(*arguments, **named)

    return fails_once


async def _while_a_later_pass_succeeds(broker, change):
    """Start a change whose logs cannot be made; they can when its withdrawal may begin."""
    controller, reconciler = broker.node.topics.admin, broker.node.topics.reconciler
    broker.store.create_partition = _failing_once(broker.store.create_partition)
    changing = asyncio.create_task(change)
    async with asyncio.timeout(20):
        while not any(map(reconciler.failure, broker.metadata.image.topics_by_id)):  # noqa: ASYNC110 - it looks at what has no event
            await asyncio.sleep(0)
        async with controller.order:  # another request is being decided
            await reconciler.finish()
            await reconciler.one_pass()
            broker.node.appends.append(broker.node.partitions.get("t", 1), asking.batch_of("v"), 7)
        return await changing


async def test_a_creation_that_a_later_pass_completes_is_not_withdrawn(tmp_path):
    async with Broker(tmp_path) as broker:
        await _while_a_later_pass_succeeds(broker, broker.node.topics.create("t", partitions=2))
        assert broker.metadata.image.topics["t"].partitions == 2
        assert broker.node.partitions.get("t", 1).log_end_offset == 1


async def test_added_partitions_that_a_later_pass_completes_are_not_withdrawn(tmp_path):
    async with Broker(tmp_path) as broker:
        await _create_and_fill(broker)
        change = broker.node.topics.add_partitions("t", lambda _: 3)
        await _while_a_later_pass_succeeds(broker, change)
        assert broker.metadata.image.topics["t"].partitions == 3
        assert broker.node.partitions.get("t", 1).log_end_offset == 1


async def test_a_change_at_the_moment_when_a_pass_ends_begins_another_pass(tmp_path):
    """The change is made after the pass has ended and before anybody has been told so.

    That moment lies within the reconciler: no other name but its own leads to it.
    """
    async with Broker(tmp_path) as broker:
        first = await broker.node.topics.create("first", partitions=1)
        reconciler = broker.node.topics.reconciler
        loop = asyncio.get_running_loop()
        passing = loop.create_future()

        async def change_when_the_pass_ends():
            await passing
            assert reconciler._pass.done()
            image = broker.metadata.image
            broker.metadata.image = image._replace(revision=image.revision + 1)
            await reconciler.reconcile()

        changing = loop.create_task(change_when_the_pass_ends())
        await asyncio.sleep(0)
        start_leader_epochs = reconciler._start_leader_epochs

        async def last_step(topic, before):
            await start_leader_epochs(topic, before)
            passing.set_result(None)

        reconciler._start_leader_epochs = last_step
        reconciler._failures[first.topic_id] = KafkaStorageError("it is tried again")
        await reconciler.one_pass()
        reconciler._start_leader_epochs = start_leader_epochs
        await changing
        assert reconciler._applied.revision == broker.metadata.image.revision
