"""Leader epochs: what a leader begins, what a follower adopts, what a truncation cuts."""

import errno
import threading

import pytest

from tests.simulation.power_loss import Disk
from tests.storage.conftest import OnlyWhatIsDurable
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import checkpoints, filenames, files
from tidelog.storage.checkpoints import EpochStart, read_epochs, write_epochs
from tidelog.storage.log.epochs import NO_EPOCH, LeaderEpochs
from tidelog.storage.would_block import WouldBlock


@pytest.fixture
def epochs(tmp_path):
    write_epochs(tmp_path / filenames.LEADER_EPOCH_CHECKPOINT, [(0, 0), (2, 10), (5, 20)])
    return LeaderEpochs(tmp_path, 30)


def kept(path):
    return read_epochs(path / filenames.LEADER_EPOCH_CHECKPOINT)


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(31, 3), (21, 3), (20, 2), (11, 2), (10, 1), (1, 1), (0, 0)],
)
def test_an_epoch_without_a_batch_is_cut(tmp_path, epochs, end_offset, left):
    before = epochs.entries
    epochs.truncate_to(end_offset)
    assert epochs.entries == before[:left] == tuple(kept(tmp_path))
    assert epochs.last_begun == epochs.latest


def test_what_was_cut_does_not_come_back_when_the_log_grows_again(tmp_path, epochs):
    epochs.truncate_to(15)
    assert LeaderEpochs(tmp_path, 100).entries == ((0, 0), (2, 10))


def test_an_epoch_that_wrote_nothing_is_cut_from_the_file_too(tmp_path, epochs):
    again = LeaderEpochs(tmp_path, 20)  # the batches of epoch 5 were lost in a crash
    assert (again.latest, again.last_begun) == (2, 5)
    again.truncate_to(20)
    assert kept(tmp_path) == [(0, 0), (2, 10)]
    assert again.last_begun == 2


def test_a_follower_adopts_what_it_does_not_know(tmp_path, epochs):
    told = [EpochStart(2, 10), EpochStart(5, 20), EpochStart(6, 30), EpochStart(9, 31)]
    epochs.adopt(told)
    assert epochs.entries == ((0, 0), (2, 10), (5, 20), (6, 30), (9, 31)) == tuple(kept(tmp_path))


def test_an_epoch_that_begins_earlier_takes_the_place_of_those_behind_it(epochs):
    epochs.adopt([EpochStart(6, 15)])
    assert epochs.entries == ((0, 0), (2, 10), (6, 15))


def test_what_is_known_is_not_written_again(tmp_path, epochs):
    path = tmp_path / filenames.LEADER_EPOCH_CHECKPOINT
    path.unlink()
    epochs.adopt([EpochStart(2, 10), EpochStart(4, 12)])
    assert not path.exists()


def test_an_emptied_log_has_no_epoch(tmp_path, epochs):
    epochs.forget_all()
    assert (epochs.entries, epochs.last_begun, kept(tmp_path)) == ((), NO_EPOCH, [])


def test_epochs_of_lost_batches_do_not_speak_of_those_that_take_their_place(tmp_path, epochs):
    LeaderEpochs(tmp_path, 15).adopt([])  # batches without an epoch follow
    assert LeaderEpochs(tmp_path, 100).entries == ((0, 0), (2, 10))


# --- durability -----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["begin", "adopt"])
def test_an_epoch_is_durable_when_it_has_begun(tmp_path, start):
    (tmp_path / "log").mkdir()
    disk = Disk(tmp_path / "log")
    before = files.use(disk)
    try:
        epochs = LeaderEpochs(disk.root, 10)
        if start == "begin":
            epochs.begin(3, 10)
        else:
            epochs.adopt([EpochStart(3, 10)])
    finally:
        files.use(before)
    disk.lose_power(tmp_path / "after", OnlyWhatIsDurable())
    assert kept(tmp_path / "after") == [(3, 10)]


class CountingSystem(files.System):
    """The real disk; counts the syncs."""

    syncs = 0

    def sync(self, number):
        self.syncs += 1
        super().sync(number)

    def sync_data(self, number):
        self.syncs += 1
        super().sync_data(number)


def test_the_first_append_to_a_new_log_syncs_nothing(log):
    assert kept(log.directory) == [(0, 0)]
    system = CountingSystem()
    before = files.use(system)
    try:
        log.append([1], may_block=False)
        log.append([2], may_block=False)
    finally:
        files.use(before)
    assert system.syncs == 0
    assert log.partition.state.epochs.entries == ((0, 0),)


def test_the_first_append_to_an_empty_log_that_was_opened_again_may_block(log):
    log.close()
    log.open()
    with pytest.raises(WouldBlock):
        log.append([1], may_block=False)
    log.append([1])
    log.append([2], may_block=False)
    assert kept(log.directory) == [(0, 0)]


def test_a_log_whose_first_epoch_cannot_be_written_is_not_created(log):
    class Full(files.System):
        def rename(self, path, target):
            if target.name == filenames.LEADER_EPOCH_CHECKPOINT:
                raise OSError(errno.ENOSPC, "no space left on device")
            super().rename(path, target)

    before = files.use(Full())
    try:
        with pytest.raises(KafkaStorageError, match="u-0 cannot be created"):
            log.store.create_partition("u", log.partition.topic_id, 0, log.config, 0)
    finally:
        files.use(before)
    assert not (log.directory.parent / "u-0").exists()
    log.store.create_partition("u", log.partition.topic_id, 0, log.config, 0)


def test_an_append_of_a_new_epoch_may_block(log):
    log.append([1])
    log.append([2], may_block=False)
    log.partition.leader_epoch = 4
    with pytest.raises(WouldBlock):
        log.append([3], may_block=False)
    log.append([3])
    log.append([4], may_block=False)
    assert log.partition.state.epochs.entries == ((0, 0), (4, 2))


# --- retention beside an append -------------------------------------------------------------------


def epochs_after_a_race(log, monkeypatch, patience_s=0.2):
    """Retention forgets epoch 0 while an append begins epoch 5; returns the epochs, also those on disk."""
    for _ in range(3):
        log.append([1])
    log.partition.leader_epoch = 2
    for _ in range(3):
        log.append([9_000], now=9_000)
    log.partition.leader_epoch = 5
    write, is_forgetting, may_write = checkpoints.write_epochs, threading.Event(), threading.Event()

    def writing(path, epochs):
        if threading.current_thread() is retention:
            is_forgetting.set()
            assert may_write.wait(60)
        write(path, epochs)

    monkeypatch.setattr(checkpoints, "write_epochs", writing)
    retention = threading.Thread(target=log.partition.retainer.apply_retention, args=(9_000,))
    appending = threading.Thread(target=log.append, args=([9_001],), kwargs={"now": 9_001})
    retention.start()
    assert is_forgetting.wait(60)
    appending.start()
    appending.join(patience_s)  # it waits for the lock, which retention has
    may_write.set()
    retention.join(60)
    appending.join(60)
    assert log.partition.log_end_offset == 7
    return list(log.partition.state.epochs.entries), kept(log.directory)


@pytest.fixture
def short_log(make_log):
    return make_log(segment_bytes=80, retention_ms=1_000).create()


def test_retention_forgets_no_epoch_that_an_append_begins_meanwhile(short_log, monkeypatch):
    in_memory, on_disk = epochs_after_a_race(short_log, monkeypatch)
    assert in_memory == on_disk == [(2, 3), (5, 6)]
