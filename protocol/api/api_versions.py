"""ApiVersions (key 18): which requests this broker serves.

v1 throttle time; v3 flexible, the client's software (KIP-511), features (KIP-584); v4 features
may start at version 0 (KIP-1022); v5 cluster and node the client means to talk to (KIP-1242).
The answer's header is always version 0, and to an unknown version the answer is v0 with error
35.
"""

from __future__ import annotations

from protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class ApiVersionsRequest(Message):
    """Tell what you serve; the names are matched by the handler, not here."""

    client_software_name: String = since(3, ignorable=True)
    client_software_version: String = since(3, ignorable=True)
    cluster_id: String | None = since(5, default=None, ignorable=True)
    node_id: Int32 = since(5, default=-1, ignorable=True)


class ApiVersion(Message):
    """One API and the versions served, both ends included."""

    api_key: Int16 = since(0)
    min_version: Int16 = since(0)
    max_version: Int16 = since(0)


class SupportedFeatureKey(Message):
    """A feature this broker could run, and at which levels."""

    name: String = since(3)
    min_version: Int16 = since(3)
    max_version: Int16 = since(3)


class FinalizedFeatureKey(Message):
    """A feature the cluster has agreed on, and at which levels."""

    name: String = since(3)
    max_version_level: Int16 = since(3)
    min_version_level: Int16 = since(3)


class ApiVersionsResponse(Message):
    """The APIs served; the finalized features count only if the epoch is not -1."""

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
)
