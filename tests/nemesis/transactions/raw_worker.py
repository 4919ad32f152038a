"""A worker with a raw producer, in a thread of its own: it appends records, or copies what it reads.

After a transaction of which it does not know the end, and after it was killed, its next incarnation
gets a new epoch. While it is paused another incarnation takes its place; then it goes on with its old epoch,
as a zombie does, and must be refused.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from tests.nemesis.history import (
    Asked,
    Began,
    Ended,
    Failed,
    OffsetSent,
    Place,
    Polled,
    Sent,
    Sought,
    Stored,
    Told,
    source_of,
    value_of,
)
from tests.nemesis.transactions.asking import Brokers, OverTime, Unknown
from tests.nemesis.transactions.raw import OF_CLIENTS, STEPS, Killed, RawProducer, Refused
from tests.nemesis.transactions.workers import ABORTS, PATIENCE_S, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.nemesis.history import History
    from tests.nemesis.transactions.workers import Copying

_PAUSE_S = 0.04
_MOST_COPIES = 8


class RawWorker(Worker):
    """A worker whose incarnations are threads."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        *,
        is_new: bool,
        copying: Copying | None = None,
    ) -> None:
        """Appends to `places`, or copies; `is_new` follows transaction.version 2."""
        super().__init__(name, history, bootstrap, places, copying)
        self.is_new = is_new
        self.kill_broker: Callable[[str], None] = lambda _address: None
        left_out = {"AddPartitionsToTxn", "AddOffsetsToTxn"} if is_new else set()
        if copying is None:
            left_out |= {"AddOffsetsToTxn", "TxnOffsetCommit"}
        self.steps = [each for each in STEPS if each not in left_out]
        self.hows = OF_CLIENTS
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begins to work."""
        thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self, *, abandon: bool = False) -> None:
        """Ends after the transaction that is under way, in order unless that is abandoned."""
        self.is_over.set()
        for thread in list(self._threads):
            thread.join(1 if abandon else PATIENCE_S)
            if thread.is_alive() and not abandon:
                self.history.add(Failed(self.name, "the worker does not end"))

    @property
    def is_one(self) -> bool:
        """Whether only one incarnation lives: a zombie has met its end."""
        return sum(thread.is_alive() for thread in self._threads) == 1

    def _work(self) -> None:
        try:
            while not self.is_over.is_set():
                self.incarnations += 1
                name = f"{self.name}/{self.incarnations}"
                if _Incarnation(name, self).lives_on():
                    return
        except OverTime as error:
            if not self.is_over.is_set():
                self.history.add(Failed(self.name, f"out of patience: {error}"))
        except Exception as error:
            self.history.add(Failed(self.name, repr(error)))


class _Incarnation:
    """One incarnation of a worker."""

    def __init__(self, name: str, worker: RawWorker) -> None:
        self.name = name
        self._worker = worker
        self._add = worker.history.add
        self._random = worker.random
        self._brokers = Brokers(worker.bootstrap, worker.is_over.is_set)
        self._producer = RawProducer(self._brokers, worker.name, is_new=worker.is_new)
        self._producer.interruption_at = worker.interruption_at
        self._producer.when_paused = self._paused
        self._producer.kill_broker = self._kill_broker
        self._is_replaced = False
        self._numbers = 0
        self._streams = 0
        self._positions: dict[Place, int] = {}
        self._txn = ""
        self._has_asked = True

    def _kill_broker(self, address: str) -> None:
        self._worker.kill_broker(address)  # which may have been set since

    def lives_on(self) -> bool:
        """Works until something goes wrong or all is over; returns whether another goes on already."""
        worker = self._worker
        try:
            self._producer.init()
            while not (worker.is_over.is_set() or self._is_replaced):
                due = worker.interruption
                if due is not None and due.step == STEPS[0]:
                    break  # the next incarnation begins with that
                if worker.copying is None:
                    self._transaction(self._append)
                else:
                    self._copy(worker.copying)
                time.sleep(self._random.random() * 2 * _PAUSE_S)
        except (Unknown, Killed):
            pass
        except Refused:
            if self._random.random() < 0.5 and not self._is_replaced:
                self._try_to_abort()
        finally:
            self._brokers.close()
        return self._is_replaced

    def _paused(self) -> None:
        """Stands still until another incarnation has committed."""
        worker = self._worker
        self._is_replaced = True
        committed = worker.committed
        worker.start()
        deadline_s = time.monotonic() + PATIENCE_S
        while worker.committed == committed and time.monotonic() < deadline_s:
            if worker.is_over.wait(_PAUSE_S):
                return

    # --- transactions -----------------------------------------------------------------------------

    def _transaction(self, write: Callable[[str], object]) -> bool:
        """Begins, writes and ends; returns whether that was a commit."""
        self._numbers += 1
        txn = self._txn = f"{self.name}/{self._numbers}"
        self._add(Began(txn, self._worker.name, time.monotonic()))
        self._has_asked = False
        write(txn)
        is_commit = self._random.random() > ABORTS
        self._add(Asked(txn, is_commit, time.monotonic()))
        self._has_asked = True
        self._producer.end(is_commit=is_commit)
        self._add(Ended(txn, is_commit, time.monotonic()))
        self._worker.committed += is_commit
        return is_commit

    def _try_to_abort(self) -> None:
        """Aborts a transaction in which something was refused, if its end was not asked for."""
        if self._has_asked:
            return
        self._add(Asked(self._txn, False, time.monotonic()))
        try:
            self._producer.end(is_commit=False)
        except (Unknown, Refused, Killed):
            return
        self._add(Ended(self._txn, False, time.monotonic()))

    def _append(self, txn: str) -> None:
        places = list(self._worker.places)
        for place in self._random.sample(places, self._random.randint(2, min(3, len(places)))):
            self._write(txn, place, [""] * self._random.randint(1, 4))
        place = self._random.choice(places)
        start = self._positions.get(place, 0)
        found, self._positions[place] = self._brokers.committed(place, start)
        self._got(place, start, found, txn)

    def _write(self, txn: str, place: Place, sources: Sequence[str]) -> None:
        texts = [value_of(txn, place, index, each) for index, each in enumerate(sources)]
        for text in texts:
            self._add(Sent(txn, place, text))
        self._producer.add(place)
        offset = self._producer.send(place, texts)
        for index, text in enumerate(texts):
            self._add(Stored(txn, place, text, offset + index))

    def _got(self, place: Place, start: int, found: Sequence[tuple[int, bytes]], txn: str) -> None:
        self._streams += 1
        self._add(Sought(self.name, self._streams, place, start))
        now_s = time.monotonic()
        for offset, value in found:
            self._add(Polled(self.name, self._streams, place, offset, value, 0, now_s, txn))

    # --- copies -----------------------------------------------------------------------------------

    def _copy(self, copying: Copying) -> None:
        """Copies some records in one transaction with the offset behind them, if there are any."""
        place = self._random.choice(copying.places)
        start = self._positions.get(place)
        if start is None or self._random.random() < 0.2:
            began_s = time.monotonic()
            told = self._brokers.told(copying.group, place)
            self._add(Told(copying.group, place, told, began_s, time.monotonic()))
            start = self._positions[place] = max(told, 0)
        found, end = self._brokers.committed(place, start)
        if not found:
            self._positions[place] = end
            return
        if len(found) > _MOST_COPIES:
            found = found[:_MOST_COPIES]
            end = found[-1][0] + 1
        write = partial(self._write_copies, copying, place, start, found, end)
        if self._transaction(write):
            self._positions[place] = end

    def _write_copies(
        self,
        copying: Copying,
        place: Place,
        start: int,
        found: Sequence[tuple[int, bytes]],
        end: int,
        txn: str,
    ) -> None:
        self._got(place, start, found, txn)
        into = Place(copying.into, place.partition)
        self._write(txn, into, [source_of(place, offset) for offset, _ in found])
        self._add(OffsetSent(txn, copying.group, place, end))
        self._producer.send_offset(copying.group, place, end)
