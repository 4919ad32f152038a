"""DescribeQuorum (key 55): there is no quorum of KRaft here (KIP-595).

Behaviour: UNSUPPORTED_VERSION, as from a Kafka that keeps its metadata in ZooKeeper. The metadata store here
has no replicas that Kafka's protocol could describe.

Version notes: 1 times of replicas; 2 the message of an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.protocol.api.describe_quorum import DescribeQuorumResponse
from tidelog.protocol.errors import UnsupportedVersion

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_quorum import DescribeQuorumRequest
    from tidelog.protocol.errors import BrokerError


def handle(_services: Services, _request: DescribeQuorumRequest, _context: Context) -> NoReturn:
    """Raises UnsupportedVersion, because there is no quorum."""
    raise UnsupportedVersion(
        "DESCRIBE_QUORUM: metadata are in a store here, not in a quorum of controllers"
    )


def refuse(_request: DescribeQuorumRequest, error: BrokerError) -> DescribeQuorumResponse:
    """Returns the error at the top."""
    return DescribeQuorumResponse(
        error_code=error.code, error_message=error.message, topics=[], nodes=[]
    )
