"""IncrementalAlterConfigs, versions 0 and 1: single configs set, unset, appended to, taken from.

Each resource succeeds or fails by itself. Loggers are the only resource that this broker changes
without the metadata log.
"""

from dmq.broker.admin import BROKER_LOGGER, ConfigAltered, ConfigChange
from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors import loggers
from dmq.doors.call import Call
from dmq.doors.kafka_api.k32_describe_configs import check_is_us
from dmq.errors import DmqError, KafkaError
from dmq.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(service: Service, call: Call, request: IncrementalAlterConfigsRequest) -> None:
    changes = [_change(resource) for resource in request.resources]
    results = {
        (change.resource, change.name): _alter_loggers(service, change, request.validate_only)
        for change in changes
        if change.resource == BROKER_LOGGER
    }
    others = [change for change in changes if change.resource != BROKER_LOGGER]

    def on_altered(answer: Answer[list[ConfigAltered]]) -> None:
        try:
            altered = answer.get()
        except DmqError as error:
            refused = KafkaError(error.code, str(error))
            altered = [ConfigAltered(change.resource, change.name, refused) for change in others]
        results.update({(each.resource, each.name): each for each in altered})
        order = dict.fromkeys((change.resource, change.name) for change in changes)
        responses = [_response(results[key]) for key in order]
        call.reply(IncrementalAlterConfigsResponse(responses=responses))

    service.admin.alter_configs(others, replace=False, validate_only=request.validate_only).on_done(
        on_altered
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    configs = tuple(
        (config.name, config.config_operation, config.value) for config in resource.configs
    )
    return ConfigChange(resource.resource_type, resource.resource_name, configs)


def _alter_loggers(service: Service, change: ConfigChange, validate_only: bool) -> ConfigAltered:
    try:
        check_is_us(service, change.name)
        loggers.alter(list(change.changes), validate_only=validate_only)
    except KafkaError as error:
        return ConfigAltered(change.resource, change.name, error)
    return ConfigAltered(change.resource, change.name)


def _response(altered: ConfigAltered) -> AlterConfigsResourceResponse:
    error = altered.error
    if error is None:
        return AlterConfigsResourceResponse(0, None, altered.resource, altered.name)
    return AlterConfigsResourceResponse(error.code, error.message, altered.resource, altered.name)
