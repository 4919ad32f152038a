"""Transactions on followers: the same state and the same index as the leader's, also after a cut."""

import random

import pytest

from tests.storage.log.transactions.conftest import Transactions
from tests.storage.log.transactions.test_model import Life
from tidelog.storage import filenames
from tidelog.storage.log.replication.received import AppendedFrom


class Pair:
    """A log that leads, and one that follows it."""

    def __init__(self, make_log, rng):
        self.rng = rng
        self.life = Life(make_log("leader", segment_bytes=700).create(), rng)
        self.follower = make_log("follower", segment_bytes=500).create()
        self.life.partition.roles.lead(1)
        self.follower.partition.roles.follow(1)

    def replicate(self):
        """One fetch of the follower, and what the leader makes of it."""
        leader, follower = self.life.partition, self.follower.partition
        state = leader.state
        answer = leader.reader.read_for_follower(
            follower.log_end_offset, self.rng.choice([1, 300, 5_000]), minimum_one=True
        )
        data = b"".join(bytes(part) for part in answer.fetched.buffers)
        times = [AppendedFrom(0, None)]
        follower.replica.append_as_follower(
            data, times, answer.epochs, answer.leader, now_ms=self.life.txn.now
        )
        with state.append_lock:
            state.advance_high_watermark(follower.log_end_offset)

    def check(self):
        self.life.check()
        leader, follower = self.life.partition, self.follower.partition
        if leader.log_end_offset == follower.log_end_offset:
            assert self.opened(follower) == self.opened(leader)
            assert self.index(self.follower) == self.index(self.life.log)
        model = self.life.model
        stable = model.stable(follower.high_watermark, follower.log_start_offset)
        if follower.log_end_offset >= model.end:
            assert Transactions(self.follower).stable == stable

    def opened(self, partition):
        return [
            (each.producer_id, each.epoch, each.first_offset, each.coordinator_epoch)
            for each in partition.open_transactions()
        ]

    def index(self, log):
        found = []
        for segment in log.partition.segments:
            name = filenames.segment_file(segment.base_offset, filenames.TXN_INDEX_SUFFIX)
            if (log.directory / name).exists():
                found += segment.aborted.entries
        return found


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_has_its_leaders_transactions(make_log, seed):
    pair = Pair(make_log, random.Random(seed))
    for _ in range(40):
        pair.life.write()
        if pair.rng.random() < 0.6:
            pair.replicate()
            pair.check()
    while pair.follower.partition.log_end_offset < pair.life.model.end:
        pair.replicate()
    pair.replicate()
    pair.check()
    # It leads in its turn, from what it has.
    pair.follower.partition.roles.lead(2)
    assert Transactions(pair.follower).stable == pair.life.txn.stable


def test_a_marker_that_is_cut_off_opens_its_transaction_again(make_log):
    pair = Pair(make_log, random.Random(0))
    txn, follower = pair.life.txn, pair.follower.partition
    txn.send(1, 2)
    txn.plain()
    for _ in range(9):
        pair.replicate()
    txn.abort(1)
    for _ in range(3):
        answer = pair.life.partition.reader.read_for_follower(
            follower.log_end_offset, 5_000, minimum_one=True
        )
        data = b"".join(bytes(part) for part in answer.fetched.buffers)
        follower.replica.append_as_follower(
            data, [AppendedFrom(0, None)], answer.epochs, answer.leader, now_ms=txn.now
        )
    assert tuple(follower.state.ends) == (4, 3, 0)
    assert len(pair.index(pair.follower)) == 1
    follower.truncater.truncate_to(3)
    assert tuple(follower.state.ends) == (3, 3, 0)
    assert pair.index(pair.follower) == []
    assert [each.first_offset for each in follower.open_transactions()] == [0]
