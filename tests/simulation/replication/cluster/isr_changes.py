"""How a broker stores what its leaders propose of their in-sync replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.cluster.coordinator import LEASE_ENDED, UNKNOWN
from tests.simulation.replication.cluster.settings import stored_assignment
from tidelog.broker.replication import isr_change
from tidelog.broker.replication.messages import Assignment

if TYPE_CHECKING:
    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.cluster.replica import Replica
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.replication.messages import ChangeIsr


def propose(broker: Broker, replica: Replica, change: ChangeIsr) -> None:
    """Stores what a leader proposes; the machine hears how it ended."""
    topic_id, index = broker.world.ids[replica.key]
    leader, life = replica.leader, broker.life
    transaction = isr_change.transaction(
        broker.image, topic_id, index, change, broker.id, broker.epoch
    )
    broker.world.say("propose", replica, change.record.isr, change.record.elr)
    if transaction is None:
        broker.world.after(broker, 0, replica.change_refused, leader, change, replica.assignment)
        return

    def ask(store: MemoryState) -> tuple[int | None, Assignment | None]:
        revision = store.transact(transaction.compares, transaction.operations)
        return revision, None if revision else stored_assignment(store, topic_id, index)

    def take(result: Any) -> None:
        if result in (UNKNOWN, LEASE_ENDED):
            broker.run(life, replica.change_unknown, leader, change)
        elif result[0] is None:
            broker.run(life, replica.change_refused, leader, change, result[1])
        else:
            assignment = Assignment(change.record, result[0])
            broker.run(life, replica.change_applied, leader, assignment)

    broker.world.coordinator.ask(broker.id, ask, take, broker.world.transact_ms)
