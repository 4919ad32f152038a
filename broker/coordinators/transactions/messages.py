"""The actions and outcomes of a transaction, and the result of EndTxn in each state, as tables.

Values only: `transaction.py` has the behaviour. Names are those of Apache Kafka's
TransactionCoordinator.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.protocol.errors import InvalidProducerEpoch, ProducerFenced
from tidelog.protocol.transaction_log import NO_EPOCH, Metadata, ProducerIdAndEpoch, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition

LAST_EPOCH: Final = 32_766
"""The last epoch that a client may have; the next one is in markers alone."""
BUMPS_EPOCH_SINCE: Final = 2
"""The transaction.version in which the producer continues with a new epoch after a transaction."""

FEATURE: Final = "transaction.version"
VERSION: Final = 2
"""The finalized level of the feature: what ApiVersions returns, and what time-outs follow."""


class Now(NamedTuple):
    """A time of the broker's clock: ms since the epoch, and ms of the clock that never goes back."""

    wall_ms: int
    steady_ms: int


class Store(NamedTuple):
    """Write this to the log, or its tombstone if the state is DEAD.

    Then call `stored` or `not_stored`.
    """

    metadata: Metadata


class SendMarkers(NamedTuple):
    """Write a marker to these partitions; call `marker_written` for each."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    partitions: frozenset[TopicPartition]


class Answer(NamedTuple):
    """Answer a waiting request."""

    ticket: Any
    outcome: ProducerIdAndEpoch | BrokerError


Action = Store | SendMarkers | Answer


class End(Enum):
    """What EndTxn does."""

    BEGIN = auto()  # prepares the commit or the abort
    DONE = auto()  # is over already: answers as the first time
    LATER = auto()  # CONCURRENT_TRANSACTIONS
    INVALID = auto()  # INVALID_TXN_STATE
    FENCED = auto()  # PRODUCER_FENCED


# By state: what a commit and an abort do. Transactions of transaction.version 0 and 1.
ON_END: Final[Mapping[State, tuple[End, End]]] = {
    State.EMPTY: (End.INVALID, End.INVALID),
    State.ONGOING: (End.BEGIN, End.BEGIN),
    State.PREPARE_COMMIT: (End.LATER, End.INVALID),
    State.PREPARE_ABORT: (End.INVALID, End.LATER),
    State.COMPLETE_COMMIT: (End.DONE, End.INVALID),
    State.COMPLETE_ABORT: (End.INVALID, End.DONE),
}
# By state: what a commit and an abort do in transaction.version 2, with the current epoch ...
ON_END_BUMPING: Final[Mapping[State, tuple[End, End]]] = {
    State.EMPTY: (End.INVALID, End.BEGIN),
    State.ONGOING: (End.BEGIN, End.BEGIN),
    State.PREPARE_COMMIT: (End.FENCED, End.FENCED),
    State.PREPARE_ABORT: (End.FENCED, End.FENCED),
    State.COMPLETE_COMMIT: (End.INVALID, End.BEGIN),
    State.COMPLETE_ABORT: (End.INVALID, End.BEGIN),
}
# ... and with the epoch before, which makes it a retry.
ON_END_AGAIN: Final[Mapping[State, tuple[End, End]]] = {
    State.EMPTY: (End.FENCED, End.FENCED),
    State.ONGOING: (End.FENCED, End.FENCED),
    State.PREPARE_COMMIT: (End.LATER, End.INVALID),
    State.PREPARE_ABORT: (End.INVALID, End.LATER),
    State.COMPLETE_COMMIT: (End.DONE, End.INVALID),
    State.COMPLETE_ABORT: (End.INVALID, End.DONE),
}

COMPLETE: Final[Mapping[State, State]] = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}
"""The state after each state in which markers are written."""


def new(producer_id: int, timeout_ms: int, now: Now) -> Metadata:
    """Returns the metadata of a transactional id that was never seen: epoch 0 is its first one."""
    return Metadata(producer_id, NO_EPOCH, timeout_ms, updated_ms=now.wall_ms)


@contextmanager
def fenced_since(first_version: int, version: int) -> Iterator[None]:
    """Raises InvalidProducerEpoch instead of ProducerFenced, which older versions do not know."""
    try:
        yield
    except ProducerFenced as error:
        if version < first_version:
            raise InvalidProducerEpoch(error.message) from None
        raise
