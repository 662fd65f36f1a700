"""What brokers for tests have in common: their settings, our patience, and the errors.

Imports nothing of the broker, so that a cluster of processes can be run by a test that holds none of it.
"""

from typing import Any

DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "durability": "async",
    "journal.max.bytes": 16 << 20,
    "journal.file.bytes": 4 << 20,
    "disk.reserve.bytes": 0,
}
"""Small and quick; nobody's data is at stake. Every setting of `dmq config list` can be given."""

START_PATIENCE_S = 90.0
"""A broker that is not ready by then has failed; a machine with much else to do may need many seconds."""


class BrokerFailedError(RuntimeError):
    """The broker could not start, or stopped by itself; the message has its last words."""


class NoSuchBrokerError(LookupError):
    """The cluster has no broker with this node id; the message says which it has."""
