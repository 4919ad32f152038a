"""The times of one segment, as rolling, retention and lookups need them."""

from __future__ import annotations

from tidelog.storage.time.timestamp import exceeds


class SegmentTimes:
    """The times of a segment's batches, as rolling, retention and lookups need them.

    None means that no record has a time, or that an append time is unknown.
    """

    __slots__ = (
        "aging",
        "created",
        "created_clock",
        "event",
        "first",
        "has_missing",
        "has_unknown",
        "largest",
        "largest_offset",
        "last_append",
        "unreadable_offset",
    )

    def __init__(self) -> None:
        """Begins with a segment of no batches."""
        self.created: int | None = None  # the append time of its first batch
        # What the clock showed then: less where append times were ahead of it. Not in the log. Where
        # the append time is unknown it is the moment of the batch's adoption.
        self.created_clock: int | None = None
        self.last_append: int | None = None
        self.first: int | None = None  # the first record time
        self.largest: int | None = None  # the largest one, and where the index says it is
        self.largest_offset = -1
        self.has_missing = False  # a data record has no time
        self.has_unknown = False  # the append time of some batch is unknown
        # The largest over records of min(record time, append time); the append time stands in
        # where a record has none, and where the record time is in the future.
        self.aging: int | None = None
        # The largest event time, each counted at most as a limit beyond its append time.
        self.event: int | None = None
        # The first offset of the first adopted batch whose compressed set Java clients cannot read.
        self.unreadable_offset: int | None = None

    def note(
        self,
        first: int | None,
        largest: int | None,
        largest_offset: int,
        has_missing: bool,
        append_time_ms: int,
        event_limit: int,
    ) -> None:
        """Takes a data batch into account."""
        age = append_time_ms
        if largest is None:
            self.has_missing = True
        else:
            if has_missing:
                self.has_missing = True
            elif largest < append_time_ms:
                age = largest
            if self.first is None:
                self.first = first
            if self.largest is None or largest > self.largest:
                self.largest = largest
                self.largest_offset = largest_offset
            largest = min(largest, event_limit)
            if self.event is None or largest > self.event:
                self.event = largest
        if self.aging is None or age > self.aging:
            self.aging = age

    def note_control(self, append_time_ms: int) -> None:
        """Takes a control batch into account: it has an age by append time, and no event time."""
        if exceeds(append_time_ms, self.aging):
            self.aging = append_time_ms

    def note_append(self, append_time_ms: int | None, clock_ms: int | None = None) -> None:
        """Takes the append time of a batch into account, and the clock's reading at the append.

        None means unknown.
        """
        if append_time_ms is None:
            self.has_unknown = True
            return
        self.last_append = append_time_ms
        if self.created is None:
            self.created = append_time_ms
            if self.created_clock is None:
                self.created_clock = clock_ms

    def note_adopted(self, adopted_ms: int) -> None:
        """Takes a batch into account whose append time is unknown, and when it was adopted."""
        self.has_unknown = True
        self.last_append = adopted_ms
        if self.created is None and self.created_clock is None:
            self.created_clock = adopted_ms

    def copy(self) -> SegmentTimes:
        """Returns an independent copy."""
        other = SegmentTimes()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentTimes) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"SegmentTimes({', '.join(fields)})"
