"""Whether one replica's log is a prefix of another's, where compaction may have left out batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.checking.log import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.replication.checking.ledger import Ledger
    from tests.simulation.replication.checking.log import Batch, Log


def is_prefix(log: Log, of: Log, ledger: Ledger) -> bool:
    """Returns whether all of a log that another still has is the same there."""
    if not log.batches or not of.batches:
        return log.end <= of.end
    first = max(log.batches[0].base, of.batches[0].base)
    mine, theirs = log.number_at(first), of.number_at(first)
    here = log.batches[mine:]
    if ledger.is_compacted:
        return _is_compacted_prefix(here, of.batches[theirs:], log.end, ledger)
    if here != of.batches[theirs : theirs + len(here)]:
        return False
    if not here:
        return True
    last = here[-1].base
    return ledger.is_same_time(last, log.append_time(last), of.append_time(last))


def _is_compacted_prefix(
    here: Sequence[Batch], there: Sequence[Batch], end: int, ledger: Ledger
) -> bool:
    """Returns whether logs have the same up to an end, but for what either has compacted.

    While nothing is promised, a log may lack what has a later batch with its key there.
    """
    mine = {batch.base: batch for batch in here}
    theirs = {batch.base: batch for batch in there if batch.base < end}
    my_last, their_last = ({key_of(each.value): each.base for each in log} for log in (here, there))
    for base in mine.keys() | theirs.keys():
        one, other = mine.get(base), theirs.get(base)
        if one is not None and other is not None:
            if one != other:
                return False
            continue
        batch, last = (one, their_last) if other is None else (other, my_last)
        is_replaced = ledger.is_anew and base < last.get(key_of(batch.value), 0)
        if not is_replaced and not ledger.may_lack(batch):
            return False
    return True
