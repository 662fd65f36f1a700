"""Where the other brokers are, as far as a start can tell before it is registered.

A broker that was down may know addresses that are nobody's any more, and nobody tells it new ones before
it has found somebody. So it asks at the addresses which its settings name, and what it hears means:

    another cluster   JoinError: somebody took the wrong directory or address
    our cluster       look for that broker where it answered, if that is not where our log says

    know     what the metadata say; it takes the place of all that was known before
    expect   the last word in our log: worth a try, and less than what an answer tells
    ask      ask all that the settings name, and act on the answers

Once this broker is registered the metadata tell it of the rest: then answers change nothing any more.
Knows no loop and no clock: the runtime decides when to ask, and what an error of it means.
"""

import logging
from collections.abc import Callable

from dmq.broker.membership import Entrance
from dmq.broker.peers import Address

log = logging.getLogger("dmq.broker")


class Whereabouts:
    """See the module. `is_registered` is asked each time."""

    def __init__(
        self, entrance: Entrance, cluster_id: str, node_id: int, is_registered: Callable[[], bool]
    ) -> None:
        self._entrance = entrance
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._is_registered = is_registered
        self._met: dict[int, Address] = {}
        """Where others answered when they were asked for their cluster."""
        self._known: dict[int, Address] | None = None
        """Where the door was told to look for them; None: it was told nothing yet."""

    def know(self, addresses: dict[int, Address]) -> None:
        """Let the door look for the others here, and nowhere else."""
        self._known = addresses
        self._entrance.peers.know(addresses)

    def expect(self, addresses: dict[int, Address]) -> None:
        """The same, but for those that have answered elsewhere."""
        self.know(addresses)
        self._meet()

    async def ask(self) -> None:
        """Raises JoinError if one that the settings name is of another cluster."""
        self._met = await self._entrance.check_cluster(self._cluster_id)
        self._meet()

    def _meet(self) -> None:
        """Look for those that answered where they did, if not where our log says: all may have moved
        while we were down, and nobody is left to tell us. Who is registered is told."""
        if self._known is None or self._is_registered():
            return
        aside = [self._node_id, *self._entrance.peers.linked()]
        moved = {
            node: at
            for node, at in self._met.items()
            if node not in aside and self._known.get(node) != at
        }
        for node, (host, port) in sorted(moved.items()):
            log.info("broker %d answers at %s:%d", node, host, port)
        if moved:
            self.know({**self._known, **moved})
