"""ApiVersions (key 18): the APIs and versions that this broker serves.

Behaviour: derived from the declarations in protocol/api. The response to a version newer than
served is version 0 with UNSUPPORTED_VERSION and the range of this API (KIP-511); the client then sends
the request in a served version. A software name or version with characters other than letters, digits,
dots and dashes is INVALID_REQUEST. A broker that serves transactions has finalized transaction.version
(KIP-890).

Version notes: 1 throttle time; 3 flexible, software name and version, features; 4 features with
minimum 0.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import FEATURE, VERSION
from tidelog.broker.network.answers import Encoded
from tidelog.protocol.api.api_versions import (
    API,
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.protocol.errors import ErrorCode, InvalidRequest
from tidelog.protocol.message import codec, served_apis

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.api_versions import ApiVersionsRequest
    from tidelog.protocol.errors import BrokerError

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_MINIMUM_0_SINCE = 4
_FEATURES_EPOCH = 0  # the finalized features never change
_SUPPORTED = [SupportedFeatureKey(name=FEATURE, min_version=0, max_version=VERSION)]
_FINALIZED = [
    FinalizedFeatureKey(name=FEATURE, min_version_level=VERSION, max_version_level=VERSION)
]


def handle(services: Services, request: ApiVersionsRequest, context: Context) -> Encoded:
    """Lists every API with its versions."""
    if context.version >= _SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            raise InvalidRequest("client software name or version is malformed")
        context.connection.software = f"{name}/{version}"
        services.metrics.client_seen(name, version)
    return _answer(context.version)


@cache
def _answer(version: int) -> Encoded:
    """Returns the encoded response of a version, which is the same for all clients."""
    response = ApiVersionsResponse(
        api_keys=_served(),
        supported_features=_SUPPORTED if version >= _MINIMUM_0_SINCE else [],
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=_FINALIZED,
    )
    return Encoded(codec(ApiVersionsResponse, version).encode(response))


@cache
def _served() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.served[0], max_version=api.served[1])
        for api in served_apis()
        if api.served is not None
    ]


def unsupported_version() -> ApiVersionsResponse:
    """Returns the response to an unknown version: the served range of this one API."""
    own = [entry for entry in _served() if entry.api_key == API.key]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def refuse(_request: ApiVersionsRequest, error: BrokerError) -> ApiVersionsResponse:
    """Returns an empty list with the error."""
    return ApiVersionsResponse(error_code=error.code, api_keys=[])
