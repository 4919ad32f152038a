"""UpdateFeatures (key 57): change the finalized features of a cluster (KIP-584).

v1 the kind of change, and validation alone; v2 no results of single features. Flexible in every
version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int8, Int16, Int32, Message, String, since


class FeatureUpdateKey(Message):
    """The level that a feature is to have; one below 1 removes it."""

    feature: String = since(0)
    max_version_level: Int16 = since(0)
    allow_downgrade: Bool = since(0, until=0)
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesRequest(Message):
    """Change these features."""

    timeout_ms: Int32 = since(0, default=60000)
    feature_updates: list[FeatureUpdateKey] = since(0)
    validate_only: Bool = since(1, default=False)


class UpdatableFeatureResult(Message):
    """The result for one feature."""

    feature: String = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


class UpdateFeaturesResponse(Message):
    """The error of the whole request, and up to v1 the result for every feature."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    results: list[UpdatableFeatureResult] = since(0, until=1, ignorable=True)


API = Api(
    key=57,
    name="UpdateFeatures",
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
    min_version=0,
    max_version=2,
    first_flexible=0,
    served=(0, 2),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
