"""ListConfigResources, versions 0 and 1: what can have configs.

Version 0 is ListClientMetricsResources and lists subscriptions only; from 1 on the client names
kinds, none meaning all of them.
"""

from dmq.broker.admin import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import ErrorCode
from dmq.wire.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

KINDS = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def handle(service: Service, call: Call, request: ListConfigResourcesRequest) -> None:
    kinds = [CLIENT_METRICS] if call.version == 0 else list(request.resource_types or KINDS)
    if any(kind not in KINDS for kind in kinds):
        code = ErrorCode.UNSUPPORTED_VERSION
        call.reply(ListConfigResourcesResponse(error_code=code, config_resources=[]))
        return

    def answer() -> ListConfigResourcesResponse:
        found = service.admin.config_resources(dict.fromkeys(kinds))
        resources = [ConfigResource(name, kind) for kind, name in found]
        return ListConfigResourcesResponse(config_resources=resources)

    service.answer_settled(answer, call.reply)
