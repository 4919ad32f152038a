"""UpdateFeatures (key 57): the levels of features come with the release of the brokers (KIP-584).

Behaviour: the current level of a feature succeeds. Every other level is refused with INVALID_UPDATE_VERSION
and a sentence, as are an unknown feature and an unknown kind of change. Then nothing is changed, and the
error is that of the whole request in every version, as in Kafka 4.

Version notes: 1 the kind of change, validation alone; 2 no results of single features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import FEATURE, VERSION
from tidelog.protocol.api.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from tidelog.protocol.errors import InvalidUpdateVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
    from tidelog.protocol.errors import BrokerError

_KIND_SINCE = 1
_ONE_RESULT_SINCE = 2
_KINDS = (1, 2, 3)  # upgrade, safe downgrade, unsafe downgrade


def handle(
    _services: Services, request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    """Refuses every change."""
    levels = {FEATURE: VERSION}
    for each in request.feature_updates:
        why = _refusal(each, levels, context.version)
        if why:
            raise InvalidUpdateVersion(
                "UPDATE_FEATURES: the update failed for all features, because the following one had an "
                f"error: {each.feature}: {why}"
            )
    results = [] if context.version >= _ONE_RESULT_SINCE else request.feature_updates
    return UpdateFeaturesResponse(
        error_message="", results=[UpdatableFeatureResult(feature=each.feature) for each in results]
    )


def _refusal(update: FeatureUpdateKey, levels: Mapping[str, int], version: int) -> str:
    """Returns why an update is refused, as a sentence; empty if it changes nothing."""
    if version >= _KIND_SINCE and update.upgrade_type not in _KINDS:
        return f"there is no change of type {update.upgrade_type}"
    has = levels.get(update.feature)
    if has is None:
        return "there is no such feature"
    if update.max_version_level != has:
        return f"it is at {has}, which comes with the release of the brokers"
    return ""


def refuse(_request: UpdateFeaturesRequest, error: BrokerError) -> UpdateFeaturesResponse:
    """Returns the error of the whole request."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
