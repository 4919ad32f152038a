"""A Kafka client: a core without I/O, and a synchronous and an asyncio shell around it.

The core: `frames.py` (one connection: requests to bytes and bytes to answers), `cluster.py`
(leaders and coordinators), `retry.py` (pauses), `flow.py` (the steps of an operation), `calls/`
(requests, and how their answers are read). The shells: `Client` in `sync_client.py`, `AsyncClient`
in `async_client.py`. Begin with `flow.py`; TLS and SASL are in `security/`. The package imports only
`protocol`.
"""

from tidelog.client.calls.groups import GroupOffset
from tidelog.client.calls.records import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    FoundOffset,
    Produced,
)
from tidelog.client.cluster import PartitionInfo, TopicInfo, address_of
from tidelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ClusterUnreachable,
    ConnectionBroken,
    Fenced,
    RequestError,
    SecuritySettingsError,
    SequenceGap,
    UnsupportedByBroker,
)
from tidelog.client.security import Brokers, secured
from tidelog.client.sync_client import Client, TopicSetting

__all__ = [
    "EARLIEST",
    "LATEST",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "AuthenticationFailed",
    "Brokers",
    "Client",
    "ClientError",
    "ClusterUnreachable",
    "ConnectionBroken",
    "Fenced",
    "Fetched",
    "FoundOffset",
    "GroupOffset",
    "PartitionInfo",
    "Produced",
    "RequestError",
    "SecuritySettingsError",
    "SequenceGap",
    "TopicInfo",
    "TopicSetting",
    "UnsupportedByBroker",
    "address_of",
    "secured",
]
