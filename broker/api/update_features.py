"""UpdateFeatures (key 57): the levels of features come with the release of the brokers (KIP-584).

Behaviour: a feature that is to have the level that it has, for an unknown one 0, succeeds. Every other
level is INVALID_UPDATE_VERSION with a sentence, which is what Kafka answers where its controller does
not support a level, and to a kind of change that does not exist.

Version notes: 1 the kind of change, validation alone; 2 the first error is that of the whole request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.turns import paced
from tidelog.broker.transactions.messages import FEATURE, VERSION
from tidelog.protocol.api.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from tidelog.protocol.errors import InvalidUpdateVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.network.context import Context
    from tidelog.broker.node import Node
    from tidelog.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
    from tidelog.protocol.errors import BrokerError

_KIND_SINCE = 1
_ONE_RESULT_SINCE = 2
_KINDS = (1, 2, 3)  # upgrade, safe downgrade, unsafe downgrade


def handle(_node: Node, request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    """Refuses every change."""
    levels = {FEATURE: VERSION}
    results = [_result(each, levels, context.version) for each in request.feature_updates]
    if context.version >= _ONE_RESULT_SINCE:
        first = next((each for each in results if each.error_code), UpdatableFeatureResult())
        return UpdateFeaturesResponse(
            error_code=first.error_code, error_message=first.error_message or ""
        )
    return UpdateFeaturesResponse(error_message="", results=results)


def _result(
    update: FeatureUpdateKey, levels: Mapping[str, int], version: int
) -> UpdatableFeatureResult:
    name, has = update.feature, levels.get(update.feature, 0)
    if version >= _KIND_SINCE and update.upgrade_type not in _KINDS:
        return _failed(
            name,
            InvalidUpdateVersion(
                f"UPDATE_FEATURES: there is no change of type {update.upgrade_type}"
            ),
        )
    if update.max_version_level != has:
        message = (
            f"UPDATE_FEATURES: {name} is at {has}, which comes with the release of the brokers"
        )
        return _failed(name, InvalidUpdateVersion(message))
    return UpdatableFeatureResult(feature=name)


def _failed(feature: str, error: BrokerError) -> UpdatableFeatureResult:
    return UpdatableFeatureResult(
        feature=feature, error_code=error.code, error_message=error.message
    )


def refuse(request: UpdateFeaturesRequest, error: BrokerError) -> UpdateFeaturesResponse:
    """Returns the error at the top, and for every feature."""
    return UpdateFeaturesResponse(
        error_code=error.code,
        error_message=error.message,
        results=[_failed(each.feature, error) for each in paced(request.feature_updates)],
    )
