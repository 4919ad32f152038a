"""A cluster in which everything may happen in any order, late and twice, by a seed.

It is smaller than the simulator: no messages, no time. Each partition has a number of committed records, and
each broker has so many of them. Whoever decides (leaders, controllers, brokers that start or stop) may do so
on an older image, and what was decided may be applied much later, or twice. Each state is checked when it is
stored (`cluster.check_step`). And whoever could be elected has every committed record.
"""

from __future__ import annotations

import random

from tests.broker.replication.cluster import Cluster
from tidelog.broker.membership import controlled_shutdown, registration
from tidelog.broker.metadata.brokers.records import OfflineRecord
from tidelog.broker.metadata.records import NO_LEADER, PartitionRecord
from tidelog.broker.metadata.store import LeaseEndedError
from tidelog.broker.replication import eligible_leaders, isr_change
from tidelog.broker.replication.controller import controller, election, reassignment
from tidelog.broker.replication.messages import ChangeIsr
from tidelog.broker.replication.transactions import batched, change

BROKERS = (1, 2, 3, 4)
REPLICAS = ((1, 2, 3), (2, 3, 4))
_OLDEST = 6  # images that somebody may still look at
_MOST = 12  # transactions that may still be applied


class AnyOrder:
    """One run. `play` calls the methods below at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.cluster = Cluster(min_insync=2)
        self.started = 0
        self.decided = []
        self.committed = [0 for _ in REPLICAS]
        self.has = [dict.fromkeys(BROKERS, 0) for _ in REPLICAS]
        # (broker epoch, proposal) of leaders; they may still be stored
        self.proposed = [[] for _ in REPLICAS]
        self.cluster.create("t", *(PartitionRecord(each, each, each[0], 0) for each in REPLICAS))
        for broker in BROKERS:
            self.start(broker, is_clean=True)
            self.cluster.live(broker, is_fenced=False)
        self.cluster.elect_controller()
        self.images = [self.cluster.image]
        self.happened = []

    def play(self, steps):
        """Lets so many things happen, and checks after each."""
        names, weights = zip(*WEIGHTS.items(), strict=True)
        for name in self.random.choices(names, weights, k=steps):
            self.happened.append(name)
            getattr(self, name)()
            self.check()
            if self.random.random() < 0.5:
                self.images = [*self.images[-_OLDEST:], self.cluster.image]

    def check(self):
        for partition, record in enumerate(self.topic.assignments):
            for broker in (*record.isr, *record.elr):
                if broker in self.cluster.image.brokers:
                    assert self.has[partition][broker] >= self.committed[partition], (
                        broker,
                        record,
                    )
            assert record.leader == NO_LEADER or record.leader in record.isr

    # -- brokers --------------------------------------------------------------------------------

    def start(self, broker, **fields):
        self.started += 1
        start = self.cluster.start(broker, f"start-{self.started}", **fields)
        while found := registration.next_transactions(
            self.cluster.image, start, self.cluster.rules
        ):
            for each in found:
                assert self.apply(each)

    def a_broker_dies(self):
        broker = self.random.choice(BROKERS)
        if broker in self.cluster.image.brokers:
            self.cluster.die(broker)

    def a_broker_starts(self):
        broker = self.random.choice(BROKERS)
        if broker in self.cluster.image.brokers:
            return
        is_wiped = self.random.random() < 0.4
        if is_wiped:
            for has in self.has:
                has[broker] = 0
        self.start(broker, is_clean=not is_wiped)

    def a_lease_ends_and_its_process_goes_on(self):
        broker = self.topic.assignments[self.partition()].leader
        live = self.cluster.image.brokers.get(broker)
        if live is not None and not live.record.is_fenced:
            self.cluster.die(broker)
            self.start(broker, is_clean=True, is_fenced=False)

    def a_broker_is_unfenced(self):
        broker, image = self.random.choice(BROKERS), self.seen()
        live, lease = image.brokers.get(broker), self.cluster.leases.get(broker)
        if live is not None and lease is not None:
            self.decide(registration.unfence(image, broker, live.epoch, lease))

    def a_broker_stops(self):
        broker, image = self.random.choice(BROKERS), self.cluster.image
        live = image.brokers.get(broker)
        if live is not None:
            lease = self.cluster.leases[broker]
            self.decide(controlled_shutdown.begin(image, broker, live.epoch, lease))

    def a_disk_fills_or_empties(self):
        broker, image = self.random.choice(BROKERS), self.cluster.image
        live = image.brokers.get(broker)
        if live is not None:
            full = {self.topic.topic_id: (self.random.choice((0, 1)),)}
            offline = self.random.choice((OfflineRecord(), OfflineRecord(full=full)))
            self.decide(registration.report_offline(image, broker, live.epoch, offline))

    # -- leaders --------------------------------------------------------------------------------

    def a_leader_commits(self):
        """The leader may know any value that min.insync.replicas ever had."""
        partition = self.partition()
        record = self.topic.assignments[partition]
        in_sync = {*record.isr}.union(*self.proposals(partition))
        may_advance = eligible_leaders.may_advance(record, self.min_insync())
        if record.leader != NO_LEADER and may_advance and in_sync <= {*self.cluster.image.brokers}:
            self.committed[partition] += 1
            self.has[partition].update(dict.fromkeys(in_sync, self.committed[partition]))

    def a_follower_fetches(self):
        partition, broker = self.partition(), self.random.choice(BROKERS)
        record, live = self.topic.assignments[partition], self.cluster.image.brokers
        if record.leader in live and broker in live and broker in record.replicas:
            self.has[partition][broker] = self.has[partition][record.leader]

    def a_leader_changes_its_isr(self):
        partition = self.partition()
        image, record = self.cluster.image, self.topic.assignments[partition]
        me = image.brokers.get(record.leader)
        if me is None:
            return
        members = tuple(each for each in record.replicas if self.is_wanted(partition, each))
        elr = eligible_leaders.elr_after(record, members, self.min_insync())
        after = eligible_leaders.changed(record, isr=members, elr=elr, is_recovering=False)
        added = {each: image.brokers[each].epoch for each in members if each not in record.isr}
        proposal = ChangeIsr(after, image.mod_revision("t", partition), added)
        topic_id = self.topic.topic_id
        made = isr_change.transaction(image, topic_id, partition, proposal, me.broker, me.epoch)
        if made is not None:
            self.proposed[partition].append((me.epoch, proposal))
            self.decide(made)

    def is_wanted(self, partition, broker):
        """Returns whether a leader wants a replica in the ISR; those that join have all records."""
        record = self.topic.assignments[partition]
        if broker == record.leader:
            return True
        if broker in record.isr:
            return self.random.random() < 0.9
        is_complete = self.has[partition][broker] >= self.committed[partition]
        return broker in self.cluster.image.brokers and is_complete

    def proposals(self, partition):
        """Returns the ISRs that the leader has proposed for the state that is stored now.

        It remembers none of an older session.
        """
        image = self.cluster.image
        now = image.mod_revision("t", partition)
        leader = image.brokers.get(self.topic.assignments[partition].leader)
        self.proposed[partition] = [
            (epoch, each)
            for epoch, each in self.proposed[partition]
            if each.mod_revision == now and leader is not None and leader.epoch == epoch
        ]
        return [each.record.isr for _, each in self.proposed[partition]]

    # -- the controller and operators -----------------------------------------------------------

    def a_controller_decides(self):
        image, rules = self.seen(), controller.TopicRules(self.min_insync())
        settled = self.random.sample(BROKERS, 2)
        epoch = image.controller.epoch
        limit = self.random.choice((1, 120))
        for each in self.cluster.decisions(
            epoch, image, lambda _: rules, settled=settled, limit=limit
        ):
            self.decide(each)

    def another_controller_is_there(self):
        self.cluster.elect_controller()

    def an_operator_reassigns(self):
        partition, image = self.partition(), self.seen()
        replicas = self.random.sample(BROKERS, self.random.randint(1, 3))
        after = reassignment.begin(image.topics["t"].assignments[partition], replicas, BROKERS)
        for each in batched([change(image, "t", partition, after, (), "reassignment")], ()):
            self.decide(each)

    def something_is_stored(self):
        if self.decided:
            position = self.random.randrange(len(self.decided))
            chosen = self.decided[position]
            if self.random.random() < 0.8:
                del self.decided[position]
            self.apply(chosen)

    # -- help -----------------------------------------------------------------------------------

    @property
    def topic(self):
        return self.cluster.image.topics["t"]

    def partition(self):
        return self.random.randrange(len(REPLICAS))

    def min_insync(self):
        return self.random.choice((1, 2, 2, 2, 3))

    def seen(self):
        """Returns an image that somebody may have; half of the time it is the newest."""
        return self.random.choice([*self.images, *[self.cluster.image] * len(self.images)])

    def decide(self, transaction):
        if transaction is not None:
            self.decided = [*self.decided[-_MOST:], transaction]

    def apply(self, transaction):
        before = self.topic.assignments
        try:
            applied = self.cluster.commit(transaction)
        except LeaseEndedError:
            return False
        for partition, (old, new) in enumerate(zip(before, self.topic.assignments, strict=True)):
            if election.is_unclean(old, new):
                has = self.has[partition]
                self.committed[partition] = has[new.leader]
                has.update({each: min(count, has[new.leader]) for each, count in has.items()})
        return applied


WEIGHTS = {
    "a_broker_dies": 1.5,
    "a_broker_starts": 4,
    "a_lease_ends_and_its_process_goes_on": 2,
    "a_broker_is_unfenced": 14,
    "a_broker_stops": 0.3,
    "a_disk_fills_or_empties": 1,
    "a_leader_commits": 10,
    "a_follower_fetches": 14,
    "a_leader_changes_its_isr": 10,
    "a_controller_decides": 10,
    "another_controller_is_there": 0.5,
    "an_operator_reassigns": 0.4,
    "something_is_stored": 30,
}


def first_violation(seeds, steps=150):
    """Returns the first of the seeds whose run breaks a rule, with what it broke; None if none does."""
    for seed in seeds:
        run = AnyOrder(seed)
        try:
            run.play(steps)
        except AssertionError as error:
            return seed, error
    return None
