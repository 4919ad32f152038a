"""Mistakes in transactions that the checker must find, each a switch of a broker process.

`tests.injecting` starts brokers with one of them: the process replaces a function of the broker before it
serves. The mistakes are inside of the broker, so the names that they replace are mostly private.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tidelog.broker.api import offset_fetch
from tidelog.broker.coordinators.transactions.execution import Execution
from tidelog.broker.coordinators.transactions.transaction import Transaction
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.transaction_log import ProducerIdAndEpoch, State
from tidelog.storage.log import reader
from tidelog.storage.log.producers import stability
from tidelog.storage.log.producers.aborted import AbortedFrom

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORD_LATER_S = 0.6
_store, _fence = Execution._store, Transaction._fence
_aborted_between, _found = reader.aborted_between, offset_fetch._found


def inject(name: str) -> None:
    """Replaces functions of this process."""
    BUGS[name]()


def _marker_before_the_record() -> None:
    def store(execution, entry, action):
        target = action.metadata
        if target.state is not State.PREPARE_COMMIT:
            return _store(execution, entry, action)
        first = min(target.partitions)
        producer = ProducerIdAndEpoch(target.producer_id, target.epoch)
        epoch = execution._coordinator_epoch(entry)
        with contextlib.suppress(BrokerError):
            execution._markers.begin(first, producer, epoch, is_commit=True)

        async def record() -> None:
            await asyncio.sleep(_RECORD_LATER_S)
            execution.act(entry, _store(execution, entry, action))

        execution._runtime.spawn(record())
        return []

    Execution._store = store


def _stable_past_an_open_one() -> None:
    stability.stable_at = lambda _state, high_watermark: high_watermark


def _aborted_list_one_short() -> None:
    reader.aborted_between = lambda *asked: _aborted_between(*asked)[:-1]


def _aborted_list_one_long() -> None:
    def one_long(version, offset, end_offset):
        before = [
            AbortedFrom(entry.producer_id, entry.first_offset)
            for segment in version.segments
            for entry in segment.aborted.since(0)
            if entry.last_offset < offset
        ]
        return before[-1:] + _aborted_between(version, offset, end_offset)

    reader.aborted_between = one_long


def _pending_offsets_shown() -> None:
    def found(kept, wanted):
        shown = _found(kept, wanted)
        batches = [] if kept is None else kept.pending_offsets.all()
        pending = {name: at for batch in batches for name, at in batch.offsets.items()}
        for topic, partitions in shown.items():
            partitions[:] = [(i, pending.get((topic, i), at)) for i, at in partitions]
        return shown

    offset_fetch._found = found
    offset_fetch._is_unstable = lambda *_: False


def _epoch_not_bumped() -> None:
    def fence(transaction, *how):
        actions = _fence(transaction, *how)
        target = transaction._pending._replace(epoch=transaction.metadata.epoch)
        transaction._pending = target
        return [action._replace(metadata=target) for action in actions]

    Transaction._fence = fence


BUGS: dict[str, Callable[[], None]] = {
    "the marker is written before the record": _marker_before_the_record,
    "the last stable offset is past an open transaction": _stable_past_an_open_one,
    "the list of aborted transactions is one short": _aborted_list_one_short,
    "the list of aborted transactions is one long": _aborted_list_one_long,
    "pending offsets are shown": _pending_offsets_shown,
    "the epoch is not bumped with a time-out": _epoch_not_bumped,
}
