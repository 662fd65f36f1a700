"""One other broker: where it lives, the session with it, and when to try again to have one.

    no session --dial--> dialing --READY--> session --end--> no session, dialed again at once
               --it dials us--> offer --READY--> session
    dialing --fails--> waits: backoff_ms, doubled each time up to backoff_max_ms, with jitter

The first attempt after a session's end comes at once: either the connection broke and is back in a
moment, or nobody listens any more, and then the groups must know. A session that ends before it has
lasted `STEADY_S` counts as a failed attempt. Owned by the door.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from dmq.broker.peers import Address
from dmq.doors.peer.handshake import Dial, Offer
from dmq.doors.peer.session import Session
from dmq.types import Voter

if TYPE_CHECKING:
    from dmq.doors.peer.door import PeerDoor

log = logging.getLogger("dmq.door.peer")

STEADY_S = 1.0
"""A session that lasted so long was a good one."""
LASTING_MS = 5_000
"""Between attempts at a peer that says that we don't belong together: people must act first."""
DOUBLINGS_MAX = 16


class Peer:
    """See the module."""

    __slots__ = (
        "_door",
        "_failures",
        "_retry",
        "_told",
        "address",
        "dial",
        "node",
        "offer",
        "session",
        "voter",
    )

    def __init__(self, door: "PeerDoor", node: int) -> None:
        self._door = door
        self.node = node
        self.address: Address | None = None
        self.session: Session | None = None
        self.dial: Dial | None = None
        self.offer: Offer | None = None
        self.voter: Voter | None = None
        """By its last session."""
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._told = ""

    @property
    def place(self) -> str:
        return "somewhere" if self.address is None else f"{self.address[0]}:{self.address[1]}"

    @property
    def is_forgotten(self) -> bool:
        return self.address is None and self.session is None and self.offer is None

    # ---- dialing

    def move(self, address: Address | None) -> None:
        """It lives there now; None: we don't look for it any more."""
        if address == self.address:
            self.look()
            return
        self.address = address
        self._failures = 0
        self._told = ""
        self._calm()
        self._drop_dial()
        if address is None and self.session is not None:
            self.session.end("does not belong to the cluster any more")
        self.look()

    def look(self) -> None:
        """Dial if there is nothing else that may become a session."""
        is_busy = self.session or self.offer or self.dial or self._retry
        if self.address is not None and not is_busy and self._door.may_dial:
            self.dial = Dial(self._door, self, self.address)

    def _look_in(self, delay_ms: float) -> None:
        self._calm()
        if self.address is None:
            return
        self._retry = self._door.loop.call_later(delay_ms / 1000, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self.look()

    def _calm(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _back_off(self) -> None:
        settings, dice = self._door.settings, self._door.dice
        delay = settings.backoff_ms * 2 ** min(self._failures, DOUBLINGS_MAX)
        self._failures += 1
        self._look_in(min(delay, settings.backoff_max_ms) * (0.5 + dice.random() / 2))

    def dial_failed(
        self, dial: Dial, reason: str, *, is_refused: bool, is_lasting: bool, is_early: bool
    ) -> None:
        """`is_early`: it is about to come, as all brokers are that are started together."""
        if self.dial is not dial:
            return
        self.dial = None
        level = logging.INFO if is_early else logging.WARNING
        self.tell(f"broker {self.node} at {self.place} {reason}; trying again", level)
        if is_lasting:
            self._look_in(LASTING_MS * (0.5 + self._door.dice.random() / 2))
        else:
            self._back_off()
        if is_refused and self.voter is not None and self.session is None:
            self._door.events.refused(self.voter)

    def dial_lost(self, dial: Dial) -> None:
        """The other's attempt wins over ours; should it fail, we try again."""
        if self.dial is dial:
            self.dial = None
            self._look_in(self._door.settings.connect_timeout_ms * (0.5 + self._door.dice.random()))

    def _drop_dial(self) -> None:
        dial, self.dial = self.dial, None
        if dial is not None:
            dial.abandon()

    # ---- being dialed

    def offered(self, offer: Offer) -> None:
        """Its attempt is the one that goes on."""
        self._drop_dial()
        self._calm()
        before, self.offer = self.offer, offer
        if before is not None:
            before.give_up("said HELLO again")

    def offer_ended(self, offer: Offer, reason: str) -> None:
        if self.offer is offer:
            self.offer = None
            if self.session is None:
                self._back_off()

    # ---- the session

    def begun(self, session: Session) -> None:
        self._drop_dial()
        self._calm()
        self.offer = None
        self.session = session
        self.voter = session.peer
        self._told = ""

    def lost(self, session: Session) -> None:
        assert self.session is session
        self.session = None
        if self._door.loop.time() - session.began_at >= STEADY_S:
            self._failures = 0
            self.look()
        else:
            self._back_off()

    def tell(self, text: str, level: int = logging.WARNING) -> None:
        """For people, once until something changes."""
        log.log(logging.DEBUG if text == self._told else level, "%s", text)
        self._told = text

    def close(self) -> None:
        self.address = None
        self._calm()
        self._drop_dial()
        if self.offer is not None:
            self.offer.give_up("")
        self._calm()
