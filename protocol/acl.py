"""What a right is: an operation on a kind of resource, as Kafka's ACLs name them.

The numbers are those of the protocol (KIP-11). `protocol/api` declares with `Need` which rights an API asks
for; `broker/security/authorizer.py` decides whether a client has them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    """What is done to a resource (AclOperation)."""

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
    """What it is done to (ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Need(NamedTuple):
    """A right that an API asks for.

    Dispatch asks for a need on the cluster before the handler runs. With `by_handler` the handler asks,
    because the request's body decides whether the need applies, or another right takes its place. A
    handler always asks for needs on other resources: their names are in the body.
    """

    operation: Operation
    resource_type: ResourceType
    by_handler: bool = False
