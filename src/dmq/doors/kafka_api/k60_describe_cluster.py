"""DescribeCluster, versions 0 to 2: the brokers of the cluster, and who leads its metadata.

1  brokers or controllers: this door serves brokers    2  also brokers that are registered and down
"""

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.doors.kafka_api import operations
from dmq.doors.kafka_api.k03_metadata import controller
from dmq.errors import ErrorCode
from dmq.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(service: Service, call: Call, request: DescribeClusterRequest) -> None:
    if request.endpoint_type != BROKERS:
        call.reply(_refusal(request.endpoint_type))
        return
    asked = request.include_cluster_authorized_operations
    brokers = service.brokers(
        call.connection.door.listener, with_fenced=request.include_fenced_brokers
    )
    call.reply(
        DescribeClusterResponse(
            cluster_id=service.cluster_id,
            controller_id=controller(service, brokers),
            brokers=[DescribeClusterBroker(*broker) for broker in brokers],
            cluster_authorized_operations=operations.ON_CLUSTER if asked else operations.NOT_ASKED,
        )
    )


def _refusal(endpoint_type: int) -> DescribeClusterResponse:
    code, message = (
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        f"Unsupported endpoint type {endpoint_type}",
    )
    if endpoint_type == CONTROLLERS:
        code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is the door of a broker"
    return DescribeClusterResponse(error_code=code, error_message=message, brokers=[])
