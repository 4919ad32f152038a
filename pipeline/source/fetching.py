"""The fetches of one split: from its leader, or from the replica that the leader names (KIP-392).

A client without a rack reads from the leader. With a rack the leader may name an in-sync replica in
that rack, which is read from as long as it sends records. If it fails, refuses, or sends nothing,
the rest of the split comes from the leader. A leader that changes is looked up again by the client,
and the next one is asked for the same offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client import READ_COMMITTED as ISOLATED
from tidelog.client import READ_UNCOMMITTED as OPEN
from tidelog.client import RequestError
from tidelog.client.calls.records import NO_REPLICA, fetch_records
from tidelog.client.flow import Node
from tidelog.pipeline.source.splits import READ_COMMITTED, SourceError
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client import Client, Fetched
    from tidelog.client.flow import Call
    from tidelog.pipeline.source.reading import ReadOptions
    from tidelog.pipeline.source.splits import Split

FETCH_BYTES: Final = 4 << 20
_MOST_NAMED: Final = 3  # replicas that are named one after another, before the leader is asked


class Fetches:
    """Asks for the batches of a split, one request at a time."""

    def __init__(self, client: Client, split: Split, options: ReadOptions) -> None:
        self._client = client
        self._split = split
        self._isolation = ISOLATED if options.isolation == READ_COMMITTED else OPEN
        self._rack = options.rack
        self._replica = NO_REPLICA
        self.where = f"{split.topic}-{split.partition}"

    def begin(self, offset: int) -> Callable[[], Fetched]:
        """Asks for the batches from an offset on; returns a function that waits for them.

        That raises SourceError if the log does not have the offset, and the client's errors.
        """
        end = self._begun(offset)
        return lambda: self._answer(end, offset)

    def _begun(self, offset: int) -> Callable[[], Fetched]:
        """Sends a fetch to the replica that is read from; returns a function that waits for it."""
        call = self._call(offset)
        if self._replica == NO_REPLICA:
            return self._client.begin(call)
        return self._client.begin(
            call._replace(target=Node(self._replica)), otherwise=lambda: self._of_leader(offset)
        )

    def check_end(self, fetched: Fetched) -> None:
        """Checks, if an answer is empty, that the log still has the whole split.

        A new leader learns the high watermark from its followers. Until then a fetch is told a
        smaller one, but ListOffsets waits for it (KIP-207). Raises SourceError if the log is
        shorter now, and the client's errors.
        """
        split, is_isolated = self._split, self._isolation == ISOLATED
        end = fetched.last_stable_offset if is_isolated else fetched.high_watermark
        if end < split.end_offset:
            end = self._client.end_offset(split.topic, split.partition, isolation=self._isolation)
        if end < split.end_offset:
            raise SourceError(
                f"{self.where} ends at offset {end} now: {split.end_offset - 1} was there when it was"
                " planned"
            )

    def _answer(self, end: Callable[[], Fetched], offset: int) -> Fetched:
        try:
            fetched = end()
            for _ in range(_MOST_NAMED):
                if fetched.preferred_replica == NO_REPLICA:
                    break
                self._replica = fetched.preferred_replica
                fetched = self._begun(offset)()
            if self._replica != NO_REPLICA and not len(fetched.records):
                return self._client.perform(self._of_leader(offset))
        except RequestError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise SourceError(
                f"{self.where} has no offset {offset} any more, which was there when it was planned:"
                " retention deleted it, or the log was truncated"
            ) from error
        return fetched

    def _of_leader(self, offset: int) -> Call[Fetched]:
        """Returns the call to the leader, from which the rest of the split is read too."""
        self._replica, self._rack = NO_REPLICA, ""
        return self._call(offset)

    def _call(self, offset: int) -> Call[Fetched]:
        return fetch_records(
            self._split.topic,
            self._split.partition,
            offset,
            max_bytes=FETCH_BYTES,
            isolation=self._isolation,
            with_append_times=True,
            rack=self._rack,
        )
