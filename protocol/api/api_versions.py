"""ApiVersions (key 18): the requests that this broker serves.

v1 throttle time; v3 flexible, the client's software (KIP-511), features (KIP-584); v4 features may
start at version 0 (KIP-1022); v5 the cluster and node that the client expects (KIP-1242). The
response header is always version 0. The response to an unknown version is v0 with error 35.
"""

from __future__ import annotations

from tidelog.protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class ApiVersionsRequest(Message):
    """Ask which APIs are served; the handler checks the client's names."""

    client_software_name: String = since(3, ignorable=True)
    client_software_version: String = since(3, ignorable=True)
    cluster_id: String | None = since(5, default=None, ignorable=True)
    node_id: Int32 = since(5, default=-1, ignorable=True)


class ApiVersion(Message):
    """One API and its lowest and highest served version."""

    api_key: Int16 = since(0)
    min_version: Int16 = since(0)
    max_version: Int16 = since(0)


class SupportedFeatureKey(Message):
    """A feature that this broker supports, and its levels."""

    name: String = since(3)
    min_version: Int16 = since(3)
    max_version: Int16 = since(3)


class FinalizedFeatureKey(Message):
    """A feature that the cluster has finalized, and its levels."""

    name: String = since(3)
    max_version_level: Int16 = since(3)
    min_version_level: Int16 = since(3)


class ApiVersionsResponse(Message):
    """The served APIs; the finalized features are valid only if the epoch is not -1."""

    error_code: Int16 = since(0)
    api_keys: list[ApiVersion] = since(0)
    throttle_time_ms: Int32 = since(1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = since(3, default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2, ignorable=True)
    zk_migration_ready: Bool = since(3, tag=3, ignorable=True)


API = Api(
    key=18,
    name="ApiVersions",
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    min_version=0,
    max_version=5,
    first_flexible=3,
    served=(0, 4),
    needs=(),
    request_bytes=64 << 10,
)
