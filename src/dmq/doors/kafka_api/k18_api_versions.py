"""ApiVersions, versions 0 to 4: what is served here, and the cluster's features.

Allowed at any time and more than once. A version of the future is answered in version 0 with error
35 and the list of keys, from which clients choose. Version 3 added the client's software name and
the features, version 4 allows feature levels of 0.
"""

import re

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.doors.kafka_api.served import SERVED
from dmq.errors import ErrorCode
from dmq.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(service: Service, call: Call, request: ApiVersionsRequest) -> None:
    if call.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            call.reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]))
            return
        call.connection.software = f"{name} {version}"
    response = ApiVersionsResponse(api_keys=api_keys())
    if call.version >= 3:
        response.supported_features = [
            SupportedFeatureKey(name, lowest if call.version >= 4 else max(1, lowest), highest)
            for name, (lowest, highest) in service.supported_features().items()
        ]
        response.finalized_features_epoch = service.metadata_offset()
        response.finalized_features = [
            FinalizedFeatureKey(name, level, level)
            for name, level in service.finalized_features().items()
            if level > 0
        ]
    call.reply(response)


def api_keys() -> list[ApiVersion]:
    return [ApiVersion(key, lowest, highest) for key, (_, lowest, highest) in SERVED.items()]


def answer_unknown_version(service: Service, call: Call) -> None:
    call.reply_as(
        ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=api_keys()), 0
    )
