"""Directories and metadata that belong to another broker, another cluster, or to several brokers."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from uuid import UUID

import pytest

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tidelog.broker.lifecycle.directories import Directories
from tidelog.broker.metadata.names import new_id, written_id
from tidelog.broker.metadata.records import NO_LEADER, UNKNOWN_EPOCH, PartitionRecord, put_partition
from tidelog.process import BrokerFailed
from tidelog.storage.directory.registration_file import OWN_STORE, read_state, write_state


def contents(directory):
    return {
        path: path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def refused(directory, settings, match):
    """Starts a broker that must be refused, and must leave its directory as it was."""
    before = contents(directory)
    with pytest.raises(BrokerFailed, match=match):
        Subject(directory, settings)
    assert contents(directory) == before


@pytest.fixture
def stopped(brokers):
    """Two brokers that have stopped; the first has the metadata beside its logs."""
    brokers.start(1, 2)
    brokers.add_topic("t", [1, 2])
    brokers.eventually(lambda image: "t" in image.topics)
    for broker in (1, 2):
        assert brokers[broker].stop() == 0
    return brokers


@pytest.mark.slow
def test_directories_and_metadata_of_others_are_refused(stopped, tmp_path):
    cluster, alone = stopped.image().cluster_id, tmp_path / "alone"
    with Subject(alone):
        pass
    of_another = {"node.id": 2, "metadata.store": f"sqlite:{tmp_path}/other.sqlite"}
    for directory, settings, match in (
        (
            stopped[2].log_dir,
            of_another,
            f"2 of cluster {cluster}, and this is cluster .*another volume.*=sqlite:PATH or etcd://",
        ),
        (
            stopped[2].log_dir,
            stopped.settings(3),
            r"broker 2 of this cluster: start it with --set node.id=2 \(KAFKA_NODE_ID=2 of a",
        ),
        (
            stopped[2].log_dir,
            {},
            f"belongs to broker 2 of cluster {cluster}.*--set metadata.store",
        ),
        (
            alone,
            stopped.settings(3),
            f"has metadata of its own.*'tidelog serve --log-dirs {alone}' serves that one",
        ),
    ):
        refused(directory, settings, match)
    stopped.path.rename(stopped[1].log_dir / "tidelog.sqlite")
    with pytest.raises(BrokerFailed, match=r"broker 2 has replicas of 1 partition;.*--brokers 2"):
        Subject(stopped[1].log_dir)


@pytest.mark.slow
def test_one_of_several_can_be_alone_when_nobody_else_has_replicas_and_go_back(brokers):
    directory = brokers.directory / "broker-1"
    brokers.path = directory / "tidelog.sqlite"
    brokers.start(1)
    brokers.add_topic("t", [1])
    assert brokers[1].stop() == 0
    state = read_state(directory)
    with Subject(directory) as alone:
        assert brokers.image().topics["t"].assignments[0].leader == 1
        assert state.store == f"sqlite:{brokers.path}"
        assert read_state(directory) == state._replace(is_stopped=False, store=OWN_STORE)
        assert alone.stop() == 0
    assert read_state(directory) == state._replace(store=OWN_STORE)
    brokers.start(1)
    assert brokers.image().registrations[1].record.is_clean


@pytest.mark.slow
def test_one_of_several_that_is_alone_deletes_what_is_due(brokers):
    directory = brokers.directory / "broker-1"
    brokers.path = directory / "tidelog.sqlite"
    brokers.start(1)
    brokers.add_topic("t", [1])
    with brokers[1].connect() as connection:
        batch = asking.batch_of("a")
        eventually(lambda: asking.produce(connection, "t", batch)["base_offset"] == 0)
    assert brokers[1].stop() == 0
    due = {"log.retention.ms": 1, "log.retention.check.interval.ms": 100}
    with Subject(directory, due) as alone, alone.connect() as connection:
        assert eventually(lambda: asking.list_offset(connection, "t", -2)["offset"] == 1)
        assert asking.produce(connection, "t", batch)["base_offset"] == 1
        assert alone.stop() == 0


class TestUseOutsideOfASession:
    """What `Directories` writes when a broker that was one of several is alone for a while."""

    @pytest.fixture
    def written(self, tmp_path):
        directories = Directories([tmp_path], "boot-1", "c", 1, "sqlite:a")
        directories.begin("a", "")
        return tmp_path

    def used(self, path, boot_id):
        directories = Directories([path], boot_id, "c", 1, OWN_STORE)
        directories.note_use()
        return directories

    def test_a_kill_on_the_same_boot_loses_nothing(self, written):
        self.used(written, "boot-1")
        state = read_state(written)
        assert (state.incarnation, state.boot_id, state.is_stopped) == ("a", "boot-1", False)

    def test_a_power_loss_before_it_is_not_forgotten(self, written):
        directories = self.used(written, "boot-2")
        directories.note_end(is_flushed=True, failed=())
        state = read_state(written)
        assert (state.incarnation, state.previous, state.is_stopped) == ("", "", True)

    def test_a_stop_in_order_is_used_after_a_new_boot(self, written):
        write_state(written, read_state(written)._replace(is_stopped=True))
        self.used(written, "boot-2").note_end(is_flushed=True, failed=())
        state = read_state(written)
        assert (state.incarnation, state.boot_id, state.is_stopped) == ("a", "boot-2", True)

    def test_a_log_that_failed_is_written_down(self, written):
        self.used(written, "boot-1").note_end(is_flushed=False, failed=[written])
        state = read_state(written)
        assert state.has_failed
        assert not state.is_stopped


class TestAnotherSession:
    """What `Directories` says when a process registers again, some logs of which have failed."""

    def test_a_log_that_failed_stays_noted_and_the_start_is_unclean(self, tmp_path):
        directories = Directories([tmp_path], "boot-1", "c", 1, "sqlite:a")
        directories.begin("a", "")
        directories.note_failure(tmp_path)
        directories.begin("b", "")
        assert read_state(tmp_path).has_failed
        assert [state.has_failed for state in directories.states] == [True]

    def test_it_counts_though_the_disk_did_not_take_it(self, tmp_path, monkeypatch):
        def fails(*_args):
            raise OSError("no write")

        directories = Directories([tmp_path], "boot-1", "c", 1, "sqlite:a")
        directories.begin("a", "")
        with monkeypatch.context() as patched:
            patched.setattr("tidelog.broker.lifecycle.directories.write_state", fails)
            with pytest.raises(OSError, match="no write"):
                directories.note_failure(tmp_path)
        assert [state.has_failed for state in directories.states] == [True]

    def test_the_next_process_has_recovered_its_logs(self, tmp_path):
        Directories([tmp_path], "boot-1", "c", 1, "sqlite:a").begin("a", "")
        write_state(tmp_path, read_state(tmp_path)._replace(has_failed=True))
        Directories([tmp_path], "boot-1", "c", 1, "sqlite:a").begin("b", "")
        assert not read_state(tmp_path).has_failed


@pytest.mark.slow
def test_a_log_of_no_topic_is_set_aside_at_the_start(brokers):
    brokers.start(1, 2)
    topic = brokers.add_topic("t", [2, 1])
    log_dir = brokers[2].log_dir
    assert eventually((log_dir / "t-0" / "partition.metadata").exists)
    with brokers[2].connect() as connection:
        assert eventually(
            lambda: asking.produce(connection, "t", asking.batch_of("b"))["error_code"] == 0
        )
    brokers[2].kill()
    shutil.copytree(log_dir / "t-0", log_dir / "copy-0")  # of an id that another name has
    shutil.copytree(log_dir / "t-0", log_dir / "gone-3")
    stated = log_dir / "gone-3" / "partition.metadata"
    stated.write_text(f"version: 0\ntopic_id: {written_id(new_id())}\n")
    stated = stated.read_text()
    shutil.copytree(log_dir / "t-0", log_dir / "unnamed-0")
    (log_dir / "unnamed-0" / "partition.metadata").unlink()

    brokers[2].restart()
    for name in ("copy-0", "gone-3"):
        assert not (log_dir / name).exists()
        (away,) = log_dir.glob(f"{name}.*-stray")
        assert list(away.glob("*.log"))
    assert (away / "partition.metadata").read_text() == stated
    assert len(brokers[2].lines("stray log renamed")) == 2
    assert (log_dir / "unnamed-0").exists()
    assert (log_dir / "t-0").exists()
    assert brokers.image().topics["t"].topic_id == topic.topic_id


@pytest.mark.slow
def test_partitions_whose_epoch_only_the_log_knows_are_led_by_the_broker_that_was_alone(brokers):
    """As an older tidelog's metadata are after their migration."""
    log_dir = brokers.directory / "broker-1"
    with Subject(log_dir, {}) as alone, alone.connect() as connection:
        asking.create(connection, "t", partitions=2)
        assert asking.produce(connection, "t", asking.batch_of("b"))["error_code"] == 0
        assert alone.stop() == 0
    brokers.path = log_dir / "tidelog.sqlite"
    unclaimed = put_partition(UUID(int=0), 0, PartitionRecord((), (), NO_LEADER, UNKNOWN_EPOCH))
    with closing(sqlite3.connect(brokers.path, isolation_level=None)) as db:
        db.execute("UPDATE kv SET value = ? WHERE key LIKE 'partition/%'", (unclaimed.value,))
    brokers.start(1, 2)
    led = brokers.eventually(
        lambda image: [each.leader for each in image.topics["t"].assignments] == [1, 1]
    )
    assert led
    with brokers[1].connect() as connection:
        assert eventually(
            lambda: asking.produce(connection, "t", asking.batch_of("c"))["base_offset"] == 1
        )
