"""Log directories: locks, clean stops, several of them, creating and deleting partitions."""

import errno
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from tests.storage.conftest import kill
from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import KafkaStorageError, TopicAlreadyExists
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.directory.store import LogDirectoryError, LogStore

CONFIG = TopicConfig()
ID = uuid.UUID(int=99)
AT = {"now_ms": 5, "produce_version": 9}


@pytest.fixture
def make_store(tmp_path):
    made = []

    def make(*names, **more):
        store = LogStore(
            [tmp_path / name for name in names or ("data",)], default_config=CONFIG, **more
        )
        made.append(store)
        return store

    yield make
    for store in made:
        kill(store)


def opened(store, now=0):
    store.open(now)
    return store


def test_a_new_directory_is_made_and_locked(make_store, tmp_path):
    opened(make_store("a/b"))
    assert (tmp_path / "a/b/.lock").exists()
    with pytest.raises(LogDirectoryError, match=r"a/b is in use: another broker holds \.lock"):
        opened(make_store("a/b"))


def test_a_lock_alone_changes_nothing(make_store, tmp_path):
    store = opened(make_store())
    store.create_partition("t", ID, 0, CONFIG, 0).append(build([Record(0, 0, b"k", b"v")]), **AT)
    store.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    store.lock()
    with pytest.raises(LogDirectoryError, match="is in use"):
        make_store().lock()
    store.close()
    assert {path: path.read_bytes() for path in before} == before
    assert opened(store).partition("t", 0).log_end_offset == 1, "the lock is free again"
    with pytest.raises(LogDirectoryError, match="is in use"):
        make_store().lock()


def test_another_process_is_kept_out(make_store, tmp_path):
    opened(make_store())
    code = (
        "import sys; from pathlib import Path; from tidelog.storage.directory.store import LogStore;"
        "from tidelog.config.topic import TopicConfig;"
        "LogStore([Path(sys.argv[1])], default_config=TopicConfig()).open(0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": "."},
    )
    assert run.returncode == 1
    assert f"log directory {tmp_path / 'data'} is in use" in run.stderr


def test_the_lock_goes_with_the_store(make_store):
    store = opened(make_store())
    store.close()
    again = opened(make_store())
    kill(again)
    opened(make_store())


def test_a_failed_open_lets_the_other_directories_go(make_store, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(LogDirectoryError, match="file cannot be used"):
        opened(make_store("good", "file"))
    opened(make_store("good"))


def test_partitions_come_back_with_their_ids(make_store, tmp_path):
    store = opened(make_store())
    for index in range(3):
        store.create_partition("a-b", ID, index, CONFIG, 0)
    assert store.partition("a-b", 3) is None
    assert store.partition("a", 0) is None
    with pytest.raises(TopicAlreadyExists, match="a-b-1 exists"):
        store.create_partition("a-b", ID, 1, CONFIG, 0)
    store.close()
    (tmp_path / "data/meta.properties").write_text("version=1\n")
    (tmp_path / "data/stray").mkdir()
    store = opened(make_store())
    assert store.names() == [("a-b", 0), ("a-b", 1), ("a-b", 2)]
    assert store.opened() == []
    assert store.partition("a-b", 2).topic_id == ID
    assert store.partition("a-b", 2) is store.partition("a-b", 2)
    assert len(store.opened()) == 1
    assert [p.index for p in store.partitions()] == [0, 1, 2]


def test_a_broken_topic_id_is_none(make_store, tmp_path):
    opened(make_store()).create_partition("t", ID, 0, CONFIG, 0)
    (tmp_path / "data/t-0/partition.metadata").write_text("?")
    store = make_store()
    (tmp_path / "data/.lock").unlink()
    assert opened(store).partition("t", 0).topic_id is None


def test_partitions_spread_over_the_directories(make_store, tmp_path):
    store = opened(make_store("a", "b"))
    for index in range(6):
        store.create_partition("t", ID, index, CONFIG, 0)
    assert len(list((tmp_path / "a").glob("t-*"))) == len(list((tmp_path / "b").glob("t-*"))) == 3
    store.close()
    store = opened(make_store("a", "b"))
    assert len(store.names()) == 6
    store.close()
    (tmp_path / "a/t-9").mkdir()
    (tmp_path / "b/t-9").mkdir()
    with pytest.raises(LogDirectoryError, match=r"t-9 is in .*/b and in .*/a"):
        opened(make_store("a", "b"))


def test_deleting(make_store, tmp_path):
    store = opened(make_store())
    for index in range(2):
        store.create_partition("t", ID, index, CONFIG, 0)
    store.create_partition("u", ID, 0, CONFIG, 0)
    store.checkpoint()
    store.delete_topic("t")
    store.delete_topic("t")
    assert store.names() == [("u", 0)]
    assert store.partition("t", 0) is None
    assert [p.name for p in (tmp_path / "data").iterdir() if p.is_dir()] == ["u-0"]
    store.create_partition("t", uuid.UUID(int=5), 0, CONFIG, 0)
    store.close()
    text = (tmp_path / "data/recovery-point-offset-checkpoint").read_text()
    assert text == "0\n2\nt 0 0\nu 0 0\n"
    assert opened(make_store()).partition("t", 0).topic_id == uuid.UUID(int=5)


def test_an_interrupted_deletion_is_finished(make_store, tmp_path):
    store = opened(make_store())
    store.create_partition("t", ID, 0, CONFIG, 0)
    store.close()
    (tmp_path / "data/t-0").rename(tmp_path / f"data/t-0.{ID.hex}-delete")
    assert opened(make_store()).names() == []
    assert not list((tmp_path / "data").glob("*-delete"))


def test_a_partition_that_cannot_be_made_leaves_nothing(make_store, tmp_path, monkeypatch):
    store = opened(make_store())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidelog.storage.checkpoints.write_topic_id", full)
    with pytest.raises(KafkaStorageError, match="t-0 cannot be created"):
        store.create_partition("t", ID, 0, CONFIG, 0)
    assert store.names() == []
    assert not list((tmp_path / "data").glob("t-*"))
    monkeypatch.undo()
    store.create_partition("t", ID, 0, CONFIG, 0)


def test_settings_reach_open_and_later_partitions(make_store):
    store = opened(make_store())
    one = store.create_partition("t", ID, 0, CONFIG, 0)
    changed = TopicConfig(segment_bytes=1000)
    store.set_config("t", changed)
    assert one.config is changed
    store.close()
    store = make_store()
    store.open(0, {"t": changed})
    assert store.partition("t", 0).config is changed


def test_checkpoints_of_partitions_that_nobody_opened_are_kept(make_store, tmp_path):
    store = opened(make_store())
    for index in range(2):
        partition = store.create_partition("t", ID, index, CONFIG, 0)
        partition.flush()
    path = tmp_path / "data/recovery-point-offset-checkpoint"
    store.close()
    watermarks = tmp_path / "data/replication-offset-checkpoint"
    path.write_text("0\n2\nt 0 0\nt 1 77\n")
    watermarks.write_text("0\n2\nt 0 0\nt 1 70\n")
    store = opened(make_store())
    store.partition("t", 0)
    store.checkpoint()
    assert path.read_text() == "0\n2\nt 0 0\nt 1 77\n"
    assert watermarks.read_text() == "0\n2\nt 0 0\nt 1 70\n"


def test_a_directory_in_the_way_is_left_alone(make_store, tmp_path):
    store = opened(make_store())
    (tmp_path / "data/t-0").mkdir()
    (tmp_path / "data/t-0/precious").write_text("here before")
    with pytest.raises(KafkaStorageError, match="t-0 cannot be created"):
        store.create_partition("t", ID, 0, CONFIG, 0)
    assert (tmp_path / "data/t-0/precious").exists()
    assert store.names() == []


def test_a_checkpoint_after_the_stop_changes_nothing(make_store, tmp_path):
    store = opened(make_store())
    store.create_partition("t", ID, 0, CONFIG, 0)
    store.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "data").glob("*checkpoint")}
    store.checkpoint()
    after = {path.name: path.read_bytes() for path in (tmp_path / "data").glob("*checkpoint")}
    assert after == before
    with pytest.raises(KafkaStorageError, match="closed"):
        store.create_partition("t", ID, 1, CONFIG, 0)


def test_threads_may_create_delete_and_checkpoint_at_once(make_store):
    store = opened(make_store())
    problems = []

    def work(name):
        try:
            for index in range(8):
                store.create_partition(name, ID, index, CONFIG, 0)
                store.partition(name, index)
                if index % 3 == 0:
                    store.checkpoint()
                if index % 2:
                    store.delete_partition(name, index)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert store.names() == [(name, index) for name in "abcd" for index in (0, 2, 4, 6)]


def test_one_bad_partition_does_not_keep_the_others_from_being_durable(
    make_store, tmp_path, monkeypatch
):
    store = opened(make_store())
    data = build([Record(0, 5, b"k", b"v", ())])
    for index in range(3):
        store.create_partition("t", ID, index, CONFIG, 0)
        store.partition("t", index).append(data, now_ms=1, produce_version=9)
    real = files.sync

    def broken(path):
        if "/t-1" in str(path):
            raise OSError(5, "Input/output error")
        real(path)

    monkeypatch.setattr(files, "sync", broken)
    with pytest.raises(KafkaStorageError, match="t-1: the log cannot be made durable"):
        store.checkpoint()
    points = (tmp_path / "data/recovery-point-offset-checkpoint").read_text().splitlines()
    assert points[2:] == ["t 0 1", "t 1 0", "t 2 1"]
    with pytest.raises(KafkaStorageError, match="t-1: the log cannot be made durable"):
        store.close()
    assert not (tmp_path / "data/.kafka_cleanshutdown").exists()
    monkeypatch.undo()
    store = opened(make_store())
    assert [store.partition("t", index).log_end_offset for index in range(3)] == [1, 1, 1]


class Together(files.System):
    """A disk whose first syncs are done only when two have been asked for at once."""

    def __init__(self):
        self.first = threading.Lock()  # taken by the first for good; who finds it taken is another
        self.both = threading.Event()
        self.met = False

    def sync(self, number):
        if not self.first.acquire(blocking=False):
            self.both.set()
        else:
            self.met = self.both.wait(60)
            if not self.met:
                raise OSError(errno.EIO, "nobody else syncs")
        super().sync(number)


@pytest.mark.parametrize("work", ["checkpoint", "close"])
def test_many_partitions_are_made_durable_several_at_once(make_store, request, work):
    store = opened(make_store())
    for index in range(40):
        store.create_partition("t", ID, index, CONFIG, 0)
        store.partition("t", index).append(build([Record(0, 5, None, b"x", ())]), **AT)
    disk = Together()
    before = files.use(disk)
    request.addfinalizer(lambda: files.use(before))
    getattr(store, work)()
    assert disk.met
    if work == "close":
        again = opened(make_store())
        assert [p.log_end_offset for p in again.partitions()] == [1] * 40


def test_partitions_that_cannot_be_closed_hold_up_no_others(make_store, tmp_path):
    store = opened(make_store())
    for index in range(40):
        store.create_partition("t", ID, index, CONFIG, 0)
        store.partition("t", index).append(build([Record(0, 5, None, b"x", ())]), **AT)
    (tmp_path / "data/t-7/partition.times.tmp").mkdir()  # where a file is to be made
    with pytest.raises(KafkaStorageError, match=r"^t-7: "):
        store.close()
    assert not (tmp_path / "data/.kafka_cleanshutdown").exists()
    (tmp_path / "data/t-7/partition.times.tmp").rmdir()
    again = opened(make_store())
    assert [p.log_end_offset for p in again.partitions()] == [1] * 40


def test_a_checkpoint_of_a_deleted_partition_is_not_believed_by_a_new_one(make_store, tmp_path):
    """Another process wrote it, and nothing else is left to be written to it."""
    data = tmp_path / "data"
    store = opened(make_store())
    store.create_partition("t", ID, 0, CONFIG, 0)
    store.close()
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    (data / "max-latency-checkpoint").write_text("0\n1\nt 0 7000\n")
    store = opened(make_store())
    store.delete_partition("t", 0)
    store.checkpoint()
    created = store.create_partition("t", uuid.UUID(int=5), 0, CONFIG, 0)
    assert created.cleaned_offset is None
    store.checkpoint()
    store.close()
    again = opened(make_store()).partition("t", 0)
    assert again.cleaned_offset is None
    assert again.arrivals.longest_delay_ms is None


def test_a_partition_created_for_later_is_found_by_nobody_before_it_is_served(make_store):
    store = opened(make_store())
    for index in range(3):
        store.create_partition("t", ID, index, CONFIG, 0, is_served=False)
    assert store.partition("t", 0) is None
    assert store.opened_partition("t", 0) is None
    assert not store.is_closed("t", 0)
    assert store.opened() == []
    assert store.topic_id("t", 0) == ID
    store.delete_partition("t", 1)
    assert store.indexes("t") == {0, 2}
    changed = TopicConfig(segment_bytes=10_000)
    store.set_config("t", changed)
    store.begin_leader_epoch("t", 0, 4)
    store.checkpoint()
    store.serve_partitions("u")
    assert store.opened() == []
    store.serve_partitions("t")
    assert {partition.index for partition in store.opened()} == {0, 2}
    partition = store.partition("t", 0)
    assert (partition.config, partition.leader_epoch) == (changed, 4)
    partition.append(build([Record(0, 0, b"k", b"v")]), **AT)
    store.create_partition("t", ID, 5, CONFIG, 0, is_served=False)
    store.close()
    store = opened(make_store())
    assert store.partition("t", 0).log_end_offset == 1
    assert store.partition("t", 5).log_end_offset == 0


def test_a_directory_that_is_no_partition_is_named_unless_other_brokers_have_it(tmp_path, caplog):
    for name in ("brokers", "lost+found"):
        (tmp_path / name).mkdir()
    caplog.set_level("INFO", "tidelog.storage")
    store = LogStore([tmp_path], default_config=TopicConfig())
    store.open(0)
    store.close()
    left = [each.directory.name for each in caplog.records if "ignored" in each.message]
    assert left == ["lost+found"]


def crashed(make_store, *names):
    """Two partitions of a process that was killed; the log of each ends with half a batch."""
    store = opened(make_store(*names))
    batch = build([Record(0, 0, b"k", b"v")])
    for index in (0, 1):
        partition = store.create_partition("t", ID, index, CONFIG, 0)
        partition.append(batch, **AT)
        with (partition.directory / f"{0:020}.log").open("ab") as log:
            log.write(batch[:20])
    kill(store)
    return len(batch)


def sizes(path):
    return [log.stat().st_size for log in sorted(path.rglob("*.log"))]


def test_a_log_may_be_recovered_when_it_is_opened_and_is_not_at_the_stop(make_store, tmp_path):
    size = crashed(make_store)
    store = make_store()
    store.open(0, recovers_later=True)
    assert store.opened() == []
    assert sizes(tmp_path) == [size + 20] * 2
    assert store.partition("t", 0).log_end_offset == 1
    assert sizes(tmp_path) == [size, size + 20]
    assert store.closed_facts("t", 1) is None, "nothing is said of a log that is not recovered"
    store.checkpoint()
    store.close()
    assert sizes(tmp_path) == [size, size + 20], "a stop has little time"
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    again = make_store()
    again.open(0, recovers_later=True)
    assert [again.partition("t", index).log_end_offset for index in (0, 1)] == [1, 1]
    again.close()
    assert sizes(tmp_path) == [size] * 2
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    last = opened(make_store())
    assert last.opened() == []
    assert [last.partition("t", index).recovery_point for index in (0, 1)] == [1, 1]


def test_a_stop_opens_no_log_that_nobody_has_asked_for(make_store, tmp_path, monkeypatch):
    crashed(make_store)
    store = make_store()
    store.open(0, recovers_later=True)
    store.partition("t", 0)
    read = os.open

    def fails(path, *more, **named):
        assert Path(path).parent.name != "t-1"
        return read(path, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fails)
        store.close()
    assert opened(make_store()).partition("t", 1).log_end_offset == 1
