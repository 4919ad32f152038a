"""Compares the replicas of a partition with each other, and with all that was ever committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.storage.log_model import agreement
from tidelog.storage.time.corrections import judged

if TYPE_CHECKING:
    from tests.storage.log_model.model import Batch, ModelLog
    from tests.storage.replicas.cluster import Cluster
    from tests.storage.replicas.replica import Replica


class History:
    """What was ever below the leader's high watermark, by the last offset of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        self.high_watermark = 0
        self.resets: set[int] = set()  # at which an operator let append times go back

    def commit(self, leader: ModelLog) -> None:
        for batch in leader.batches:
            if self.high_watermark < batch.end <= leader.high_watermark:
                self.batches[batch.end] = batch
        self.high_watermark = max(self.high_watermark, leader.high_watermark)

    def forget_from(self, offset: int) -> None:
        """Forget what the last replica in sync has lost."""
        self.batches = {end: batch for end, batch in self.batches.items() if end <= offset}
        self.high_watermark = min(self.high_watermark, offset)


def check(cluster: Cluster) -> None:
    """Demand that all replicas have what was committed, and answer alike below all high watermarks."""
    for number, replica in enumerate(cluster.replicas):
        if number in cluster.in_sync or number == cluster.number:
            assert replica.model.end >= cluster.history.high_watermark
        if not cluster.is_unclean:
            committed(cluster, replica)
        never_back(cluster, replica)
    upper = min(replica.partition.high_watermark for replica in cluster.replicas)
    if not cluster.is_unclean:
        judged_alike(cluster, upper)
    for replica in cluster.replicas:
        lookups(replica, upper)


def committed(cluster: Cluster, replica: Replica) -> None:
    """What a replica may show is what was committed, with the append times that it had."""
    partition, limit = replica.partition, replica.partition.high_watermark
    assert limit <= cluster.history.high_watermark
    for batch in replica.model.batches:
        if partition.log_start_offset < batch.end <= limit:
            known = cluster.history.batches[batch.end]
            assert known.rows == batch.rows
            stored = agreement.append_time(partition, batch.end - 1)
            assert stored == known.append or (
                cluster.has_lost_times and None in {stored, known.append}
            )


def never_back(cluster: Cluster, replica: Replica) -> None:
    """Append times never go back along the log, but where an operator let them."""
    last = None
    for batch in replica.model.batches:
        append = batch.append
        if batch.first in cluster.history.resets:
            last = None
        if append is not None:
            assert last is None or append >= last, (batch, last)
            last = append


def judged_alike(cluster: Cluster, upper: int) -> None:
    """Replicas that have heard of the same corrections judge append times alike."""
    leader = cluster.leader
    state = leader.partition.state
    for number in cluster.followers:
        replica = cluster.replicas[number]
        other = replica.partition.state
        if other.mark != state.mark or replica.epoch != cluster.epoch:
            continue
        if number not in cluster.acknowledged:
            continue  # it has not fetched in this epoch
        for batch in replica.model.batches:
            if leader.model.start < batch.end <= upper and batch.append is not None:
                offset = batch.end - 1
                mine = judged(state.corrections, offset, batch.append)
                assert judged(other.corrections, offset, batch.append) == mine
        # A reset counts again what remains, and replicas do not delete segments at the same moment.
        is_counted_again = replica.is_trimmed and cluster.history.resets
        limit = leader.partition.high_watermark
        has_same = limit == replica.partition.high_watermark >= state.epoch_start_offset
        if has_same and not is_counted_again:
            assert leader.partition.max_event_time == replica.partition.max_event_time


def lookups(replica: Replica, upper: int) -> None:
    """Both lookups by time find what a search through all records finds."""
    model, reader = replica.model, replica.partition.reader
    rows = [row for row in model.rows if row.offset < upper]
    here = [batch for batch in model.batches if model.start < batch.end <= upper]
    times = {row.time for row in rows[-3:] if row.time is not None}
    for time in {-5, 5_000, *times}:
        wanted = next(
            ((row.offset, row.time) for row in rows if row.time is not None and row.time >= time),
            None,
        )
        assert reader.find_by_time(time, upper_offset=upper) == wanted, time
    if any(batch.append is None for batch in model.batches if batch.end > model.start):
        return
    for append in {batch.append for batch in here[-3:]}:
        first = next(batch.first for batch in here if batch.append >= append)
        found = reader.find_by_append_time(append, upper_offset=upper)
        assert (found.offset, found.unknown_from) == (max(first, model.start), None)
