"""What a client may do: everything, for there are no access rules.

`allows` is the one question; dispatch, handlers and admission ask it. Clients ask what they may do with a
description of a topic, a group or the cluster; the answer has a bit for each of Kafka's AclOperations
(KIP-430). An answer to a client that did not ask says NOT_ASKED.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.security.session import Session

NOT_ASKED: Final = -(2**31)
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

_DENIED: Final[Mapping[ResourceType, type[BrokerError]]] = MappingProxyType(
    {
        ResourceType.TOPIC: TopicAuthorizationFailed,
        ResourceType.GROUP: GroupAuthorizationFailed,
        ResourceType.CLUSTER: ClusterAuthorizationFailed,
        ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    }
)
# The operations that there are on each resource a client may ask about.
_OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)


class Authorizer:
    """Answers what a principal may do; without rules it says yes to everybody."""

    def allows(
        self,
        session: Session,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether the session's principal may do this to the resource of that name."""
        return True

    def require(
        self, session: Session, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """Raises the error of the resource's type unless `allows`."""
        if not self.allows(session, operation, resource_type, name):
            raise _DENIED[resource_type](
                f"{session.principal} has no right to {operation.name} on "
                f"{resource_type.name} {name}"
            )

    def allows_on_cluster(self, session: Session, operation: Operation) -> bool:
        """Whether the session's principal may do this to the cluster."""
        return self.allows(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_on_any(
        self,
        session: Session,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """Whether there may be a resource of that type to which the principal may do this (KIP-679)."""
        return True

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """A bit for each operation that the session's principal may do to the resource."""
        return sum(
            1 << operation
            for operation in _OPERATIONS[resource_type]
            if self.allows(session, operation, resource_type, name)
        )


class OpenAuthorizer(Authorizer):
    """Says yes to everybody, without asking `allows` for every request."""

    def require(
        self,
        session: Session,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Returns, because everything is allowed."""
