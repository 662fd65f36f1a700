"""DescribeCluster (key 60, versions 0-2): the brokers, or the controllers, of the cluster.

1 which of both. 2 fenced brokers.
"""

from dmq.wire.schema import f, message


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = f("bool")
    endpoint_type: int = f("int8", "1+", default=1)
    include_fenced_brokers: bool = f("bool", "2+")


@message
class DescribeClusterBroker:
    broker_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    rack: str | None = f("string", null="0+", default=None)
    is_fenced: bool = f("bool", "2+")


@message
class DescribeClusterResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    endpoint_type: int = f("int8", "1+", default=1)
    cluster_id: str = f("string")
    controller_id: int = f("int32", default=-1)
    brokers: list[DescribeClusterBroker] = f([DescribeClusterBroker])
    cluster_authorized_operations: int = f("int32", default=-2147483648)
