"""Access rights: an operation on a type of resource, as Kafka's ACLs name them.

The numbers are those of the protocol (KIP-11). `protocol/api` declares with `Need` which rights an
API requires. `broker/security/authorizer.py` decides whether a client has them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    """An operation on a resource (AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """The type of a resource (ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Need(NamedTuple):
    """A right that an API requires.

    Dispatch checks a need on the cluster before the handler runs. With `by_handler` the handler
    checks it, because the request's body decides whether the need applies, or another right can
    replace it. A handler always checks needs on other resources, because their names are in the
    body.
    """

    operation: Operation
    resource_type: ResourceType
    by_handler: bool = False
