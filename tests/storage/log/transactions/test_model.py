"""Random transactions, stops and truncations: a log says of them what a list of batches says."""

import random

import pytest

from tests.storage.log.transactions.conftest import Transactions
from tests.storage.log.transactions.model import AbortedTransaction, TransactionModel, shown
from tidelog.protocol.errors import KafkaStorageError
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import filenames, files
from tidelog.storage.log.high_watermark import Role
from tidelog.storage.segment import transaction_index

PRODUCERS = 4


class Life:
    """A log, the model of it, and random steps of both."""

    def __init__(self, log, rng):
        self.txn, self.rng = Transactions(log), rng
        self.log, self.model = log, TransactionModel()
        self.epochs = [0] * PRODUCERS

    @property
    def partition(self):
        return self.log.partition

    def write(self):
        pid, count = self.rng.randrange(PRODUCERS), self.rng.randrange(1, 4)
        match self.rng.random():
            case chance if chance < 0.2:
                self.txn.plain(count)
                self.model.add(count, -1, "plain")
            case chance if chance < 0.65:
                self.send(pid, count)
                self.model.add(count, pid, "data")
            case chance:
                if (
                    self.rng.random() < 0.3
                ):  # a marker of a newer epoch, as of transaction.version 2
                    self.epochs[pid] += 1
                commit = chance < 0.8
                self.txn.end(pid, commit=commit, epoch=self.epochs[pid])
                self.model.add(1, pid, "commit" if commit else "abort")

    def send(self, pid, count):
        known, epoch = self.partition.state.read_producers().get(pid), self.epochs[pid]
        # A truncation may have taken the epoch's batches; an unknown producer begins anywhere.
        in_epoch = known is not None and known.epoch == epoch
        self.epochs[pid] = epoch = max(epoch, known.epoch if known is not None else 0)
        sequence = known.next_sequence if in_epoch else 0
        self.txn.send(pid, count, epoch=epoch, sequence=sequence)

    def check(self):
        partition, model = self.partition, self.model
        opened, aborted = model.transactions()
        start, end = partition.log_start_offset, model.end
        assert self.txn.stable == model.stable(partition.high_watermark, start)
        assert partition.log_end_offset == end
        assert {t.producer_id: t.first_offset for t in partition.open_transactions()} == opened
        self.check_index(aborted)
        for offset in self.rng.sample(range(start, end + 1), min(5, end + 1 - start)):
            self.check_read(offset, aborted)

    def check_index(self, aborted):
        """Every segment's file has the aborted transactions whose markers it holds."""
        for segment in self.partition.segments:
            name = filenames.segment_file(segment.base_offset, filenames.TXN_INDEX_SUFFIX)
            path = self.log.directory / name
            found = transaction_index.parse(path.read_bytes()) if path.exists() else []
            assert [AbortedTransaction(*each[1:]) for each in found] == [
                each
                for each in aborted
                if segment.base_offset <= each.last < segment.tail.end_offset
            ]

    def check_read(self, offset, aborted):
        stable = self.partition.last_stable_offset
        if offset >= stable:
            return
        size = self.rng.choice([1, 200, 1_000, 1 << 20])
        fetched = self.log.read(offset, size, upper=stable)
        data = b"".join(bytes(part) for part in fetched.buffers)
        end = self.rng.randrange(offset + 1, stable + 1)
        for upper in (end, stable):
            found = self.partition.aborted_transactions(offset, upper)
            wanted = [
                (a.producer, a.first) for a in aborted if a.last >= offset and a.first < upper
            ]
            assert [tuple(each) for each in found] == wanted
        offsets = shown(data, found, offset)
        assert offsets == self.model.committed(offset, (offsets or [offset - 1])[-1] + 1)

    def stop(self):
        kind = self.rng.choice(["clean", "killed", "lost"])
        if kind == "clean":
            self.log.close()
        else:
            if self.rng.random() < 0.3:
                self.partition.flush()
            flushed = self.partition.recovery_point
            if self.rng.random() < 0.5:
                self.log.store.checkpoint()
                flushed = self.partition.recovery_point
            self.log.crash()
            if kind == "lost":
                self.lose(flushed)
        self.log.open()

    def lose(self, flushed):
        """What the disk may lack of what the log has, behind an offset."""
        for path in self.log.directory.glob("*" + filenames.TXN_INDEX_SUFFIX):
            entries = transaction_index.parse(path.read_bytes())
            kept = [each for each in entries if each.last_offset < flushed]
            if len(kept) < len(entries):
                zeros = bytes(self.rng.choice([0, 10, 34, 80]))
                path.write_bytes(transaction_index.pack(kept) + zeros)
        for path in self.log.directory.glob("*" + filenames.SNAPSHOT_SUFFIX):
            if int(path.stem) > flushed and self.rng.random() < 0.5:
                path.unlink()

    def cut(self):
        end = self.model.end
        offset = self.rng.randrange(max(self.partition.log_start_offset, end - 20), end + 1)
        self.model.truncate_to(offset)
        self.partition.truncater.truncate_to(offset, below_high_watermark=True)


@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_leads(make_log, seed):
    rng = random.Random(seed)
    life = Life(make_log(segment_bytes=rng.choice([400, 2_000, 10_000])).create(), rng)
    for _ in range(6):
        for _ in range(rng.randrange(1, 20)):
            life.write()
        life.check()
        rng.choice([life.stop, life.stop, life.cut])()
        life.check()


@pytest.mark.parametrize("seed", range(6))
def test_the_high_watermark_comes_later(make_log, seed):
    rng = random.Random(seed)
    life = Life(make_log(segment_bytes=2_000).create(), rng)
    state = life.partition.state
    state.take_role(Role.LEADER)
    for _ in range(60):
        life.write()
        if rng.random() < 0.4:
            with state.append_lock:
                state.advance_high_watermark(rng.randrange(life.model.end + 1))
        life.check()
        if rng.random() < 0.1:
            life.cut()
            life.check()


def test_records_before_an_open_transaction_may_be_deleted(make_log):
    life = Life(make_log(segment_bytes=300).create(), random.Random(1))
    for _ in range(40):
        life.write()
    for offset in range(1, life.model.end):
        life.partition.retainer.delete_records_before(offset)
        assert life.txn.stable == life.model.stable(life.model.end, offset)


def test_an_entry_whose_marker_is_not_stored_is_taken_back(txn, monkeypatch):
    txn.send(1, 2)
    active = txn.partition.state.active
    written = []

    def fail(descriptor, buffers, position, size):
        if size == 78:
            written.extend(active.aborted.entries)
            raise OSError(28, "no space")
        return write_at(descriptor, buffers, position, size)

    write_at = files.write_at
    monkeypatch.setattr(files, "write_at", fail)
    with pytest.raises(KafkaStorageError):
        txn.abort(1)
    monkeypatch.undo()
    assert len(written) == 1, "the entry comes first"
    assert (list(active.aborted.entries), txn.ends) == ([], (2, 2, 0))
    txn.abort(1)
    assert [each[1:] for each in active.aborted.entries] == [(1, 0, 2, 3)]


def test_commits_and_empty_aborts_have_no_entry(txn):
    txn.send(1, 2)
    txn.commit(1)
    txn.abort(1)
    txn.abort(2)
    assert list(txn.partition.state.active.aborted.entries) == []
    assert not list(txn.log.directory.glob("*.txnindex"))


def test_plain_records_of_a_producer_are_no_transaction(txn):
    txn.put(build([Record(0, 1, b"k", b"v")], producer_id=3, producer_epoch=0, base_sequence=0))
    txn.abort(3)
    assert txn.ends == (2, 2, 2)
