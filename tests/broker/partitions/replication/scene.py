"""A log in memory, and a leader with its parts, for tests of the bare machines of replication."""

from __future__ import annotations

from bisect import bisect_left

from tidelog.broker.lifecycle.lease import Lease
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.partitions.replication.leader import Leader
from tidelog.broker.partitions.replication.messages import (
    NO_EPOCH,
    NO_OFFSET,
    AdvanceHighWatermark,
    Assignment,
    BrokerStatus,
    ChangeIsr,
    FetchRequest,
    FollowerLog,
    LeaderLog,
    LeaderRules,
    Truncate,
)

ME, ONE, TWO = 0, 1, 2
EPOCH = 5
LEASE_MS = 1_000_000  # no test here waits that long, but those of the lease
LAG_MS = 30_000


class Log:
    """Records as (epoch, value), and the epochs that began; its history is this object itself."""

    def __init__(self, *epochs, start=0, high_watermark=None):
        """`epochs` are those of the records from the offset `start` on."""
        self.start = start
        self.records = []
        self.entries = []  # (epoch, start offset)
        for offset, epoch in enumerate(epochs, start):
            self.append(epoch, offset)
        self.high_watermark = start if high_watermark is None else high_watermark
        self.flushed = self.end
        self.gaps_end = 0

    @property
    def end(self):
        return self.start + len(self.records)

    def begin(self, epoch):
        self.entries = [entry for entry in self.entries if entry[1] < self.end]
        self.entries.append((epoch, self.end))

    def append(self, epoch, value):
        if not self.entries or self.entries[-1][0] < epoch:
            self.begin(epoch)
        self.records.append((epoch, value))

    def end_of(self, epoch):
        if not self.entries or epoch > self.entries[-1][0]:
            return NO_EPOCH, NO_OFFSET
        number = bisect_left(self.entries, epoch + 1, key=lambda entry: entry[0])
        end = self.entries[number][1] if number < len(self.entries) else self.end
        return (self.entries[number - 1][0] if number else epoch), end

    def truncate(self, offset):
        del self.records[max(offset - self.start, 0) :]
        self.entries = [entry for entry in self.entries if entry[1] < offset]
        self.high_watermark = min(self.high_watermark, self.end)

    def as_follower(self):
        last = self.entries[-1][0] if self.entries else NO_EPOCH
        ends = self.high_watermark, self.end, self.flushed
        return FollowerLog(self.start, *ends, last, self, self.gaps_end)

    def as_leader(self):
        return LeaderLog(self.start, self.high_watermark, self.end, self.flushed, self)


def record(isr=(ME, ONE, TWO), *, replicas=(ME, ONE, TWO), leader=ME, epoch=EPOCH, **fields):
    return PartitionRecord(replicas, isr, leader, epoch, 0)._replace(**fields)


class Led:
    """A leader of one partition, as its broker drives it. The clock is an attribute."""

    def __init__(
        self,
        isr=(ME, ONE, TWO),
        log=None,
        *,
        min_insync=2,
        flush=False,
        allows_unclean=False,
        **fields,
    ):
        self.now_ms = 0
        self.log = log if log is not None else Log()
        self.log.begin(EPOCH)
        self.rules = LeaderRules(min_insync, LAG_MS, flush, allows_unclean=allows_unclean)
        self.brokers = {broker: BrokerStatus(100 + broker) for broker in (ME, ONE, TWO, 3)}
        self.revision = 10
        self.stored = record(isr, **fields)
        self.lease = Lease(LEASE_MS, 0)
        self.leader = Leader(
            ME,
            Assignment(self.stored, self.revision),
            self.log.as_leader(),
            self.rules,
            self.brokers,
            self.lease,
            0,
        )
        self.actions = self.leader.on_tick(0)

    @property
    def high_watermark(self):
        return self.leader.high_watermark

    @property
    def changes(self):
        """The changes that the last event asked for."""
        return [action for action in self.actions if isinstance(action, ChangeIsr)]

    @property
    def change(self):
        (change,) = self.changes
        return change

    def append(self, count=1, *, flushed=False):
        for _ in range(count):
            self.log.append(EPOCH, self.log.end)
        self.actions = self.leader.on_appended(self.log.end, self.now_ms)
        if flushed:
            self.flush()

    def flush(self):
        self.actions = self.leader.on_flushed(self.log.end, self.now_ms)

    def request(self, broker, offset, **fields):
        asked = FetchRequest(broker, 100 + broker, EPOCH, offset, NO_EPOCH, self.log.start, 0)
        return asked._replace(**fields)

    def fetch(self, broker, offset, **fields):
        answer, self.actions = self.leader.on_fetch(
            self.request(broker, offset, **fields), self.now_ms
        )
        return answer

    def tick(self, ms=0):
        self.now_ms += ms
        self.actions = self.leader.on_tick(self.now_ms)
        return self.actions

    def pass_a_lease(self, *asking):
        """A lease time passes in ticks, in which the sessions of some followers go on to fetch."""
        for _ in range(4):
            self.now_ms += LEASE_MS // 4
            for broker in asking:
                self.leader.on_session(broker, self.now_ms)
            self.tick()

    def store(self, stored=None, **fields):
        """A newer image comes."""
        self.revision += 1
        self.stored = (stored or self.stored)._replace(**fields)
        self.see()

    def see(self):
        """The image of now comes."""
        assignment = Assignment(self.stored, self.revision)
        self.actions = self.leader.on_assignment(assignment, self.brokers, self.rules, self.now_ms)

    def apply(self, change):
        """The coordinator stores a change, and says so."""
        assert change.mod_revision == self.revision
        self.revision += 1
        self.stored = change.record
        assignment = Assignment(self.stored, self.revision)
        self.actions = self.leader.on_change_applied(assignment, self.now_ms)

    def refuse(self, change):
        """The coordinator refuses a change, and the stored state is read after that."""
        assignment = Assignment(self.stored, self.revision)
        self.actions = self.leader.on_change_refused(change, assignment, self.now_ms)


def kinds(actions):
    """The classes of actions: named tuples of different classes are equal if their content is."""
    return [type(action) for action in actions]


def advanced(actions):
    """The high watermark that actions set; None: none."""
    offsets = [action.offset for action in actions if isinstance(action, AdvanceHighWatermark)]
    return offsets[-1] if offsets else None


def truncated(actions):
    """The offset to which actions truncate; None: to none."""
    offsets = [action.offset for action in actions if isinstance(action, Truncate)]
    return offsets[-1] if offsets else None
