"""A broker registers: clean or unclean, fenced until it has caught up (KIP-631, KIP-966).

A broker that may have lost records must not be elected for having them. So an unclean one first
leaves ISR and ELR of all its partitions, and only then begins a session; Kafka does it in one step
of its controller (KAFKA-18106). Whether a start is clean is decided in `clean_start.py`.

`next_transactions` is called on each new image until the broker is registered: outcomes that are
unknown settle themselves. Every transaction requires that the broker has no session, and has not
registered since. A broker without a session is added to no ISR, so it stays out of those that it has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.brokers.keys import LIVE_PREFIX
from tidelog.broker.metadata.brokers.records import (
    NO_SECRET,
    LiveBrokerRecord,
    OfflineRecord,
    RegistrationRecord,
    Secret,
    live_key,
    offline_key,
    put_live,
    put_offline,
    put_registration,
    registration_key,
)
from tidelog.broker.metadata.eligible_leaders import changed, elr_after, led_by
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.metadata.store import MOST_OPERATIONS, Delete, Put, absent
from tidelog.broker.metadata.transactions import (
    PartitionChange,
    Transaction,
    batched,
    change,
    in_session,
    unmodified,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.eligible_leaders import TopicRules
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.metadata.store import Compare


class DuplicateBrokerError(Exception):
    """Another process has a session with this broker id; the text says how to go on."""


class Start(NamedTuple):
    """A session that a broker begins. `lease` is the one that the session will belong to.

    `is_clean` is decided on an image in which the broker has no session (`clean_start.py`): until a
    session has ended, it can report that a log has failed. Each session has another `incarnation`.

    A process whose lease has ended, and that registers again, has followed the metadata all the
    time: it need not be fenced, and where nobody was elected meanwhile it stays in sync. It serves
    nothing before its image has the new session.
    """

    broker: int
    incarnation: str
    lease: int
    directories: tuple[str, ...]
    is_clean: bool
    is_fenced: bool = True
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    protocol: str = ""
    secret: Secret = NO_SECRET


def next_transactions(
    image: Image,
    start: Start,
    rules: Callable[[Topic], TopicRules],
    *,
    has_ended: bool = False,
    limit: int = MOST_OPERATIONS,
) -> list[Transaction]:
    """Returns what to write next, in this order; nothing once the broker is registered.

    After these transactions the caller calls again, on an image that has them. The last one begins
    the session (`begins_session`); before it, the registration files must be durable. `has_ended`
    says that a session in the image is known to be over, though its lease is not: this process
    holds the lock that every process of this broker id would hold. Raises DuplicateBrokerError.
    """
    me, live = start.broker, image.brokers.get(start.broker)
    if live is not None and live.record.incarnation == start.incarnation:
        return []
    if live is not None and not has_ended:
        raise DuplicateBrokerError(
            f"broker {me} is running already, as {_where(live)}: give this one another node.id, "
            f"or wait until the session of the other has ended"
        )
    if live is not None:
        ended = (in_session(me, live.epoch),)
        return [Transaction(ended, (Delete(live_key(me)),), "end of a session")]
    registered = image.registrations.get(me)
    guards = (
        *absent(live_key(me)),
        unmodified(registration_key(me), 0 if registered is None else registered.epoch),
    )
    if not start.is_clean:
        leaving = list(_leaving(image, me, rules))
        if leaving:
            return list(batched(leaving, guards, limit))
    return [_registration(start, guards)]


def begins_session(transaction: Transaction) -> bool:
    """Returns whether a transaction of `next_transactions` is the one that begins the session."""
    return any(
        isinstance(operation, Put) and operation.key.startswith(LIVE_PREFIX)
        for operation in transaction.operations
    )


def without(record: PartitionRecord, broker: int, min_insync: int) -> PartitionRecord | None:
    """Returns a partition's state without a broker in ISR and ELR; None if it is in neither.

    A leader that leaves is the last known leader. Nobody leads until the next election. Whoever
    leaves as the last member of both becomes the last known leader, too: it had every committed
    record for longer than the leader, which may have lost all of them when it left.
    """
    if broker not in (*record.isr, *record.elr, record.leader):
        return None
    isr = tuple(each for each in record.isr if each != broker)
    elr = tuple(each for each in elr_after(record, isr, min_insync) if each != broker)
    if record.leader != broker:
        last_leader = record.last_leader if isr or elr else broker
        return changed(record, isr=isr, elr=elr, last_leader=last_leader)
    return led_by(record, NO_LEADER, isr, elr)._replace(last_leader=broker)


def unfence(image: Image, me: int, my_epoch: int, lease: int) -> Transaction | None:
    """Returns the transaction that ends the fencing of a broker; None while it is too early.

    The image must show the broker's own session, and that the controller has moved the broker out
    of all ISRs. So a broker that has started again never goes on in an old leader epoch.
    """
    live = image.brokers.get(me)
    if live is None or live.epoch != my_epoch or not live.record.is_fenced:
        return None
    if is_in_charge(image, me):
        return None
    operation = put_live(me, live.record._replace(is_fenced=False), lease)
    return Transaction((in_session(me, my_epoch),), (operation,), "unfenced")


def is_in_charge(image: Image, broker: int) -> bool:
    """Returns whether a broker leads a partition, or is in an ISR."""
    return any(
        broker == record.leader or broker in record.isr
        for topic in image.topics.values()
        for record in topic.assignments
    )


def report_offline(
    image: Image, me: int, my_epoch: int, offline: OfflineRecord
) -> Transaction | None:
    """Returns the transaction that reports what a broker cannot lead; None if the image has it already.

    A log that has failed stays so until the broker registers again: `partitions` and `directories`
    of the image stay, too.
    """
    known = image.offline.get(me)
    record = offline if known is None else _both(known.record, offline)
    before = OfflineRecord() if known is None else known.record
    if record == before:
        return None
    key = offline_key(me)
    compares = (
        in_session(me, my_epoch),
        unmodified(key, 0 if known is None else known.mod_revision),
    )
    operation = Delete(key) if record == OfflineRecord() else put_offline(me, record)
    return Transaction(compares, (operation,), "offline")


def _both(known: OfflineRecord, now: OfflineRecord) -> OfflineRecord:
    """Returns what is offline now, with the logs that have failed before."""
    failed = {
        topic_id: tuple(
            sorted({*known.partitions.get(topic_id, ()), *now.partitions.get(topic_id, ())})
        )
        for topic_id in {**known.partitions, **now.partitions}
    }
    directories = tuple(dict.fromkeys((*known.directories, *now.directories)))
    return OfflineRecord(directories, failed, now.full, now.slow)


def _leaving(
    image: Image, me: int, rules: Callable[[Topic], TopicRules]
) -> Iterator[PartitionChange]:
    for topic in image.topics.values():
        min_insync = rules(topic).min_insync
        for index, record in enumerate(topic.assignments):
            after = without(record, me, min_insync)
            if after is not None:
                yield change(image, topic.name, index, after, (), "unclean broker leaves")


def _registration(start: Start, guards: tuple[Compare, ...]) -> Transaction:
    live = LiveBrokerRecord(
        start.incarnation,
        start.endpoints,
        start.rack,
        is_fenced=start.is_fenced,
        secret=start.secret,
    )
    registration = RegistrationRecord(
        start.incarnation, start.directories, start.is_clean, start.protocol
    )
    operations = (
        put_live(start.broker, live, start.lease),
        put_registration(start.broker, registration),
        Delete(offline_key(start.broker)),
    )
    why = "clean start" if start.is_clean else "unclean start"
    return Transaction(guards, operations, why)


def _where(live: LiveBroker) -> str:
    endpoints = (f"{each.host}:{each.port}" for each in live.record.endpoints)
    return ", ".join(endpoints) or f"incarnation {live.record.incarnation}"
