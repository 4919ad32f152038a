"""Invariant 13, and the comparison of everything, some time after the faults have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.checking.invariants import has
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.checking.lookups import check_lookups

if TYPE_CHECKING:
    from tests.simulation.replication.checking.ledger import Ledger
    from tests.simulation.replication.checking.log import Log
    from tests.simulation.replication.checking.stored import Part
    from tests.simulation.replication.life import Life


def check_liveness(world: Life) -> None:
    """Checks a cluster that had time to recover. Raises BrokenInvariantError."""
    stored = world.checker.stored
    for broker in world.brokers.values():
        live = stored.live.get(broker.id)
        if not broker.is_serving or live is None or live[1].get("is_fenced"):
            raise BrokenInvariantError(f"invariant 13: {broker} is not serving: {live}")
    if len(stored.topics) < 1:
        raise BrokenInvariantError("invariant 13: no topic was ever created")
    for key, part in stored.parts.items():
        _check_partition(world, key, part, stored.ledgers[key])
    for client in world.clients:
        if getattr(client, "is_waiting", False):
            raise BrokenInvariantError(f"invariant 13: client {client.id} still waits")


def _check_partition(world: Life, key: str, part: Part, ledger: Ledger) -> None:
    if part.leader < 0 or set(part.isr) != set(part.replicas) or part.elr:
        raise ledger.broken(13, f"it has not recovered: {part}")
    leader = world.brokers[part.leader].replicas[key]
    if leader.leader is None or leader.epoch != part.leader_epoch:
        raise ledger.broken(13, f"{leader.broker} does not lead: {part}")
    logs = [world.brokers[broker].disk.logs[key] for broker in part.replicas]
    for log in logs:
        if log.high_watermark != leader.log.end or log.end != leader.log.end:
            raise ledger.broken(13, f"{log} is not {leader.log}")
        what = ledger.difference(log, 0, ledger.end)
        if what:
            raise ledger.broken(1, what)
        is_same = log.start == leader.log.start and not ledger.losses and not ledger.marks
        if is_same and log.max_event != leader.log.max_event:
            raise ledger.broken(
                10,
                f"{log} has the largest event time {log.max_event}, {leader.log} has "
                f"{leader.log.max_event}",
            )
    _check_judged_times(ledger, logs)
    _check_lookups(world, ledger, logs)


def _check_judged_times(ledger: Ledger, logs: list[Log]) -> None:
    """Invariant 9: what an append time counts as after a clock was corrected, on all replicas."""
    if ledger.untimed:
        return  # each replica that has lost them adopted these batches at another moment
    first = max(log.start for log in logs)
    for number in ledger.numbers(first, ledger.end):
        batch = ledger.entries[number].batch
        base = batch.base
        found = {log.judged_time(base) for log in logs if has(log, batch, flushed=False)}
        if len(found) > 1:
            raise ledger.broken(9, f"the append time of {base} counts as {sorted(found)}")


def _check_lookups(world: Life, ledger: Ledger, logs: list[Log]) -> None:
    pick = world.timeline.random
    first, end = max(log.start for log in logs), min(log.high_watermark for log in logs)
    entries = [ledger.entries[number] for number in ledger.numbers(first, end)]
    for entry in pick.sample(entries, min(3, len(entries))):
        check_lookups(pick, ledger, entry, logs)
