"""A cluster of brokers that exist as keys only, for tests of what writes them.

Transactions go into the product's own store in memory, and each one is checked there: a state follows the
state before it as the rules say, whoever wrote it, and at that moment.
"""

from __future__ import annotations

import itertools
from uuid import UUID

from tidelog.broker.controller import controller
from tidelog.broker.lifecycle.registration import Start
from tidelog.broker.metadata import records
from tidelog.broker.metadata.brokers.keys import CONTROLLER
from tidelog.broker.metadata.brokers.records import (
    Endpoint,
    LiveBrokerRecord,
    put_controller,
    put_live,
)
from tidelog.broker.metadata.eligible_leaders import TopicRules
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.metadata.memory import MemoryState
from tidelog.broker.metadata.records import NO_LEADER, PartitionRecord, TopicRecord
from tidelog.broker.metadata.store import MOST_OPERATIONS, NO_LEASE, Delete

MOST = 128  # etcd's limit for the comparisons and for the operations of one transaction


def decided(*arguments, **options):
    """What the controller decides on an image, in all its steps."""
    steps = controller.transactions(*arguments, **options)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Cluster:
    """Keys of brokers and topics, and the image of them."""

    def __init__(self, *, min_insync=2, allows_unclean=False):
        self.now_ms = 0
        self.min_insync, self.allows_unclean = min_insync, allows_unclean
        self.store = MemoryState(now_ms=lambda: self.now_ms, kept_revisions=100)
        self.store.transact(
            (),
            (
                records.put_cluster("c"),
                records.put_producer_ids(0),
                records.put_broker_configs({}),
            ),
        )
        snapshot = self.store.read()
        self._builder = ImageBuilder(snapshot.revision, snapshot.pairs)
        self._ids = itertools.count(1)
        self.leases = {}
        self._quiet = (None, None)

    @property
    def image(self):
        if self.store.revision == self._builder.image.revision:
            return self._builder.image
        return self._builder.apply(self.store.changes(self._builder.image.revision))

    def rules(self, _topic):
        return TopicRules(self.min_insync, self.allows_unclean)

    def put(self, *operations):
        for start in range(0, len(operations), MOST_OPERATIONS):
            part = operations[start : start + MOST_OPERATIONS]
            assert self.store.transact((), part) is not None

    def create(self, name, *assignments):
        """Creates a topic whose partitions are in these states."""
        topic_id = UUID(int=next(self._ids))
        self.put(
            *(
                records.put_partition(topic_id, index, each)
                for index, each in enumerate(assignments)
            )
        )
        self.put(records.put_topic(TopicRecord(name, topic_id, len(assignments), {})))
        return topic_id

    def set(self, name, index, record):
        self.put(records.put_partition(self.image.topics[name].topic_id, index, record))

    def live(self, *brokers, **fields):
        """Begins sessions, or changes them; returns the epoch of the last."""
        for broker in brokers:
            self.leases.setdefault(broker, self.store.grant(10_000))
            record = LiveBrokerRecord(f"of-{broker}", (Endpoint("PLAINTEXT", "h", broker),))
            record = record._replace(**{"is_fenced": False, **fields})
            self.put(put_live(broker, record, self.leases[broker]))
        return self.image.brokers[brokers[-1]].epoch

    def die(self, *brokers):
        for broker in brokers:
            self.store.revoke(self.leases.pop(broker))

    def elect_controller(self, broker=99):
        """Makes a broker the controller, and returns the controller epoch."""
        self.put(Delete(CONTROLLER))
        self.put(put_controller(broker, NO_LEASE))
        return self.image.controller.epoch

    def start(self, broker, incarnation, **fields):
        """Returns the start of a broker, under a lease of its own."""
        self.leases[broker] = self.store.grant(10_000)
        fields = {"directories": ("d",), "is_clean": True, **fields}
        return Start(broker, incarnation, self.leases[broker], **fields)

    def commit(self, transaction):
        """Applies a transaction if the store takes it, checks what it does, and returns whether it did."""
        assert len(transaction.operations) <= MOST
        assert len(transaction.compares) <= MOST
        before = self.image
        applied = self.store.transact(transaction.compares, transaction.operations) is not None
        if applied:
            self.check(before, self.image)
        return applied

    def decisions(self, epoch, image=None, rules=None, **options):
        """What the controller would write; a look at what has changed since must find the same."""
        image, rules = image or self.image, rules or self.rules
        found = decided(image, epoch, rules, **options)
        concerned = (epoch, rules(None), options)
        before, of_whom = self._quiet
        if of_whom == concerned:
            assert decided(image, epoch, rules, **options, since=before) == found
        if not found:
            self._quiet = (image, concerned)
        return found

    def settle(self, epoch=None, **options):
        """Lets the controller write until it has nothing more to write; returns what it wrote."""
        epoch = self.image.controller.epoch if epoch is None else epoch
        done = []
        while found := self.decisions(epoch, **options):
            assert all(self.commit(each) for each in found)
            done += found
            assert len(done) < 1_000, "the controller never ends"
        return done

    def state(self, name="t", index=0):
        return self.image.topics[name].assignments[index]

    def check(self, before, after):
        """What must be so of each partition that one transaction has changed."""
        for name, topic in after.topics.items():
            for index, record in enumerate(topic.assignments):
                old = before.assignment(name, index)
                if old is not None and record != old:
                    check_step(old, record, after)


def check_step(old: PartitionRecord, new: PartitionRecord, image):
    """What must be so of a state that replaces another, at the moment at which it is stored."""
    replicas, isr, elr = set(new.replicas), set(new.isr), set(new.elr)
    assert isr <= replicas
    assert elr <= replicas
    assert not isr & elr
    assert new.leader == NO_LEADER or new.leader in isr
    assert set(new.adding) | set(new.removing) <= replicas
    assert new.partition_epoch == old.partition_epoch + 1
    assert new.leader_epoch >= old.leader_epoch
    has_moved = new.leader != old.leader or not set(old.replicas) <= replicas
    assert (new.leader_epoch > old.leader_epoch) == has_moved
    complete = {*old.isr, *old.elr}
    assert elr <= complete
    if new.leader not in (old.leader, NO_LEADER):
        assert is_in_service(image, new.leader)
        assert new.leader in complete or new.is_recovering
    assert all(is_in_service(image, joined) for joined in isr - set(old.isr))


def is_in_service(image, broker):
    """Returns whether a broker may lead, and be added to an ISR."""
    live = image.brokers.get(broker)
    return live is not None and not live.record.is_fenced and not live.record.is_stopping
