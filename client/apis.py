"""The APIs that the client calls, and the versions of each that it can write and read.

The client uses the highest version that both sides support. A limit below what `protocol.api`
declares has its reason beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.errors import VersionMismatch
from tidelog.protocol.message import api_of

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
DESCRIBE_CONFIGS: Final = 32
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
REASSIGN: Final = 45
LIST_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
UNREGISTER_BROKER: Final = 64
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66

VersionRange = tuple[int, int]  # the lowest version and the highest

SPOKEN: Final[Mapping[int, VersionRange]] = {
    PRODUCE: (3, 11),  # from 12 on produce adds partitions to the transaction itself (KIP-890)
    FETCH: (4, 12),  # from 13 on topics are given by id
    LIST_OFFSETS: (1, 9),
    METADATA: (1, 12),
    OFFSET_COMMIT: (2, 8),
    OFFSET_FETCH: (2, 7),  # from 8 on it has several groups
    FIND_COORDINATOR: (1, 3),  # from 4 on it has several keys
    DESCRIBE_GROUPS: (0, 5),
    LIST_GROUPS: (0, 4),
    SASL_HANDSHAKE: (1, 1),  # after v0 the exchange has no request headers (Kafka before 1.0)
    CREATE_TOPICS: (2, 7),
    DELETE_TOPICS: (1, 5),  # from 6 on topics may be given by id
    DELETE_RECORDS: (0, 2),
    INIT_PRODUCER_ID: (0, 4),
    ADD_PARTITIONS_TO_TXN: (0, 3),  # from 4 on it is for brokers
    END_TXN: (0, 4),  # from 5 on every transaction has its own epoch (KIP-890)
    WRITE_TXN_MARKERS: (0, 1),
    DESCRIBE_CONFIGS: (1, 4),
    DESCRIBE_LOG_DIRS: (0, 4),
    SASL_AUTHENTICATE: (0, 2),
    CREATE_PARTITIONS: (0, 3),
    DELETE_GROUPS: (0, 2),
    ELECT_LEADERS: (1, 2),  # v0 elects preferred leaders alone
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    REASSIGN: (0, 0),
    LIST_REASSIGNMENTS: (0, 0),
    OFFSET_DELETE: (0, 0),
    DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ALTER_CLIENT_QUOTAS: (0, 1),
    DESCRIBE_CLUSTER: (0, 2),
    DESCRIBE_PRODUCERS: (0, 0),
    UNREGISTER_BROKER: (0, 0),
    DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 2),
}


def common_version(key: int, served: Mapping[int, VersionRange]) -> int | None:
    """Returns the highest version of an API that the client and the broker support, or None."""
    theirs = served.get(key)
    if theirs is None:
        return None
    low, high = SPOKEN[key]
    version = min(high, theirs[1])
    return version if version >= max(low, theirs[0]) else None


def version_of(key: int, served: Mapping[int, VersionRange], address: str) -> int:
    """Returns the version of an API to use with the broker at `address`. Raises VersionMismatch."""
    version = common_version(key, served)
    if version is not None:
        return version
    api = api_of(key)
    name = api.name if api is not None else f"API {key}"
    low, high = SPOKEN[key]
    theirs = served.get(key)
    serves = f"serves v{theirs[0]} to v{theirs[1]}" if theirs else "does not serve it"
    raise VersionMismatch(f"{name} v{low} to v{high} is needed, but {address} {serves}")


def between_brokers(key: int, least: int, served: Mapping[int, VersionRange], address: str) -> int:
    """Returns the version of an API that brokers use with each other: the highest of both.

    Raises VersionMismatch if the broker at `address` serves none from `least` on.
    """
    api, theirs = api_of(key), served.get(key)
    assert api is not None
    version = -1 if theirs is None else min(api.max_version, theirs[1])
    if version < least:
        raise VersionMismatch(
            f"{api.name} v{least} is needed between brokers, but {address} serves up to v{version}"
        )
    return version
