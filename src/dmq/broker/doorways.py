"""The ways in, as the runtime needs them: it opens, configures and closes doors that lie above it.

Protocols only. A listening socket is bound before the broker knows its place, so that the addresses which
it tells are true; the door behind it opens when there is somebody to answer. See doors/ for both.
"""

from typing import TYPE_CHECKING, Protocol, TypeVar

from dmq.broker.membership import Entrance
from dmq.config.broker import BrokerConfig
from dmq.config.listeners import Listener

if TYPE_CHECKING:
    from dmq.broker.runtime import Runtime


class Door(Protocol):
    """What the runtime needs of a way in."""

    def open(self) -> None:
        """Take connections."""
        ...

    def configure(self, config: BrokerConfig) -> None: ...
    def stop_taking(self) -> None:
        """No more connections or requests; answers still leave."""
        ...

    @property
    def has_unsent(self) -> bool:
        """Whether answers are on their way."""
        ...

    def close(self) -> None: ...


class Bound(Protocol):
    """A listening socket whose door is not open yet."""

    @property
    def port(self) -> int: ...
    def close(self) -> None: ...


B = TypeVar("B", bound=Bound)


class Doors(Protocol[B]):
    """Where the doors come from: they lie above the broker."""

    def bind(self, config: BrokerConfig, listener: Listener) -> B:
        """Raises OSError."""
        ...

    def kafka(self, runtime: "Runtime", listener: Listener, bound: B) -> Door: ...
    def entrance(self, config: BrokerConfig) -> Entrance | None:
        """The peer door; None if the settings want none."""
        ...
