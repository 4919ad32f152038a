"""Appends ready batches to one partition, several requests in flight, each batch once and in order.

An `Appender` sends each batch with the producer id and the sequences in it. When a connection
breaks, a leader moves or a broker restarts, it sends all unanswered batches again, unchanged. The
broker remembers the producer's sequences and appends only the batches that it lacks. So as long as
the partition exists, no batch is lost and none is appended twice. Permanent errors are raised:
`SequenceGap` if the partition has other records of this producer than the sequences imply, `Fenced`
if a newer producer has taken over, else RequestError.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client import apis
from tidelog.client.calls.records import produce_request, read_produced
from tidelog.client.errors import (
    ClusterUnreachable,
    ConnectionBroken,
    Fenced,
    RequestError,
    SequenceGap,
    UnsupportedByBroker,
    VersionMismatch,
)
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client.sync_client import Client
    from tidelog.client.sync_connection import Connection
    from tidelog.protocol.records.column_batches import EncodedBatch

IN_FLIGHT: Final = 5  # as many as a broker remembers of a producer to detect duplicates
_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_GAP: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
UNKNOWN_OFFSET: Final = -1


class Appended(NamedTuple):
    """A batch that is in the log; the offset is -1 if the broker does not report it."""

    batch: EncodedBatch
    base_offset: int
    append_time_ms: int


class Appender:
    """Appends to one partition. `send` and `flush` return batches that were answered, in order."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int,
        *,
        transactional_id: str | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._client = client
        self.topic = topic
        self.partition = partition
        self._transactional_id = transactional_id
        self._most = in_flight
        self._connection: Connection | None = None
        self._waiting: deque[EncodedBatch] = deque()  # sent on the connection, or to send again

    def send(self, batch: EncodedBatch) -> list[Appended]:
        """Sends a batch; waits for the oldest answers if too many requests are in flight."""
        done = []
        while len(self._waiting) >= self._most:
            done.append(self._receive())
        self._waiting.append(batch)
        try:
            if self._connection is not None:
                self._send(self._connection, batch)
            else:
                self._send_again()
        except ConnectionBroken:
            self._recover()
        return done

    def flush(self) -> Iterator[Appended]:
        """Yields every answer when it arrives; answers before a refusal are valid."""
        while self._waiting:
            yield self._receive()

    def _receive(self) -> Appended:
        """Returns the answer to the oldest batch, which may be sent several times."""
        deadline: float | None = None  # counts from the first failure
        pause_s = _PAUSE_S
        where = f"{self.topic}-{self.partition}"
        while True:
            try:
                connection = self._connection or self._send_again()
                answer = connection.receive(wait_s=0.0)
                result = read_produced(answer, where)
                return Appended(self._waiting.popleft(), result.base_offset, result.append_time_ms)
            except ConnectionBroken as error:
                deadline = deadline or time.monotonic() + self._client.timeout_s
                if time.monotonic() > deadline:
                    raise ClusterUnreachable(str(error)) from error
                self._recover()
            except RequestError as error:
                if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return Appended(self._waiting.popleft(), UNKNOWN_OFFSET, -1)
                if error.code in _FENCED or self._has_ended(error):
                    raise Fenced(
                        f"{where}: a newer task of this run writes here ({error})"
                    ) from error
                if error.code in _GAP:
                    raise SequenceGap(str(error)) from error
                deadline = deadline or time.monotonic() + self._client.timeout_s
                if not error.retriable or time.monotonic() > deadline:
                    raise
                self._recover()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _has_ended(self, error: RequestError) -> bool:
        """Whether the transaction has been ended elsewhere: nobody but a newer task ends it."""
        return self._transactional_id is not None and error.code is ErrorCode.INVALID_TXN_STATE

    def _send(self, connection: Connection, batch: EncodedBatch) -> None:
        request = produce_request(
            self.topic, self.partition, batch.data, transactional_id=self._transactional_id
        )
        try:
            connection.send(request, apis.PRODUCE)
        except VersionMismatch as error:
            raise UnsupportedByBroker(str(error)) from error

    def _send_again(self) -> Connection:
        """Sends everything unanswered, in order, to the current leader. Raises ConnectionBroken.

        The connection is the client's, so nothing else may be asked on it while answers are
        outstanding.
        """
        client = self._client
        connection = client.leader(self.topic, self.partition)
        self._connection = connection
        for batch in self._waiting:
            self._send(connection, batch)
        return connection

    def _recover(self) -> None:
        """Drops the connection; batches in flight are sent again, even if they were appended."""
        self._connection = None
        self._client.close()
