"""Brokers for other people's tests.

    from dmq.testing import Broker

    with Broker() as broker:                 # in a thread of this process, ready in about 100 ms
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

`async with Broker()` works too. With `in_process=False` the broker is a child process, which can be
killed. The pytest plugin (installed with dmq) has the fixtures `dmq_broker` and `dmq_topic`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmq.testing.broker import Broker, BrokerFailedError

__all__ = ["Broker", "BrokerFailedError"]


def __getattr__(name: str) -> Any:
    """Import the broker when it is asked for: pytest loads this package in every run."""
    if name in __all__:
        from dmq.testing import broker

        return getattr(broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
