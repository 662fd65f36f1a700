"""Which peers can be heard: one table per broker, shared by all of its groups.

Liveness belongs to a peer, not to a group. A link is known by the peer's name (broker id and directory
id: a wiped broker is somebody else) and by the number of its session, which rises with every new
hello. A session may stay open while the peer is suspect. The node keeps the table and then
calls `peer_changed` on the groups that the peer is in; groups only read it.
"""

from dmq.types import Voter


class Links:
    """See the module; `me` is this broker under its present name."""

    __slots__ = ("_live", "_sessions", "is_fit", "is_leaving", "me")

    def __init__(self, me: Voter) -> None:
        self.me = me
        self.is_fit = True
        """Whether its disk is well. If not, it stands in elections after all others, and inherits
        nothing. Call `start` on leaderless groups when it becomes fit again."""
        self.is_leaving = False
        """Whether this broker stops: it stands for nothing any more."""
        self._sessions: dict[Voter, int] = {}
        self._live: dict[Voter, None] = {}

    def open(self, peer: Voter, session: int) -> None:
        """A session began; messages of the former one are void from now on."""
        assert session > self._sessions.get(peer, 0), (peer, session)
        self._sessions[peer] = session
        self._live[peer] = None

    def close(self, peer: Voter) -> None:
        """The session ended and its socket with it."""
        self._sessions.pop(peer, None)
        self._live.pop(peer, None)

    def suspect(self, peer: Voter) -> None:
        """Nothing was heard for too long; the session stays."""
        self._live.pop(peer, None)

    def revive(self, peer: Voter) -> None:
        """A suspect was heard again in the same session."""
        assert peer in self._sessions, peer
        self._live[peer] = None

    def session(self, peer: Voter) -> int:
        """The number of the present session; 0: there is none."""
        return self._sessions.get(peer, 0)

    def is_live(self, peer: Voter) -> bool:
        return peer in self._live or peer == self.me
