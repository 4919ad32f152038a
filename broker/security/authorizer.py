"""What a client may do: everything, for there are no access rules.

Clients ask for it with a description of a topic, a group or the cluster, as a bit for each of Kafka's
AclOperations; the bits are those that Kafka tells where it has no rules either. An answer to a client that
did not ask says NOT_ASKED.
"""

from __future__ import annotations

from typing import Final

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << bit for bit in range(9, 13)
)

NOT_ASKED: Final = -(2**31)
ON_GROUP: Final = _READ | _DELETE | _DESCRIBE
ON_TOPIC: Final = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)
ON_CLUSTER: Final = (
    _CREATE
    | _ALTER
    | _DESCRIBE
    | _CLUSTER_ACTION
    | _DESCRIBE_CONFIGS
    | _ALTER_CONFIGS
    | _IDEMPOTENT_WRITE
)
