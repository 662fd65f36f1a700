"""Brokers for other people's tests.

    from dmq.testing import Broker, Cluster

    with Broker() as broker:                 # in a thread of this process, ready in about 100 ms
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    with Cluster(3) as cluster:              # three processes, to be killed, paused and cut off
        cluster.kill(cluster.leader("orders", 0))

`async with` works too. With `in_process=False` a `Broker` is a child process, which can be killed. The
pytest plugin (installed with dmq) has the fixtures `dmq_broker`, `dmq_topic` and `dmq_cluster`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmq.testing.broker import Broker
    from dmq.testing.cluster import Cluster
    from dmq.testing.defaults import BrokerFailedError, NoSuchBrokerError

__all__ = ["Broker", "BrokerFailedError", "Cluster", "NoSuchBrokerError"]


_MODULES = {
    "Broker": "broker",
    "BrokerFailedError": "defaults",
    "Cluster": "cluster",
    "NoSuchBrokerError": "defaults",
}


def __getattr__(name: str) -> Any:
    """Import a broker when it is asked for: pytest loads this package in every run."""
    if name in _MODULES:
        return getattr(import_module(f"dmq.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
