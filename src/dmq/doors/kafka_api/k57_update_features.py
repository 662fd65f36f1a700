"""UpdateFeatures, versions 0 to 2: levels of features, changed together or not at all.

0  allow_downgrade    1  kinds of downgrade, dry run    2  only one error for the whole
"""

from dmq.broker.admin import FeatureUpdate, FeatureUpdated
from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE = 1, 2
UPGRADE_TYPE_SINCE = 1
RESULTS_UNTIL = 1


def handle(service: Service, call: Call, request: UpdateFeaturesRequest) -> None:
    def on_updated(answer: Answer[list[FeatureUpdated]]) -> None:
        try:
            call.reply(_response(answer.get(), call.version))
        except DmqError as error:
            call.reply(UpdateFeaturesResponse(error_code=error.code, error_message=str(error)))

    updates = [_update(update, call.version) for update in request.feature_updates]
    validate_only = call.version >= UPGRADE_TYPE_SINCE and request.validate_only
    service.admin.update_features(updates, validate_only=validate_only).on_done(on_updated)


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version >= UPGRADE_TYPE_SINCE:
        kind = update.upgrade_type
    else:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, kind)


def _response(updated: list[FeatureUpdated], version: int) -> UpdateFeaturesResponse:
    error = next((each.error for each in updated if each.error is not None), None)
    if error is not None:
        message = f"The update failed for all features: {error}"
        return UpdateFeaturesResponse(error_code=error.code, error_message=message)
    results = [UpdatableFeatureResult(each.name, ErrorCode.NONE, None) for each in updated]
    return UpdateFeaturesResponse(
        error_message=None, results=results if version <= RESULTS_UNTIL else []
    )
