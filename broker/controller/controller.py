"""What the controller writes: elections, steps of reassignments, preferred leaders.

All of it is decided on one image, and stored by transactions that compare what it was decided on
(`transactions.py`). The controller is an optimisation: with one there is one writer instead of many
that refuse each other. Two at once, or one that was paused, change nothing that they should not.

`transactions` is called on each new image, and now and then, because those for whom the controller
waits change with time. It returns nothing when all is as it should be.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.controller import election, reassignment
from tidelog.broker.controller.unfinished import abandoned
from tidelog.broker.metadata.brokers.keys import CONTROLLER
from tidelog.broker.metadata.brokers.records import put_controller
from tidelog.broker.metadata.image import changed_partitions, changed_topics
from tidelog.broker.metadata.records import NO_LEADER, UNKNOWN_EPOCH, PartitionRecord
from tidelog.broker.metadata.store import MOST_OPERATIONS, Compare, absent
from tidelog.broker.metadata.transactions import (
    PartitionChange,
    Transaction,
    as_seen,
    batched,
    change,
    in_session,
    offline_as_seen,
)
from tidelog.protocol.errors import InvalidReplicaAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
    from uuid import UUID

    from tidelog.broker.metadata.eligible_leaders import TopicRules
    from tidelog.broker.metadata.image import Image, Topic


_A_STEP = 200  # partitions that are decided on: a few milliseconds of work
_STORED_IN_A_STEP = 4  # transactions


class Able(NamedTuple):
    """Who can lead, as one image says."""

    brokers: frozenset[int]  # live, neither fenced nor stopping
    failed: Mapping[tuple[UUID, int], frozenset[int]]  # of which partition whose log has failed
    full: Mapping[tuple[UUID, int], frozenset[int]]  # and whose disk is full
    slow: Mapping[tuple[UUID, int], frozenset[int]]  # and whose disk is slow

    def of(self, topic_id: UUID, index: int) -> frozenset[int]:
        """Returns the brokers that can lead a partition and write to it."""
        if not self.failed and not self.full:
            return self.brokers
        return self.to_read(topic_id, index) - self.full.get((topic_id, index), frozenset())

    def to_read(self, topic_id: UUID, index: int) -> frozenset[int]:
        """Returns the brokers that can lead a partition, if only for those who read."""
        return self.brokers - self.failed.get((topic_id, index), frozenset())

    def slow_at(self, topic_id: UUID, index: int) -> frozenset[int]:
        """Returns the brokers that should not lead a partition, if others can."""
        return self.slow.get((topic_id, index), frozenset()) if self.slow else frozenset()


def able(image: Image) -> Able:
    """Returns who can lead what."""
    brokers = frozenset(
        broker
        for broker, live in image.brokers.items()
        if not live.record.is_fenced and not live.record.is_stopping
    )
    failed: dict[tuple[UUID, int], set[int]] = defaultdict(set)
    full: dict[tuple[UUID, int], set[int]] = defaultdict(set)
    slow: dict[tuple[UUID, int], set[int]] = defaultdict(set)
    for broker, offline in image.offline.items():
        said = offline.record
        for found, partitions in ((failed, said.partitions), (full, said.full), (slow, said.slow)):
            for topic_id, indexes in partitions.items():
                for index in indexes:
                    found[topic_id, index].add(broker)
    return Able(brokers, _frozen(failed), _frozen(full), _frozen(slow))


def _frozen(
    found: Mapping[tuple[UUID, int], set[int]],
) -> Mapping[tuple[UUID, int], frozenset[int]]:
    return {key: frozenset(brokers) for key, brokers in found.items()}


def claim(image: Image, me: int, my_epoch: int, lease: int) -> Transaction | None:
    """Returns the transaction by which a broker becomes the controller; None if there is one.

    A fenced broker may be the controller: after a stop of the whole cluster all are fenced, and
    elections are what they wait for. A stopping one does not begin to be it.
    """
    mine = image.brokers.get(me)
    if image.controller is not None or mine is None or mine.epoch != my_epoch:
        return None
    if mine.record.is_stopping:
        return None
    compares = (*absent(CONTROLLER), in_session(me, my_epoch))
    return Transaction(compares, (put_controller(me, lease),), "controller")


def transactions(
    image: Image,
    controller_epoch: int,
    rules: Callable[[Topic], TopicRules],
    *,
    settled: Collection[int] = (),
    awaited: Collection[int] = (),
    limit: int = MOST_OPERATIONS,
    since: Image | None = None,
) -> Generator[None, None, list[Transaction]]:
    """Returns what the controller with this epoch should write now, in steps.

    It yields after some partitions each, for a broker that dies may have led thousands. `settled` brokers
    may take over the partitions of which they are the preferred leader. What an `awaited` broker leads,
    or is in sync with, stays as it is for now. Both are known from `broker/controller/sessions.py`. Where
    nobody leads who can, new leaders come first, and all else at a later call. `limit` bounds each
    transaction. `since` is an earlier image on which there was nothing to write, with the same `settled`
    and `awaited`: only what has changed is looked at.
    """
    if image.controller is None or image.controller.epoch != controller_epoch:
        return []
    guard = Compare(CONTROLLER, "create", "=", controller_epoch)
    # Clients wait for new leaders, and for nothing else that is written here.
    changes = yield from _listed(_changes(image, rules, settled, awaited, since, leaderless=True))
    if not changes:
        others = yield from _listed(_changes(image, rules, settled, awaited, since))
        changes = sorted(others, key=lambda each: each.after.leader == each.before.leader)
    found = abandoned(image, guard)
    for transaction in batched(changes, (guard,), limit):
        found.append(transaction)
        if not len(found) % _STORED_IN_A_STEP:
            yield
    return found


def _listed(
    changes: Iterator[PartitionChange | None],
) -> Generator[None, None, list[PartitionChange]]:
    """Returns changes as a list; yields at each None among them."""
    found: list[PartitionChange] = []
    for each in changes:
        if each is None:
            yield
        else:
            found.append(each)
    return found


def new_partition(
    image: Image, replicas: Sequence[int]
) -> tuple[PartitionRecord, tuple[Compare, ...]]:
    """Returns the first state of a partition, and what must still be so when it is stored.

    The ISR is those of the replicas that can lead now (KIP-631), and the first of them leads. Each
    must still be in its session: who starts unclean counts on being added to no ISR meanwhile.
    Raises InvalidReplicaAssignment if no replica can lead.
    """
    brokers = able(image).brokers
    isr = tuple(broker for broker in replicas if broker in brokers)
    if not isr:
        raise InvalidReplicaAssignment(f"none of the brokers {list(replicas)} is there to lead")
    record = PartitionRecord(tuple(replicas), isr, isr[0], 0)
    return record, tuple(as_seen(image, broker) for broker in isr)


def is_well(
    record: PartitionRecord,
    able_brokers: frozenset[int],
    settled: Collection[int],
    slow: frozenset[int] = frozenset(),
) -> bool:
    """Returns whether `next_state` has nothing to do, as for most partitions of most images.

    It is the same answer, but quicker.
    """
    return (
        record.leader in able_brokers
        and not slow
        and able_brokers.issuperset(record.isr)
        and not (record.elr or record.adding or record.removing)
        and (record.leader == record.replicas[0] or record.replicas[0] not in settled)
    )


def next_state(
    record: PartitionRecord,
    able_brokers: Collection[int],
    to_read: Collection[int],
    rules: TopicRules,
    settled: Collection[int],
    slow: Collection[int] = (),
) -> tuple[PartitionRecord, str] | None:
    """Returns the state that a partition should have next, and why; None if it is as it should be.

    `able_brokers` can lead the partition; `to_read` are these and those whose disk is full, which
    lead it if nobody else can without losing records. The disks of `slow` ones are slow: they lead
    only what no other in-sync replica can lead.
    """
    elected = elect(record, able_brokers, to_read, rules)
    if elected is not None:
        return elected, "unclean election" if election.is_unclean(record, elected) else "election"
    completed = reassignment.complete(record, able_brokers, rules.min_insync)
    if completed is not None:
        return completed, "reassignment"
    fast = [broker for broker in able_brokers if broker not in slow] if slow else able_brokers
    if record.leader in slow:
        relieved = election.relieve(record, fast)
        return None if relieved is None else (relieved, "slow disk")
    if record.replicas[0] in settled:
        preferred = election.prefer(record, fast)
        if preferred is not None:
            return preferred, "preferred leader"
    return None


def elect(
    record: PartitionRecord,
    able_brokers: Collection[int],
    to_read: Collection[int],
    rules: TopicRules,
) -> PartitionRecord | None:
    """Elects among those that can write, else among those that can be read."""
    elected = election.elect(record, able_brokers, rules.min_insync)
    after = record if elected is None else elected
    if after.leader == NO_LEADER or election.is_unclean(record, after):
        elected = election.elect(
            record, to_read, rules.min_insync, allows_unclean=rules.allows_unclean
        )
    return elected


def _changes(
    image: Image,
    rules: Callable[[Topic], TopicRules],
    settled: Collection[int],
    awaited: Collection[int],
    since: Image | None,
    *,
    leaderless: bool = False,
) -> Iterator[PartitionChange | None]:
    """Yields what is to change, and None after some partitions each.

    If `leaderless`, only where nobody leads who can.
    """
    can_lead = able(image)
    if since is not None and (
        can_lead != able(since) or since.broker_configs != image.broker_configs
    ):
        since = None
    seen = 0
    for topic in changed_topics(image, since):
        topic_rules = rules(topic)
        for index in changed_partitions(image, topic, since):
            seen += 1
            if not seen % _A_STEP:
                yield None
            record = topic.assignments[index]
            if record.leader_epoch == UNKNOWN_EPOCH:
                continue  # of an older tidelog; its broker claims it
            if any(broker in awaited for broker in record.isr):
                continue
            brokers = can_lead.of(topic.topic_id, index)
            if leaderless and record.leader in brokers:
                continue
            slow = can_lead.slow_at(topic.topic_id, index)
            if is_well(record, brokers, settled, slow):
                continue
            to_read = can_lead.to_read(topic.topic_id, index)
            found = next_state(record, brokers, to_read, topic_rules, settled, slow)
            if found is not None:
                yield decided(image, topic, index, *found)


def decided(
    image: Image, topic: Topic, index: int, after: PartitionRecord, why: str
) -> PartitionChange:
    """Returns a change with the sessions on which it was decided: of who goes, and who leads."""
    before = topic.assignments[index]
    gone = [broker for broker in before.isr if broker not in after.isr]
    concerned = dict.fromkeys(gone)
    if after.leader_epoch != before.leader_epoch:
        concerned.update(dict.fromkeys(b for b in (before.leader, after.leader) if b != NO_LEADER))
    made = change(image, topic.name, index, after, concerned, why)
    offline = tuple(
        offline_as_seen(image, broker) for broker in concerned if broker in image.offline
    )
    return made._replace(compares=made.compares + offline)
