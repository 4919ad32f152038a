"""Delivery guarantees of a run, and how a task finds out how much the target already has.

    transactions   exactly once on any partition. Records and progress are committed together, and a
                   newer task fences an older one. Each transaction adds a marker, an offset without
                   a record.
    position       exactly once on a partition to which nobody else writes. Record k of the run has
                   the sequence k of one producer id, so the broker refuses duplicates and gaps,
                   whichever task sends them. Record k gets the offset start + k. The last records
                   in the target are compared before anything is written.
    at-least-once  on a partition to which others write. It works like position while the target
                   remembers the producer (until producer.id.expiration.ms after its last record,
                   a day by default), or while the producer's last batch is found near the end of
                   the log. After that the run begins again at its first record.

A `PartitionWriter` implements one of the three for one partition. Records are counted from 0 in the order of
the source. The records in the target are compared with the source before more are written.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from tidelog.client import READ_COMMITTED, RequestError, UnsupportedByBroker
from tidelog.client.apis import ADD_PARTITIONS_TO_TXN, END_TXN
from tidelog.client.appender import UNKNOWN_OFFSET, Appended, Appender
from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.replay import comparing
from tidelog.pipeline.replay.comparing import COMPARED, Trace, trace
from tidelog.pipeline.replay.offset_map import Runs
from tidelog.pipeline.replay.transactions import Transactions
from tidelog.protocol.records.column_batches import BatchProducer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from tidelog.client import Client
    from tidelog.pipeline.replay.comparing import Tail
    from tidelog.pipeline.replay.offset_map import OffsetRange
    from tidelog.protocol.records.column_batches import EncodedBatch

    Offsets = npt.NDArray[np.int64]

AUTO: Final = "auto"
TRANSACTIONS: Final = "transactions"
POSITION: Final = "position"
AT_LEAST_ONCE: Final = "at-least-once"
Mode = Literal["auto", "transactions", "position", "at-least-once"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_SEQUENCE_MASK: Final = 0x7FFFFFFF
TRANSACTION_RECORDS: Final = 500_000
_TRANSACTION_BYTES: Final = 64 << 20
_FIRST_LOOK_S: Final = 0.005
_LONGEST_LOOK_S: Final = 0.5


class Delivery(NamedTuple):
    """How one partition is written to; the plan stores it.

    `name` distinguishes this run from others.
    """

    mode: str
    name: str
    start_offset: int
    producer_id: int


def choose(client: Client, wanted: str, *, is_exclusive: bool) -> str:
    """Returns the delivery mode of a run. Raises UsageError for a mode that is impossible."""
    connection = client.any()
    has_transactions = connection.speaks(ADD_PARTITIONS_TO_TXN) and connection.speaks(END_TXN)
    if wanted == AUTO:
        if has_transactions:
            return TRANSACTIONS
        return POSITION if is_exclusive else AT_LEAST_ONCE
    if wanted == TRANSACTIONS and not has_transactions:
        raise UsageError("the target has no transactions: choose --delivery position")
    if wanted == POSITION and not is_exclusive:
        raise UsageError(
            "--delivery position needs partitions that nobody else writes to, and the target topic has"
            " records already: say --exclusive if they are ours"
        )
    return wanted


class PartitionWriter:
    """Writes to one partition by position; the base class of the other writers."""

    map_is_complete = True

    def __init__(self, client: Client, topic: str, partition: int, delivery: Delivery) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self.delivery = delivery
        self.where = f"{topic}-{partition}"
        self.producer = BatchProducer(delivery.producer_id, 0)
        self.runs = Runs()
        self.found = 0  # records that were in the target at the start
        self.done = 0  # records that are in the target
        self.doubts: list[str] = []
        self._sent: deque[Offsets] = deque()
        self._appender = self._open()

    def _open(self) -> Appender:
        return Appender(self.client, self.topic, self.partition)

    def begin(self) -> int:
        """Asks the target how many records of the run it has; returns the number.

        Raises PipelineError.
        """
        end = self.client.end_offset(self.topic, self.partition)
        self._refuse_shorter(end, self.delivery.start_offset)
        self.done = self.found = end - self.delivery.start_offset
        return self.done

    def compare(self, tail: Tail) -> None:
        """Compares the last records in the target with the source's. Raises PipelineError."""
        first, end = self.delivery.start_offset, self.delivery.start_offset + self.found
        stored = comparing.stored(
            self.client, self.topic, self.partition, max(first, end - COMPARED), end
        )
        tail.compare(self.found, {one.offset - first: one for one in stored})

    def kept(self) -> tuple[int, tuple[OffsetRange, ...]]:
        """Returns how many records the target certainly has, and where; others may be in flight."""
        return self.done, self.runs.taken()

    def _refuse_shorter(self, end: int, before: int) -> None:
        """Raises PipelineError if the partition ends at a smaller offset than before."""
        if end < before:
            raise PipelineError(
                f"{self.where} ends at offset {end}, and ended at {before} before: its topic was deleted or"
                " truncated; begin a new run"
            )

    def sequence(self, number: int) -> int:
        """Returns the sequence of a record of the run."""
        return number & _SEQUENCE_MASK

    def skip(self, offsets: Offsets, number: int) -> None:
        """Skips records that the target has, from record `number` of the run on."""
        self.runs.add(offsets, self.delivery.start_offset + number)

    def append(self, batch: EncodedBatch, offsets: Offsets) -> None:
        """Appends a batch, whose records have these offsets in the source."""
        self._sent.append(offsets)
        self._take(self._appender.send(batch))

    def finish(self) -> None:
        """Waits until all is written. Raises PipelineError if somebody else has written."""
        self._take(self._appender.flush())

    def _take(self, appended: Iterable[Appended]) -> None:
        for one in appended:
            offsets = self._sent.popleft()
            expected = self.delivery.start_offset + self.done
            if one.base_offset not in (expected, UNKNOWN_OFFSET):
                raise PipelineError(
                    f"{self.where}: record {self.done} of the run went to offset {one.base_offset}, not"
                    f" {expected}: somebody else writes to this partition. The run is exact up to there; use"
                    " a topic of its own, or --delivery at-least-once"
                )
            self.runs.add(offsets, expected)
            self.done += len(offsets)


class _AmongOthers(PartitionWriter):
    """Writes beside other producers: the answers of the target say where batches are."""

    _after = 0  # the offset after the last answered batch

    def _take(self, appended: Iterable[Appended]) -> None:
        for one in appended:
            offsets = self._sent.popleft()
            if one.base_offset == UNKNOWN_OFFSET:
                self.map_is_complete = False
            else:
                if one.base_offset < self._after:
                    raise PipelineError(
                        f"{self.where}: record {self.done} of the run went to offset {one.base_offset}, and"
                        f" those before it up to {self._after - 1}: its topic was deleted or truncated"
                        " meanwhile; begin a new run"
                    )
                self._after = one.base_offset + len(offsets)
                self.runs.add(offsets, one.base_offset)
            self.done += len(offsets)


class TransactionWriter(_AmongOthers):
    """Writes in transactions; each transaction includes a record of the progress."""

    def _open(self) -> Appender:
        # An earlier attempt of this run may have written; no other run has its producer id.
        run = f"{self.delivery.name}/{self.delivery.producer_id}"
        self._transactions = Transactions(
            self.client, f"{run}/{self.where}", self.topic, self.partition
        )
        self._next = 0  # the next sequence
        self._committed: tuple[int, tuple[OffsetRange, ...]] = (0, ())
        self._records = self._bytes = 0
        return Appender(
            self.client,
            self.topic,
            self.partition,
            transactional_id=self._transactions.transactional_id,
        )

    def begin(self) -> int:
        """Fences earlier writers, and reads the last committed progress. Raises PipelineError."""
        identity = self._transactions.begin()
        self.producer = BatchProducer(*identity, is_transactional=True)
        self.done, runs = self._transactions.progress()
        self.found = self.done
        self.runs = Runs(runs)
        self._committed = self.done, runs
        after = runs[-1].target_offset + runs[-1].count if runs else self.delivery.start_offset
        self._refuse_shorter(self.client.end_offset(self.topic, self.partition), after)
        return self.done

    def kept(self) -> tuple[int, tuple[OffsetRange, ...]]:
        """Returns what is committed; later records are aborted if the task stops."""
        return self._committed

    def compare(self, tail: Tail) -> None:
        """Does nothing: `skip` uses the source offsets in the progress."""

    def sequence(self, number: int) -> int:
        """Returns the next sequence; each task begins with new ones."""
        return self._next

    def skip(self, offsets: Offsets, number: int) -> None:
        """Skips records that the target has, by the runs in the progress. Raises PipelineError.

        It counts them, which is right only while the source still has all of them.
        """
        runs = self.runs.taken()
        if number + len(offsets) < self.done or sum(run.count for run in runs) < self.done:
            return
        last = runs[-1].source_offset + runs[-1].count - 1
        if int(offsets[-1]) != last:
            raise PipelineError(
                f"{self.where} has {self.done} records of the run, the last from offset {last} of the source,"
                f" where the run reads offset {offsets[-1]}: the source has lost records since the run began;"
                " nothing was written; begin a new run with a topic of its own"
            )

    def append(self, batch: EncodedBatch, offsets: Offsets) -> None:
        """Appends a batch, and commits when enough records have accumulated."""
        if not self._records:
            self._transactions.open()
        super().append(batch, offsets)
        count = batch.end - batch.start
        self._next = (self._next + count) & _SEQUENCE_MASK
        self._records += count
        self._bytes += len(batch.data)
        if self._records >= TRANSACTION_RECORDS or self._bytes >= _TRANSACTION_BYTES:
            self._commit()

    def finish(self) -> None:
        """Commits the rest, and waits until readers of committed records see all of it."""
        if self._records:
            self._commit()
        if self.done > self.found:
            self._wait_until_visible()

    def _wait_until_visible(self) -> None:
        """Waits for the last marker, which a broker writes after it has answered the commit (KIP-98).

        Open transactions of other producers may hide the records for longer; that is theirs.
        """
        until_s = time.monotonic() + self.client.timeout_s
        pause_s = _FIRST_LOOK_S
        while self._has_open_transaction():
            if time.monotonic() + pause_s > until_s:
                self.doubts.append(
                    f"{self.where}: all is committed, but the target has not written the marker of the last"
                    f" transaction within {self.client.timeout_s:g} s: readers of committed records wait"
                )
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    def _has_open_transaction(self) -> bool:
        """Returns whether readers of committed records wait for a marker of this producer.

        What the target does not tell, or not to this user, counts as closed.
        """
        seen = self.client.end_offset(self.topic, self.partition, isolation=READ_COMMITTED)
        if seen >= self._after:
            return False
        try:
            start = self.client.transaction_start(self.topic, self.partition, self.producer.id)
        except (RequestError, UnsupportedByBroker):
            return False
        return start is not None

    def _commit(self) -> None:
        self._take(self._appender.flush())
        self._transactions.commit(self.done, self.runs.taken())
        self._committed = self.done, self.runs.taken()
        self._records = self._bytes = 0


class SharedWriter(_AmongOthers):
    """Writes beside others; the target's producer state and log show the progress."""

    _trace = Trace(0, {})
    _unsearched = 0  # offsets that may contain records of the producer

    def begin(self) -> int:
        """Asks for the last sequence of this producer, and searches for its last batch."""
        producer_id, start = self.delivery.producer_id, self.delivery.start_offset
        end = self.client.end_offset(self.topic, self.partition)
        try:
            last = self.client.last_sequence(self.topic, self.partition, producer_id)
        except UnsupportedByBroker:  # unknown: a new producer begins
            self.producer = BatchProducer(*self.client.init_producer_id())
            self._trace = Trace(max(start, end), {})
            last = None
        else:
            self._trace = trace(self.client, self.topic, self.partition, producer_id, start, end)
        self.done = self.found = max(0 if last is None else last + 1, self._trace.reached)
        self._unsearched = 0 if self.found else self._trace.searched_from - start
        return self.done

    def compare(self, tail: Tail) -> None:
        """Compares the records in the last batch of this producer. Raises PipelineError."""
        if not tail.compare(self.found, self._trace.records):
            self.doubts.append(
                f"the {self.found} records that were there could not be compared with the source: others have"
                " written too much behind them, or they are gone"
            )

    def finish(self) -> None:
        """Waits until all is written, and notes which records may be there twice."""
        super().finish()
        if self._unsearched > 0:
            self.doubts.append(
                "the target does not know this run's producer (any more): all was written from the beginning,"
                f" and up to {min(self._unsearched, self.done)} records may be there twice"
            )

    def skip(self, offsets: Offsets, number: int) -> None:
        """Skips records that the target has; their offsets there are unknown."""
        self.map_is_complete = False


def writer(client: Client, topic: str, partition: int, delivery: Delivery) -> PartitionWriter:
    """Returns the writer of a partition."""
    kinds = {
        TRANSACTIONS: TransactionWriter,
        POSITION: PartitionWriter,
        AT_LEAST_ONCE: SharedWriter,
    }
    return kinds[delivery.mode](client, topic, partition, delivery)
