"""The errors of groups and their coordinators, as exceptions; `errors.py` has all the others."""

from __future__ import annotations

from tidelog.protocol.errors import BrokerError, ErrorCode


class CoordinatorNotAvailable(BrokerError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """There is no coordinator for this key yet."""


class CoordinatorLoadInProgress(BrokerError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The coordinator is loading the state of this key."""


class NotCoordinator(BrokerError, code=ErrorCode.NOT_COORDINATOR):
    """Another broker coordinates this key."""


class InvalidGroupId(BrokerError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is empty but required."""


class GroupIdNotFound(BrokerError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """The group does not exist."""


class UnknownMemberId(BrokerError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group has no such member; a JoinGroup response carries `member_id` if it is not None."""

    def __init__(self, message: str | None = None, member_id: str | None = None) -> None:
        super().__init__(message)
        self.member_id = member_id


class IllegalGeneration(BrokerError, code=ErrorCode.ILLEGAL_GENERATION):
    """The member's generation is not that of the group."""


class RebalanceInProgress(BrokerError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing: the member must join again."""


class InconsistentGroupProtocol(BrokerError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member has no protocol in common with the group, or named none."""


class InvalidSessionTimeout(BrokerError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """The session timeout is outside the limits of the broker."""


class MemberIdRequired(BrokerError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """The member must join again with this id (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id}")
        self.member_id = member_id


class FencedInstanceId(BrokerError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member has this instance id now (KIP-345); `member_id` as in UnknownMemberId."""

    def __init__(self, message: str | None = None, member_id: str | None = None) -> None:
        super().__init__(message)
        self.member_id = member_id


class GroupMaxSizeReached(BrokerError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group already has group.max.size members."""


class NonEmptyGroup(BrokerError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group has members, so it cannot be deleted."""


class GroupSubscribedToTopic(BrokerError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """The group subscribes to the topic, so its offsets cannot be deleted (KIP-496)."""


class OffsetMetadataTooLarge(BrokerError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata of an offset exceeds offset.metadata.max.bytes."""


class InvalidCommitOffsetSize(BrokerError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The offsets of one commit do not fit into one batch of the log."""
