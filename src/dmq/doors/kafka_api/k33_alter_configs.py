"""AlterConfigs, versions 0 to 2: what a resource sets, replaced as a whole.

What is not mentioned goes back to its default; IncrementalAlterConfigs (44) came to spare clients
that. Each resource succeeds or fails by itself.
"""

from dmq.broker.admin import ConfigAltered, ConfigChange
from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

SET = 0


def handle(service: Service, call: Call, request: AlterConfigsRequest) -> None:
    changes = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            tuple((config.name, SET, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]

    def on_altered(answer: Answer[list[ConfigAltered]]) -> None:
        try:
            responses = [_response(altered) for altered in answer.get()]
        except DmqError as error:
            responses = [
                AlterConfigsResourceResponse(error.code, str(error), change.resource, change.name)
                for change in changes
            ]
        call.reply(AlterConfigsResponse(responses=responses))

    service.admin.alter_configs(changes, replace=True, validate_only=request.validate_only).on_done(
        on_altered
    )


def _response(altered: ConfigAltered) -> AlterConfigsResourceResponse:
    error = altered.error
    code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
    return AlterConfigsResourceResponse(code, message, altered.resource, altered.name)
