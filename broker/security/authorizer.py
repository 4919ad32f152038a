"""Authorizes requests of clients; without ACLs, every client may do everything.

`allows` is the one decision; dispatch, handlers and admission call it. A client that requests the authorized
operations of a topic, a group or the cluster gets a bit for each of Kafka's AclOperations (KIP-430); one
that does not gets NOT_ASKED.
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
    """Decides which operations a principal may do; without ACLs it allows all."""

    def allows(
        self,
        session: Session,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Returns whether the session's principal may do an operation on the resource of that name."""
        return True

    def require(
        self, session: Session, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """Raises the authorization error of the resource's type unless `allows` returns true."""
        if not self.allows(session, operation, resource_type, name):
            raise _DENIED[resource_type](
                f"{session.principal} has no right to {operation.name} on "
                f"{resource_type.name} {name}"
            )

    def allows_on_cluster(self, session: Session, operation: Operation) -> bool:
        """Returns whether the session's principal may do an operation on the cluster."""
        return self.allows(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_on_any(
        self,
        session: Session,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """Returns whether the principal may do an operation on any resource of a type (KIP-679)."""
        return True

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """Returns a bit field of the operations that the session's principal may do on the resource."""
        return sum(
            1 << operation
            for operation in _OPERATIONS[resource_type]
            if self.allows(session, operation, resource_type, name)
        )


class OpenAuthorizer(Authorizer):
    """Allows everything, without calling `allows` for every request."""

    def require(
        self,
        session: Session,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Returns, because everything is allowed."""
