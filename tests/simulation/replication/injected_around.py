"""Mistakes to inject around the rules of replication: in connections, roles, stores and coordinators.

The checker has to notice every one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aetcd import rpc

from tests.simulation.replication.injected import Mistake, mistake, nothing
from tidelog.broker.metadata.etcd.change_log import ChangeLog
from tidelog.broker.metadata.etcd.etcd_watch import EtcdWatch
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.etcd.wire import Keys
from tidelog.broker.partitions.leading.acknowledgements import Acknowledgements
from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
from tidelog.broker.partitions.partition import ServedPartition

if TYPE_CHECKING:
    from tidelog.storage.log.partition import Partition

START = ServedPartition._start
TRANSACT = EtcdStore._transact
RESTART = ChangeLog.restart


def answered_at_once(self: PartitionLeader, appended: Any, timeout_ms: int) -> Any:
    """A producer with acks=all is answered when the leader has its records."""
    return appended


def follow_in_the_first_epoch(self: ServedPartition, part: Any, partition: Partition) -> None:
    """A replica that follows again names the leader epoch in which it followed first."""
    START(self, part, partition)
    if self.followed is not None:
        first = self.__dict__.setdefault("first_epoch", part.leader_epoch)
        self.followed.follower.leader_epoch = first


async def idle_at_once(self: ServedPartition) -> Partition:
    """A role begins while appends of the last one are in a thread."""
    self.followed = None
    return await self._context.transitions.open(self.topic, self.name[1])


async def read_and_write(self: EtcdStore, compares: Any, operations: Any) -> int | None:
    """What is compared is read first, and then written to without a comparison."""
    found = {pair.key: pair for pair in (await self._read("")).pairs}
    for compare in compares:
        pair = found.get(compare.key)
        if not compare.holds(*((0, 0) if pair is None else pair[2:4])):
            return None
    return await TRANSACT(self, (), operations)


def from_now_on(self: Keys, after: int) -> Any:
    """A watch that begins again tells what happens from then on."""
    first, end = self.range_of()
    return rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=first, range_end=end))


def never_again(self: ChangeLog, *what: Any) -> None:
    """The keys that are read after a compaction are not taken."""
    if not self.end:
        RESTART(self, *what)


async def always_same(self: EtcdWatch) -> bool:
    """What the watch has told is never compared with the keys."""
    return True


BUGS_AROUND: dict[str, Mistake] = {
    "nobody looks whether leaders are cut off": mistake(
        PartitionLeader, "tick", nothing, known=9, fault="cut_off"
    ),
    "a suspended leader is asked by nobody before it answers": mistake(
        PartitionLeader, "check_leading", nothing, known=9, fault="cut_off"
    ),
    "a producer with acks=all is answered before the high watermark": mistake(
        PartitionLeader, "acknowledged", answered_at_once
    ),
    "who steps down does not tell those who wait": mistake(
        Acknowledgements, "refuse_all", nothing, known=2
    ),
    "a follower goes on in the old leader epoch": mistake(
        ServedPartition, "_start", follow_in_the_first_epoch, known=2
    ),
    "a role does not wait for an append in a thread": mistake(
        ServedPartition, "_idle", idle_at_once, known=68, fault="depose"
    ),
    "etcd is read instead of compare-and-set": mistake(
        EtcdStore, "_transact", read_and_write, known=76, has_etcd=True
    ),
    "a watch of etcd does not resume": mistake(Keys, "watch", from_now_on, has_etcd=True),
    "changes that etcd has compacted are not read again": mistake(
        ChangeLog, "restart", never_again, has_etcd=True
    ),
    "nobody compares what a watch has told": mistake(
        EtcdWatch, "compare", always_same, known=5, has_etcd=True
    ),
}
