"""Decides which appends and commits are admitted: one decision for every codec of a request.

Produce and OffsetCommit are each decoded in two ways, with message objects and in place. Both ways call these
functions, and decide nothing themselves. The result is one of three: admitted; refused, which raises; or a
future of the admission, where another broker has to verify a transaction first. A codec that cannot wait
drops the future and leaves the request to the other, which calls again: the calls are idempotent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.verification import (
    ATTRIBUTES_AT,
    MAGIC_AT,
    TRANSACTIONAL,
    verify,
)
from tidelog.broker.settings import INTERNAL_TOPICS
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.errors import (
    InvalidRequiredAcks,
    InvalidTopic,
    NotLeaderOrFollower,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tidelog.protocol.group_errors import OffsetMetadataTooLarge

if TYPE_CHECKING:
    import asyncio
    from uuid import UUID

    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.transactions.verification import Verified
    from tidelog.broker.security.session import Session
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.partition import Partition

# Read once: reading a member of an enumeration costs a call, and every produce and commit needs one.
_READ, _WRITE = Operation.READ, Operation.WRITE
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


def admit_produce(
    services: Services,
    session: Session,
    topic: str | UUID,
    index: int,
    acks: int,
    transactional_id: str | None,
    records: Buffer,
    version: int,
) -> Partition | Verified | asyncio.Future[Verified]:
    """Returns the partition to append records to, if the client may; `topic` is a name or a topic id.

    Transactional records get a guard with the partition, maybe in a future; `version` is that of the request.
    Raises InvalidRequiredAcks, UnknownTopicId, TopicAuthorizationFailed, what `Partitions.leader` raises,
    InvalidTopic for an internal topic, NotEnoughReplicas, TransactionalIdAuthorizationFailed, and what
    `verification.verify` raises.
    """
    if acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks={acks}: only -1, 0 and 1 are known")
    if not isinstance(topic, str):
        topic = services.metadata.topic_name(topic)
    services.authorizer.require(session, _WRITE, _TOPIC, topic)
    partition = services.partitions.leader(topic, index)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is the broker's own: clients do not write there")
    services.replicas.check_append(partition, acks)
    is_transactional = (  # what the function does, without a call: every request comes by here
        len(records) > ATTRIBUTES_AT
        and records[MAGIC_AT] == 2
        and records[ATTRIBUTES_AT] & TRANSACTIONAL != 0
    )
    if is_transactional:
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailed("transactional records without an id")
        services.authorizer.require(
            session, _WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )
        return verify(services, partition, transactional_id, records, version)
    return partition


def admit_again(services: Services, partition: Partition, acks: int) -> None:
    """Checks that this broker still leads a partition to which it has admitted records before.

    Another broker may have been elected while a coordinator verified the transaction. Raises what
    `Partitions.leader` raises, NotLeaderOrFollower and NotEnoughReplicas.
    """
    if services.partitions.leader(partition.topic, partition.index) is not partition:
        raise NotLeaderOrFollower(f"{partition.topic}-{partition.index} is another log now")
    services.replicas.check_append(partition, acks)


def admit_commit(
    services: Services, session: Session, group_id: str, partition: TopicPartition, metadata: str
) -> asyncio.Future[None] | None:
    """Checks that a client may commit an offset of a partition with this offset metadata.

    Returns None if it may. `Group.check_commit` checks the member and its generation later. Raises
    GroupAuthorizationFailed, TopicAuthorizationFailed, UnknownTopicOrPartition, OffsetMetadataTooLarge.
    """
    name, index = partition
    services.authorizer.require(session, _READ, _GROUP, group_id)
    services.authorizer.require(session, _READ, _TOPIC, name)
    topic = services.metadata.image.topics.get(name)
    if topic is None or not 0 <= index < topic.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {name}-{index}")
    if len(metadata.encode("utf-16-le")) // 2 > services.config.groups.offset_metadata_max_bytes:
        raise OffsetMetadataTooLarge(f"offset metadata of {len(metadata)} characters")
    return None
