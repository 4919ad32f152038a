"""The broker's exceptions, each with the error code that it becomes on the wire.

Storage and handlers raise a subclass of `BrokerError`. A handler's loop over partitions and the
dispatcher turn it into its `code`; no other code writes error codes. The codes, with their
sentences, are in `error_codes` (re-exported here), the errors of groups in `group_errors`, and
`error_class` finds the class of a code. Two classes for one code raise TypeError when their module
is imported, unless the second is a subclass of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tidelog.protocol.error_codes import ErrorCode as ErrorCode  # noqa: PLC0414 - re-exported
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Sequence


class RecordError(NamedTuple):
    """Why one record made its whole append fail (in responses of Produce v8+, KIP-467)."""

    batch_index: int
    message: str


class BrokerError(Exception):
    """An error with a code of the protocol; raise one of the subclasses.

    `message` is the given text, or the sentence of the code. `record_errors` names the records that
    made an append fail.
    """

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init_subclass__(cls, *, code: ErrorCode) -> None:
        """Declares the code of a subclass. Raises TypeError if a class other than a base has it."""
        super().__init_subclass__()
        known = CLASSES.setdefault(code, cls)
        if not issubclass(cls, known):
            raise TypeError(f"{code.name} is raised by {known.__name__} already")
        cls.code = code

    def __init__(
        self, message: str | None = None, *, record_errors: Sequence[RecordError] = ()
    ) -> None:
        self.message = self.code.sentence if message is None else message
        self.record_errors = tuple(record_errors)
        super().__init__(self.message)

    @property
    def named(self) -> str:
        """The name of the code and the message, for a line of the log."""
        return f"{self.code.name}: {self.message}"


CLASSES: dict[ErrorCode, type[BrokerError]] = {}
"""The exception of each code, as far as their modules are imported (`error_class` imports all)."""


class UnknownServerError(BrokerError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """An unexpected error, which has been logged."""


# --- records -------------------------------------------------------------------------------------


class CorruptMessage(BrokerError, code=ErrorCode.CORRUPT_MESSAGE):
    """Bytes that should be records fail a checksum, a length or a count."""


class UnpackedTooLarge(CorruptMessage, code=ErrorCode.CORRUPT_MESSAGE):
    """A compressed batch exceeds the caller's limit when it is decompressed."""


class MessageTooLarge(BrokerError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A batch exceeds max.message.bytes."""


class RecordListTooLarge(BrokerError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """A record set exceeds segment.bytes, so no segment can take it."""


class InvalidTimestamp(BrokerError, code=ErrorCode.INVALID_TIMESTAMP):
    """A timestamp outside the window, or a LogAppendTime bit set by a client (KIP-32).

    `outside` is the number of records outside the window, `timestamp` the time of the first of
    them.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        record_errors: Sequence[RecordError] = (),
        outside: int = 0,
        timestamp: int = NO_TIMESTAMP,
    ) -> None:
        super().__init__(message, record_errors=record_errors)
        self.outside = outside
        self.timestamp = timestamp


class InvalidRecord(BrokerError, code=ErrorCode.INVALID_RECORD):
    """Records with a right checksum that break a rule: their number, order, magic or keys."""


class UnsupportedForMessageFormat(BrokerError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """The topic's message format cannot hold a field of the records."""


class UnsupportedCompressionType(BrokerError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """The codec is too new for the version of the request (KIP-110)."""


# --- producers -----------------------------------------------------------------------------------


class OutOfOrderSequenceNumber(BrokerError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A batch does not continue the sequence of its producer (KIP-98)."""


class DuplicateSequenceNumber(BrokerError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """A batch repeats one that is older than those the partition remembers."""


class InvalidProducerEpoch(BrokerError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A batch has an older epoch than its producer."""


class UnknownProducerId(BrokerError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """A sequence continues for a producer that this partition no longer knows."""


class ProducerFenced(BrokerError, code=ErrorCode.PRODUCER_FENCED):
    """A newer producer has taken over the transactional id."""


class InvalidTxnState(BrokerError, code=ErrorCode.INVALID_TXN_STATE):
    """The operation is not allowed in the state of the transaction."""


class InvalidProducerIdMapping(BrokerError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """Producer id and transactional id do not belong together."""


class InvalidTransactionTimeout(BrokerError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """transaction.timeout.ms is above transaction.max.timeout.ms."""


class ConcurrentTransactions(BrokerError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    """The previous transaction of this id is not completed yet."""


class TransactionCoordinatorFenced(BrokerError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """A newer coordinator has written a marker for this producer."""


class TransactionAbortable(BrokerError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction cannot be committed; the producer may abort it and begin another one."""


class TransactionalIdNotFound(BrokerError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """No transaction was ever begun under this id."""


class OperationNotAttempted(BrokerError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """Nothing was changed, because another partition of the request was refused."""


class TopicAuthorizationFailed(BrokerError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The client has no right to do this to the topic."""


class GroupAuthorizationFailed(BrokerError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The client has no right to do this to the group."""


class ClusterAuthorizationFailed(BrokerError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The client has no right to do this to the cluster."""


class TransactionalIdAuthorizationFailed(
    BrokerError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    """Transactional records without a transactional id, or with one that is not the client's."""


class InvalidRequiredAcks(BrokerError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """acks is not -1, 0 or 1."""


class NotEnoughReplicas(BrokerError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas in sync than min.insync.replicas; nothing was written."""


class NotEnoughReplicasAfterAppend(BrokerError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """The in-sync replicas became fewer than min.insync.replicas while the append waited."""


# --- partitions and their leaders ----------------------------------------------------------------


class OffsetOutOfRange(BrokerError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """An offset before the log start or after the end that the client may read."""


class UnknownTopicOrPartition(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """This broker has no such topic, or no such partition of it."""


class UnknownTopicId(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """No topic has this id."""


class InconsistentTopicId(BrokerError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """The id is not that of the topic, for example because the topic was created again."""


class LeaderNotAvailable(BrokerError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition has no leader yet."""


class NotLeaderOrFollower(BrokerError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """Another broker leads the partition."""


class ReplicaNotAvailable(BrokerError, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    """The partition has no replica here that could serve the request."""


class FencedLeaderEpoch(BrokerError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The client has an older leader epoch (KIP-320)."""


class UnknownLeaderEpoch(BrokerError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The client has a newer leader epoch than this broker (KIP-320)."""


class OffsetNotAvailable(BrokerError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """The high watermark of a new leader has not caught up (KIP-207)."""


class KafkaStorageError(BrokerError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """A read from or a write to disk failed."""


class LogDirNotFound(BrokerError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """The named log directory is not one of log.dirs."""


class FetchSessionIdNotFound(BrokerError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    """The fetch session never existed or has been evicted (KIP-227)."""


class InvalidFetchSessionEpoch(BrokerError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    """Client and broker have different epochs of the fetch session (KIP-227)."""


class FetchSessionTopicIdError(BrokerError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    """One fetch session is used both with topic ids and with names (KIP-516)."""


# --- topics, settings, the cluster ---------------------------------------------------------------


class InvalidTopic(BrokerError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic name is empty, too long, or has characters outside [a-zA-Z0-9._-]."""


class TopicAlreadyExists(BrokerError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of this name exists already."""


class TopicDeletionDisabled(BrokerError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """delete.topic.enable is false."""


class ThrottlingQuotaExceeded(BrokerError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """The client has changed so many partitions that its quota is used up for now (KIP-599)."""


class InvalidPartitions(BrokerError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is zero, negative or too large."""


class InvalidReplicationFactor(BrokerError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """More replicas are requested than there are brokers, or fewer than one."""


class InvalidReplicaAssignment(BrokerError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """An explicit assignment has gaps, repeats a broker or names an unknown broker."""


class InvalidConfig(BrokerError, code=ErrorCode.INVALID_CONFIG):
    """A setting is unknown, of the wrong type, out of range, or in conflict with another."""


class PolicyViolation(BrokerError, code=ErrorCode.POLICY_VIOLATION):
    """The request is valid but a policy of this broker forbids it."""


class ReassignmentInProgress(BrokerError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition is already being reassigned."""


class ElectionNotNeeded(BrokerError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The partition already has the requested leader."""


class PreferredLeaderNotAvailable(BrokerError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The log of the only replica is offline."""


class EligibleLeadersNotAvailable(BrokerError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """No replica of the partition could lead it."""


class InvalidRegularExpression(BrokerError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """A regular expression has a syntax error."""


class NoReassignmentInProgress(BrokerError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """There is no reassignment to cancel."""


class BrokerIdNotRegistered(BrokerError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """No broker is registered under this id."""


class MismatchedEndpointType(BrokerError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """The request is for a controller, but the listener is a broker's."""


class UnsupportedEndpointType(BrokerError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """There is no endpoint of this type."""


class NotController(BrokerError, code=ErrorCode.NOT_CONTROLLER):
    """Only the controller may do this, and another broker is the controller."""


class IllegalSaslState(BrokerError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """The request does not fit the state of the connection's authentication."""


class SecurityDisabled(BrokerError, code=ErrorCode.SECURITY_DISABLED):
    """No authorizer is configured, so there are no rules to show or change."""


# --- requests ------------------------------------------------------------------------------------


class InvalidRequest(BrokerError, code=ErrorCode.INVALID_REQUEST):
    """A request that can be decoded but contradicts itself."""


class InvalidUpdateVersion(BrokerError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """A feature cannot have the level that a client wants."""


class UnsupportedVersion(BrokerError, code=ErrorCode.UNSUPPORTED_VERSION):
    """This broker does not know the version, or a value of a later version."""


class RequestTimedOut(BrokerError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The request's timeout has passed."""


class ResourceNotFound(BrokerError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """The named resource does not exist."""


class DuplicateResource(BrokerError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The request names one resource twice."""


class RebootstrapRequired(BrokerError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The client expects another cluster or broker (KIP-1242)."""
