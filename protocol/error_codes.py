"""Every error code of the Kafka protocol, declared once.

A member of `ErrorCode` is the int on the wire. It also has `retriable`, which says whether a client
may repeat the same request (as Kafka's clients classify it), and a sentence for people. Codes and
names are Kafka's and never change meaning. Codes that this broker never returns are listed too, so
that logs and tests can name whatever a peer sends.

Source: the error table of Apache Kafka 4.4 (3.9 is a prefix of it).
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorCode(enum.IntEnum):
    """One error code: an int16 on the wire, with `retriable` and `sentence`."""

    retriable: bool
    sentence: str

    def __new__(cls, code: int, sentence: str, retriable: str = "") -> Self:
        """Creates the member `code`; the third item is "retry" if a retry may succeed."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        member.retriable = retriable == "retry"
        return member

    UNKNOWN_SERVER_ERROR = -1, "The broker failed in a way it did not foresee; its log says more."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside what the partition holds."
    CORRUPT_MESSAGE = 2, "The records fail their checksum or their form is broken.", "retry"
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker has no such topic or partition.", "retry"
    INVALID_FETCH_SIZE = 4, "The fetch size makes no sense."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", "retry"
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "This broker does not lead the partition, or has no replica of it.",
        "retry",
    )
    REQUEST_TIMED_OUT = 7, "The request was not finished within its time limit.", "retry"
    BROKER_NOT_AVAILABLE = 8, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, "This broker has no usable replica of the partition.", "retry"
    MESSAGE_TOO_LARGE = 10, "A batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, "Another broker has become the controller since."
    OFFSET_METADATA_TOO_LARGE = 12, "The note attached to the committed offset is too long."
    NETWORK_EXCEPTION = 13, "The connection broke before an answer came.", "retry"
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its state.", "retry"
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator to turn to yet.", "retry"
    NOT_COORDINATOR = 16, "Another broker coordinates this group or transaction.", "retry"
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not allowed, or the topic cannot be used so."
    RECORD_LIST_TOO_LARGE = 18, "The records do not fit into one segment of the log."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas are in sync to accept the write.", "retry"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The records were written, but too few replicas have them.",
        "retry",
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1 (all), 0 or 1."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the rest of the group."
    INVALID_GROUP_ID = 24, "The group id is empty or not allowed."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the limits of the broker."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The commit is too large to store."
    TOPIC_AUTHORIZATION_FAILED = 29, "The principal may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "The principal may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "The principal may not do this in the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside the window the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The broker does not know this version of the request."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not possible."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor does not fit the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The assignment of replicas to brokers is not possible."
    INVALID_CONFIG = 40, "A setting is unknown or its value is not allowed."
    NOT_CONTROLLER = 41, "Another broker is the controller.", "retry"
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The topic's message format cannot carry this."
    POLICY_VIOLATION = 44, "A policy of the broker forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence numbers leave a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, "The producer writes with an epoch that has ended."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above what the broker allows."
    CONCURRENT_TRANSACTIONS = 51, "The transaction is still being completed.", "retry"
    TRANSACTION_COORDINATOR_FENCED = 52, "The coordinator that wrote this has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "The principal may not use the transactional id."
    SECURITY_DISABLED = 54, "The broker runs without this security feature."
    OPERATION_NOT_ATTEMPTED = 55, "Nothing was tried, because an earlier part had failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed while the log was read or written.", "retry"
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, "The broker remembers nothing of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being moved already."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token is not known here."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns nor may renew the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Tokens cannot be requested over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "The principal may not use the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has run out."
    INVALID_PRINCIPAL_TYPE = 67, "The type of principal is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no group of this id."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker keeps no fetch session of this id.", "retry"
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session expects another epoch.", "retry"
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name asked through.", "retry"
    TOPIC_DELETION_DISABLED = 73, "Topics cannot be deleted on this broker."
    FENCED_LEADER_EPOCH = 74, "The client's leader epoch is older than the leader's.", "retry"
    UNKNOWN_LEADER_EPOCH = 75, "The client's leader epoch is newer than the leader's.", "retry"
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This version of the request cannot carry the compression."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "A new leader does not know its high watermark yet.", "retry"
    MEMBER_ID_REQUIRED = 79, "Join again with the member id given in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", "retry"
    GROUP_MAX_SIZE_REACHED = 81, "The group takes no more members."
    FENCED_INSTANCE_ID = 82, "Another member has registered under this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica may become the leader.", "retry"
    ELECTION_NOT_NEEDED = 84, "The partition has the leader it should have.", "retry"
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group still reads the topic."
    INVALID_RECORD = 87, "A record breaks a rule of its format or of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction are pending.", "retry"
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up for now.", "retry"
    PRODUCER_FENCED = 90, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The peer does not belong to the expected voters."
    INVALID_UPDATE_VERSION = 95, "The version to update to is not possible."
    FEATURE_UPDATE_FAILED = 96, "The features could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker has no topic of this id.", "retry"
    DUPLICATE_BROKER_REGISTRATION = 101, "Another broker is registered under this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker is registered under this id."
    INCONSISTENT_TOPIC_ID = 103, "The topic has another id than the request says.", "retry"
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic ids and names.", "retry"
    INELIGIBLE_REPLICA = 107, "A replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, "The change was made, and it made another broker the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is only in tiered storage any more."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch has ended; give up all and join again."
    UNRELEASED_INSTANCE_ID = 111, "The instance id still belongs to a member that has not left."
    UNSUPPORTED_ASSIGNOR = 112, "The group cannot use this assignor."
    STALE_MEMBER_EPOCH = 113, "The member has not heard of its new epoch yet; heartbeat first."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is out of date."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The registration of the broker was refused."
    TRANSACTION_ABORTABLE = 120, "The transaction failed; abort it and go on."
    INVALID_RECORD_STATE = 121, "The record cannot be acknowledged in its present state."
    SHARE_SESSION_NOT_FOUND = 122, "There is no such share session.", "retry"
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session expects another epoch.", "retry"
    FENCED_STATE_EPOCH = 124, "The share state has moved on to another epoch."
    INVALID_VOTER_KEY = 125, "The voter's key is not the key of this replica."
    DUPLICATE_VOTER = 126, "The replica votes already."
    VOTER_NOT_FOUND = 127, "The replica is not one of the voters."
    INVALID_REGULAR_EXPRESSION = 128, "The pattern is not a valid regular expression."
    REBOOTSTRAP_REQUIRED = 129, "The client knows an outdated cluster; it must bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology of the application is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "A newer topology has replaced this one."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are too many share sessions.", "retry"
    GROUP_DELETION_FAILED = 134, "Deleting the group went wrong; see the message beside it."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, "The topology description was not stored."
    CONTROLLER_ID_NOT_REGISTERED = 136, "No controller is registered under this id."


ERRORS: Mapping[int, ErrorCode] = MappingProxyType({int(code): code for code in ErrorCode})
"""Every error code by its number, for numbers that a peer sends: others are missing."""
