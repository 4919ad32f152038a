"""Invariant 11: both lookups give the same offset on every replica, that of trying every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.checking.log import NO_TIME

if TYPE_CHECKING:
    import random

    from tests.simulation.replication.checking.ledger import Entry, Ledger
    from tests.simulation.replication.checking.log import Log


def check_lookups(pick: random.Random, ledger: Ledger, entry: Entry, logs: list[Log]) -> None:
    """Looks up the times of an entry, or a time beside them, in what all of the logs have.

    That begins at the largest log start, and ends at the smallest high watermark. Raises
    BrokenInvariantError.
    """
    first, end = max(log.start for log in logs), min(log.high_watermark for log in logs)
    kinds = []
    if entry.batch.record_time != NO_TIME:  # those of format 0 have none in storage
        kinds.append(False)
    if not ledger.untimed:
        kinds.append(True)
    for by_append in kinds:
        time = (entry.time if by_append else entry.batch.record_time) + pick.choice([-1, 0, 1])
        expected = ledger.lookup(first, end, time, by_append=by_append)
        if ledger.is_compacted:
            _check_compacted(ledger, expected, first, time, logs, by_append=by_append)
            continue
        found = {log.lookup(first, time, by_append=by_append) for log in logs}
        if found != {expected}:
            raise ledger.broken(11, f"{time} is at {expected}, replicas say {found}")


def _check_compacted(
    ledger: Ledger, reached: int | None, first: int, time: int, logs: list[Log], *, by_append: bool
) -> None:
    """Compares with what each replica still has: they may be compacted up to other offsets.

    An append time of a batch that is gone still counts: the answer is then the next one that is there.
    """
    for log in logs:
        found = log.lookup(first, time, by_append=by_append)
        expected = {log.try_all(first, time, by_append=by_append)}
        if by_append and reached is not None:
            expected.add(log.first_from(reached))
        if found not in expected:
            raise ledger.broken(11, f"{time} is at {expected}, {log} says {found}")
