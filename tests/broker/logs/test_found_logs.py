"""Logs that no metadata knows are served as they are, and nothing of them is ever deleted unasked."""

import shutil
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.logs.test_crash_points import Crashes
from tests.broker.logs.test_interrupted_changes import Broker
from tidelog.broker.logs.found_logs import KEEP
from tidelog.broker.logs.maintenance.retention_rounds import delete_due
from tidelog.broker.settings import is_internal
from tidelog.protocol.errors import KafkaStorageError
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.layout import Record
from tidelog.storage import checkpoints

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
OLD = "f-0.10.2-LogAppendTime-none-c0901"
OLDER = "f-0.9.0.1-CreateTime-none-c0901"


def bring(directory, partition, name):
    """Copy one of Kafka's directories in under a name."""
    target = directory / name
    shutil.copytree(VECTORS / partition, target)
    return target


def contents(directory):
    """What is in a directory's logs."""
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


async def _fill(broker, topic="t", partitions=1, **configs):
    await broker.node.topics.create(topic, partitions=partitions, configs=configs)
    for index in range(partitions):
        broker.node.appends.append(
            broker.node.partitions.get(topic, index), asking.batch_of(f"v{index}"), 7
        )


def topic_of(broker, name="t"):
    return broker.metadata.image.topics[name]


async def test_a_log_of_an_old_kafka_goes_on_in_its_format_and_time_type(tmp_path):
    bring(tmp_path, f"{OLD}-0", "stamped-0")
    bring(tmp_path, f"{OLDER}-0", "older-0")

    async with Broker(tmp_path) as broker:
        stamped, older = topic_of(broker, "stamped"), topic_of(broker, "older")
        assert dict(stamped.configs) == {
            **KEEP,
            "message.format.version": "0.10.2",
            "message.timestamp.type": "LogAppendTime",
        }
        assert dict(older.configs) == {**KEEP, "message.format.version": "0.9.0"}
        partition = broker.node.partitions.get("older", 0)
        assert partition.config.target_magic == 0
        assert partition.log_end_offset == 200
        await broker.node.appends.append(partition, asking.batch_of("new"), 7)
        assert partition.log_end_offset == 201
        topic_id = stamped.topic_id
    assert checkpoints.read_topic_id(tmp_path / "stamped-0") == topic_id

    async with Broker(tmp_path) as broker:
        assert topic_of(broker, "stamped").topic_id == topic_id
        assert broker.node.partitions.get("older", 0).log_end_offset == 201


async def test_names_ids_and_partitions_are_those_of_the_directories(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    async with Broker(source) as broker:
        await _fill(broker, partitions=3)
    here = tmp_path / "here"
    shutil.copytree(source / "t-2", here / "t-2")  # the others are on other machines
    topic_id = checkpoints.read_topic_id(here / "t-2")

    async with Broker(here) as broker:
        assert (topic_of(broker).topic_id, topic_of(broker).partitions) == (topic_id, 3)
        ends = [broker.node.partitions.get("t", index).log_end_offset for index in range(3)]
        assert ends == [0, 0, 1]
        assert {broker.store.topic_id("t", index) for index in range(3)} == {topic_id}


async def test_a_new_producer_gets_no_id_that_the_logs_remember(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    async with Broker(source) as broker:
        await broker.node.topics.create("t", partitions=1)
        for _ in range(3):
            producer_id = await broker.node.producer_ids.next()
        data = build(
            [Record(0, 1_000, None, b"a")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        broker.node.appends.append(broker.node.partitions.get("t", 0), data, 7)
    here = tmp_path / "here"
    shutil.copytree(source / "t-0", here / "t-0")

    async with Broker(here) as broker:
        new_id = await broker.node.producer_ids.next()
        assert new_id > producer_id
        data = build(
            [Record(0, 1_000, None, b"b")], producer_id=new_id, producer_epoch=0, base_sequence=0
        )
        await broker.node.appends.append(broker.node.partitions.get("t", 0), data, 7)
        assert broker.node.partitions.get("t", 0).log_end_offset == 2


@pytest.mark.parametrize(
    "policy", [{"retention.ms": "1"}, {"retention.bytes": "1"}, {"retention.ms": None}]
)
async def test_nothing_is_deleted_until_somebody_sets_a_policy(tmp_path, policy):
    """The records are of 1970 and 2017, and the broker's own settings keep a millisecond, a byte."""
    before = contents(bring(tmp_path, f"{OLDER}-0", "t-0"))

    async with Broker(tmp_path) as broker:
        broker.node.ready = True
        short = {
            "log.retention.ms": "1",
            "log.retention.bytes": "1",
            "log.cleanup.policy": "compact,delete",
        }
        await broker.node.topics.alter_broker(short, validate_only=False)
        broker.node.clock.set(2**42)
        partition = broker.node.partitions.get("t", 0)
        delete_due(broker.node)
        assert contents(partition.directory) == before
        assert partition.config.cleanup_policy == ("delete",) or not partition.config.is_compacted
        await broker.node.topics.alter("t", policy, validate_only=False)
        delete_due(broker.node)
        assert partition.log_start_offset > 0  # somebody has said so


async def test_a_copy_under_another_name_is_a_topic_of_its_own(tmp_path):
    async with Broker(tmp_path) as broker:
        await _fill(broker)
    shutil.copytree(tmp_path / "t-0", tmp_path / "copy-0")

    for _ in range(2):
        async with Broker(tmp_path) as broker:
            assert topic_of(broker, "copy").topic_id != topic_of(broker, "t").topic_id
            assert broker.node.partitions.get("copy", 0).log_end_offset == 1
            assert broker.store.topic_id("copy", 0) == topic_of(broker, "copy").topic_id
    assert not list(tmp_path.glob("*-stray"))


async def _adopted_after_each_crash(tmp_path, source):
    """Start a broker on `source`, and one on each state that a crash of its start would leave.

    Returns what each has of the topic `copy`: the end of each partition, without repetitions.
    """
    copies, found = tmp_path / "copies", []
    copies.mkdir()
    crashes = []
    async with Broker(source, lambda broker: crashes.append(Crashes(broker, copies))):
        crashes[0].copy()
    assert len(crashes[0].copies) > 4
    for copy in crashes[0].copies:
        for _ in range(2):
            async with Broker(copy) as broker:
                topic = topic_of(broker, "copy")
                assert topic.topic_id != topic_of(broker).topic_id
                indexes = range(topic.partitions)
                ids = {broker.store.topic_id("copy", index) for index in indexes}
                assert ids == {topic.topic_id}
                found.append(
                    [broker.node.partitions.get("copy", i).log_end_offset for i in indexes]
                )
                assert [broker.node.partitions.get("t", i).log_end_offset for i in range(3)] == [
                    1
                ] * 3
    return [each for at, each in enumerate(found) if not at or each != found[at - 1]]


@pytest.mark.slow
@pytest.mark.parametrize("nameless", [(), (0,), (2,), (0, 1, 2)])
async def test_an_adoption_cut_short_is_finished_by_the_next_start(tmp_path, nameless):
    source = tmp_path / "source"
    source.mkdir()
    async with Broker(source) as broker:
        await _fill(broker, partitions=3)
    for index in range(3):
        shutil.copytree(source / f"t-{index}", source / f"copy-{index}")
        if index in nameless:
            (source / f"copy-{index}" / "partition.metadata").unlink()

    assert await _adopted_after_each_crash(tmp_path, source) == [[1, 1, 1]]
    assert not list(tmp_path.rglob("*-stray"))


@pytest.mark.slow
@pytest.mark.parametrize("stranger", [0, 1, 2])
async def test_an_adoption_cut_short_mixes_no_other_topic_in(tmp_path, stranger):
    """Two partitions are copies of a topic that is served, and one is of a topic of its own."""
    source, other = tmp_path / "source", tmp_path / "other"
    source.mkdir()
    other.mkdir()
    async with Broker(source) as broker:
        await _fill(broker, partitions=3)
    async with Broker(other) as broker:
        await _fill(broker)
    for index in range(3):
        of = other / "t-0" if index == stranger else source / f"t-{index}"
        shutil.copytree(of, source / f"copy-{index}")

    for ends in await _adopted_after_each_crash(tmp_path, source):
        assert ends in ([int(i != stranger) for i in range(3)], [1, 1])
    for copy in (tmp_path / "copies").iterdir():
        (stray,) = copy.glob(f"copy-{stranger}.*-stray")
        assert contents(stray) == contents(other / "t-0")


async def test_a_log_of_another_topic_is_set_aside_and_never_removed(tmp_path):
    """Somebody put a directory in the place of ours; and one partition disagrees with the others."""
    other = tmp_path / "other"
    other.mkdir()
    async with Broker(other) as broker:
        await _fill(broker)
    here = tmp_path / "here"
    here.mkdir()
    async with Broker(here) as broker:
        await _fill(broker, partitions=2)
    shutil.rmtree(here / "t-1")
    shutil.copytree(other / "t-0", here / "t-1")
    brought = contents(here / "t-1")

    async def the_second_is_empty():
        async with Broker(here) as broker:
            assert broker.node.partitions.get("t", 0).log_end_offset == 1
            assert broker.node.partitions.get("t", 1).log_end_offset == 0

    for _ in range(2):
        await the_second_is_empty()
        (stray,) = here.glob("t-1.*-stray")
        assert contents(stray) == brought
    (here / "tidelog.sqlite").unlink()
    shutil.rmtree(here / "t-1")
    stray.rename(here / "t-2")
    (here / "t-1").mkdir()
    await the_second_is_empty()
    (stray,) = here.glob("t-2.*-stray")
    assert contents(stray) == brought


async def test_a_backup_of_a_deleted_topic_that_is_brought_back_is_served(tmp_path):
    async with Broker(tmp_path) as broker:
        await _fill(broker)
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path / "t-0", backup)
    async with Broker(tmp_path) as broker:
        await broker.node.topics.delete("t")
    backup.rename(tmp_path / "t-0")

    async with Broker(tmp_path) as broker:
        assert broker.node.partitions.get("t", 0).log_end_offset == 1


async def test_a_creation_that_fails_removes_nothing_that_lay_there(tmp_path):
    before = contents(bring(tmp_path, f"{OLDER}-0", "t-0"))

    async with Broker(tmp_path) as broker:
        forgotten = await broker.metadata.delete_topic("t")
        await broker.metadata.deletion_done(forgotten.topic_id)  # so the log is nobody's
        (tmp_path / "t-1").mkdir()  # in the way
        with pytest.raises(KafkaStorageError, match="t-1 cannot be created"):
            await broker.node.topics.create("t", partitions=2)
        assert "t" not in broker.metadata.image.topics
    (stray,) = tmp_path.glob("t-0.*-stray")
    assert contents(stray) == before


async def test_what_is_no_topic_is_left_alone(tmp_path):
    for name in ("__cluster_metadata-0", "t-0.0123456789abcdef0123456789abcdef-stray", "t-future"):
        bring(tmp_path, f"{OLDER}-0", name)
    (tmp_path / "backup-20240131").mkdir()
    (tmp_path / "backup-20240131" / "notes.txt").write_text("mine")
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    async with Broker(tmp_path) as broker:
        assert dict(broker.metadata.image.topics) == {}
    assert {path: path.read_bytes() for path in before} == before


async def test_kafkas_own_topics_are_served_as_internal(tmp_path):
    bring(tmp_path, f"{OLD}-0", "__consumer_offsets-0")

    async with Broker(tmp_path) as broker:
        assert dict(topic_of(broker, "__consumer_offsets").configs) == dict(KEEP)
        assert is_internal("__consumer_offsets")
        assert broker.node.partitions.get("__consumer_offsets", 0).log_end_offset == 200


async def test_a_log_beyond_the_partitions_of_its_topic_is_never_cleaned(tmp_path):
    """It lies beside a topic of that name whose settings it has nothing to do with."""
    day_ms = 86_400_000
    async with Broker(tmp_path) as broker:
        await _fill(broker, **{"retention.ms": "1"})
    brought = bring(tmp_path, f"{OLD}-0", "t-1")
    kept = contents(brought)

    async with Broker(tmp_path) as broker:
        broker.node.ready = True
        broker.node.clock.step(400 * 365 * day_ms)
        deleted = delete_due(broker.node, asked=True).deleted
        assert {(gone.topic, gone.partition) for gone in deleted} == {("t", 0)}
    assert contents(brought) == kept
