"""DescribeConfigs, versions 1 to 4: every config of a resource with value, source and synonyms.

No names, or an empty list of them, asks for all. Broker and logger resources are answered by the
broker that they name. Topics, groups and client metrics are answered by any broker.

    1  synonyms    3  types and documentation
"""

from functools import partial

from dmq.broker.admin import BROKER, BROKER_LOGGER, TOPIC
from dmq.broker.service import Service
from dmq.config.definitions import ConfigSource, ConfigType
from dmq.config.describe import ConfigEntry
from dmq.doors import loggers
from dmq.doors.call import Call
from dmq.errors import ErrorCode, KafkaError
from dmq.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

DESCRIBED_PER_PASS = 10
"""Resources per pass of the loop; each has dozens of configs."""
ENCODED_IN_LOOP_MAX = 50


def handle(service: Service, call: Call, request: DescribeConfigsRequest) -> None:
    def described(results: list[DescribeConfigsResult]) -> None:
        response = DescribeConfigsResponse(results=results)
        reply = call.reply if len(results) <= ENCODED_IN_LOOP_MAX else call.reply_large
        service.when_settled(
            lambda is_true: reply(response) if is_true else handle(service, call, request)
        )

    service.in_slices(
        request.resources, partial(_describe, service, request), described, step=DESCRIBED_PER_PASS
    )


def _describe(
    service: Service, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        entries = _entries(service, kind, name)
    except KafkaError as error:
        return DescribeConfigsResult(error.code, error.message, kind, name, [])
    wanted = resource.configuration_keys
    configs = [_told(entry, request) for entry in entries if not wanted or entry.name in wanted]
    return DescribeConfigsResult(ErrorCode.NONE, "", kind, name, configs)


def _entries(service: Service, kind: int, name: str) -> list[ConfigEntry]:
    if kind == TOPIC and not service.has(name):
        code = service.why_no_topic(name)
        raise KafkaError(code, f"there is no topic '{name}'")
    if kind == BROKER_LOGGER or (kind == BROKER and name):
        check_is_us(service, name)
    if kind == BROKER_LOGGER:
        return [_logger(logger, level) for logger, level in loggers.levels().items()]
    return service.admin.describe_configs(kind, name)


def check_is_us(service: Service, name: str) -> None:
    """That a resource of one broker is this broker's. Raises INVALID_REQUEST."""
    node_id = service.identity.node_id
    if not name.lstrip("-").isdecimal():
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"A broker is named by its number, not {name!r}."
        )
    if name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {node_id}, not {name}.",
        )


def _logger(name: str, level: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return ConfigEntry(name, level, source, ConfigType.UNKNOWN, False, False, (), "")


def _told(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.read_only,
        entry.source,
        entry.is_sensitive,
        [DescribeConfigsSynonym(each.name, each.value, each.source) for each in synonyms],
        entry.type,
        entry.documentation if request.include_documentation else None,
    )
