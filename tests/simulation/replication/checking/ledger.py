"""What was promised of one partition: every batch that was committed or acknowledged.

It is written from what leaders did, never from what they say. Replicas that stopped uncleanly are
`wounded` until enough others hold everything: a loss is excused only if as many of them as
min.insync.replicas are wounded at once. After an unclean election the promises begin anew
(`begin_anew`), and a replica's own past counts again when it is in the in-sync replicas of the new
leader.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.replication.checking.log import NO_TIME, key_of

if TYPE_CHECKING:
    from tests.simulation.replication.brokers.views import Rules
    from tests.simulation.replication.checking.log import Batch, Log


class BrokenInvariantError(AssertionError):
    """An invariant does not hold; the text begins with its number."""


class Entry(NamedTuple):
    """A batch that may never change again, with what lies beside it."""

    batch: Batch
    time: int
    epoch: int


class Ledger:
    """The promises of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.bases: list[int] = []
        self.end = 0
        self.start = 0  # the largest log start of a leader
        self.most_deleted = 0  # by a leader that stopped, or whose log failed, in the middle
        self.min_isr = 1
        self.wounded: set[int] = set()
        self.restarted: set[int] = set()  # stopped uncleanly, and lost nothing: all was flushed
        self.unclean_epoch = -1  # of the last unclean election; older leaders promise nothing
        self.is_anew = False  # nothing has been promised since
        self.unjudged: set[int] = set()  # replicas whose past is not that of the new leader
        self.marks: list[tuple[int, int]] = []  # resets of the append clock: offset, and to when
        self.sequences: dict[int, tuple[int, int, int]] = {}
        self.max_event = NO_TIME
        # Ends to which the high watermark has moved, and what min.insync.replicas was then.
        self.committed_with: dict[int, int] = {}
        self.losses = 0  # how often a loss was excused
        self.is_compacted = False
        self._last: dict[int, int] = {}  # by key: the base offset of its last record
        self.untimed: set[int] = set()  # base offsets of batches whose append times were lost

    def broken(self, number: int, what: str) -> BrokenInvariantError:
        """Returns the error for a broken invariant of this partition."""
        return BrokenInvariantError(f"invariant {number}: {self.name}: {what}")

    @property
    def is_excused(self) -> bool:
        """Whether so many replicas have lost data that nothing is promised."""
        return bool(self.wounded) and len(self.wounded | self.restarted) >= self.min_isr

    # --- writing ----------------------------------------------------------------------------------

    def add(self, log: Log, up_to: int) -> None:
        """Notes what a leader has committed: everything in its log below an offset."""
        number = log.number_at(self.end)
        for batch in log.batches[number:]:
            if batch.end > up_to:
                break
            if batch.base < self.end:
                raise self.broken(
                    1, f"{batch} was committed where the log was to go on at {self.end}"
                )
            self._add(Entry(batch, log.append_time(batch.base), epoch_of(log, batch.base)))

    def _add(self, entry: Entry) -> None:
        batch, time, epoch = entry
        if time == NO_TIME and batch.base not in self.untimed:
            raise self.broken(9, f"{batch} has no append time")
        if self.entries and time != NO_TIME:
            last = self.entries[-1]
            is_marked = any(last.batch.end <= mark <= batch.base for mark, _ in self.marks)
            if time < last.time and not is_marked:
                raise self.broken(9, f"{batch} was appended at {time}, {last.batch} at {last.time}")
            if epoch < last.epoch:
                raise self.broken(5, f"{batch} has epoch {epoch} after {last.epoch}")
        if batch.stamp is not None and time not in (batch.stamp, NO_TIME):
            raise self.broken(9, f"{batch} was appended at {time} and is stamped otherwise")
        if batch.epoch >= 0 and batch.epoch != epoch:
            raise self.broken(5, f"the cache says epoch {epoch} of {batch}")
        self._check_sequence(batch)
        self.entries.append(entry)
        self.bases.append(batch.base)
        self._last[key_of(batch.value)] = batch.base
        self.end = batch.end
        self.max_event = max(self.max_event, batch.record_time)

    def _check_sequence(self, batch: Batch) -> None:
        if batch.producer < 0:
            return
        epoch, last, end = self.sequences.get(batch.producer, (-1, -1, 0))
        is_next = batch.producer_epoch == epoch and batch.sequence == last + 1
        is_first = batch.producer_epoch > epoch and batch.sequence == 0
        is_unknown = end <= self.start  # nobody remembers a producer whose records are deleted
        is_unknown |= self.is_compacted and self.losses > 0  # what began anew may have gaps
        if not is_next and not is_first and not is_unknown:
            raise self.broken(12, f"{batch} comes after sequence {last} of epoch {epoch}")
        last = batch.sequence + batch.count - 1
        self.sequences[batch.producer] = batch.producer_epoch, last, batch.end

    def begin_anew(self, leader_epoch: int, brokers: list[int]) -> None:
        """Forgets all promises: a replica leads that was not complete."""
        self.losses += 1
        self.committed_with.clear()
        self.entries, self.bases, self.end = [], [], 0
        self.sequences, self._last = {}, {}
        self.max_event = NO_TIME
        self.unclean_epoch = leader_epoch
        self.is_anew = True
        self.unjudged = set(brokers)

    def begin_with(self, log: Log) -> None:
        """Promises again what is in a log, which enough replicas have now."""
        self.is_anew = False
        self.end = log.batches[0].base if log.batches else log.end

    def settle(self, isr: set[int], full: int) -> None:
        """Takes the in-sync replicas into account that are stored now."""
        if len(isr - self.wounded - self.restarted) >= full:
            self.wounded &= isr
            self.restarted &= isr
            self.min_isr = full

    # --- reading ----------------------------------------------------------------------------------

    def numbers(self, first: int, end: int) -> range:
        """Returns the numbers of the entries between two offsets."""
        return range(bisect_left(self.bases, first), bisect_left(self.bases, end))

    def difference(self, log: Log, first: int, end: int) -> str:
        """Returns how a log differs from the promises between two offsets; empty if it does not.

        Nothing is promised of what a leader has deleted.
        """
        first = max(first, log.start, self.start)
        if not self.is_compacted:
            first = max(first, log.batches[0].base if log.batches else log.end)
        for number in self.numbers(first, end):
            entry = self.entries[number]
            base = entry.batch.base
            at = log.number_at(base)
            here = log.batches[at] if at < len(log.batches) else None
            if self.may_lack(entry.batch) and (here is None or here.base > base):
                continue
            if here != entry.batch:
                return f"at {base} is {here} instead of {entry.batch}"
            if not self.is_same_time(base, log.append_time(base), entry.time):
                return f"append time of {base} is {log.append_time(base)}, not {entry.time}"
            if base >= log.start and epoch_of(log, base) != entry.epoch:
                return f"epoch of {base} is {epoch_of(log, base)}, not {entry.epoch}"
        return ""

    def may_lack(self, batch: Batch) -> bool:
        """Returns whether compaction may have removed a batch: a later one has its key."""
        return self.is_compacted and batch.base < self._last.get(key_of(batch.value), 0)

    def note_untimed(self, log: Log, *, is_wounded: bool) -> None:
        """Notes which append times a new leader has lost: only those that it may have lost."""
        lost = [base for base, time in log.times if time == NO_TIME and base not in self.untimed]
        for base in lost:
            if base < self.end and not is_wounded:
                raise self.broken(9, f"a leader has lost the append time of {base}")
        self.untimed.update(lost)

    def is_same_time(self, base: int, one: int, other: int) -> bool:
        """Returns whether two append times of a batch are equal; one that was lost equals any."""
        return one == other or (base in self.untimed and NO_TIME in (one, other))

    def due(self, first: int, rules: Rules, now_ms: int) -> int:
        """Returns the offset of the first batch that may not be deleted yet, or the end."""
        event_ms, append_ms = rules.retention_event_ms, rules.retention_ms
        for number in self.numbers(first, self.end):
            batch, time, _ = self.entries[number]
            time = min([time, *(to_ms for mark, to_ms in self.marks if batch.end <= mark)])
            is_late = event_ms >= 0 and batch.record_time + event_ms < self.max_event
            is_old = append_ms >= 0 and time + append_ms < now_ms
            if not is_late and not is_old:
                return batch.base
        return self.end

    def lookup(self, first: int, end: int, time: int, *, by_append: bool) -> int | None:
        """Returns the first base offset with a time at or after one, by trying all."""
        for number in self.numbers(first, end):
            entry = self.entries[number]
            if (entry.time if by_append else entry.batch.record_time) >= time:
                return entry.batch.base
        return None


def epoch_of(log: Log, offset: int) -> int:
    """Returns the epoch of an offset by a log's epoch entries."""
    number = bisect_right(log.epochs, offset, key=lambda entry: entry.start_offset) - 1
    return log.epochs[number].epoch if number >= 0 else -1
