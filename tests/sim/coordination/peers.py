"""The peer door of a simulated broker: `dmq.broker.peers.Peers` over the frames of its sessions.

A call fails when its session ends or its time is over, and is never sent twice. Notes share the sessions
with Raft's frames, so whatever happens to the network happens to them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.notes import Note

from dmq.broker.answer import Answer
from dmq.broker.peers import Address, Handler, LinkWatcher, PeerError
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError

if TYPE_CHECKING:
    from sim.broker import Broker


class SimPeers:
    """See the module; one for each process."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._sessions: dict[int, int] = {}
        self._handlers: dict[str, Handler] = {}
        self._watchers: list[LinkWatcher] = []
        self._calls: dict[int, tuple[int, Answer[bytes]]] = {}
        self._numbers = 0

    # ---- what the broker asks (Peers)

    def serve(self, verb: str, handler: Handler, *, is_open: bool = False) -> None:
        self._handlers[verb] = handler

    def know(self, addresses: Mapping[int, Address]) -> None:
        """The simulated network knows everybody."""

    def call(self, node: int, verb: str, body: bytes, timeout_ms: int) -> Answer[bytes]:
        answer: Answer[bytes] = Answer()
        if node not in self._sessions:
            answer.fail(PeerError("there is no session", was_sent=False))
            return answer
        self._numbers += 1
        number = self._numbers
        self._calls[number] = node, answer
        self._send(node, self._sessions[node], Note(verb, number, body))
        self._broker.later(timeout_ms, self._time_out, number)
        return answer

    def cast(self, node: int, verb: str, body: bytes) -> None:
        if node in self._sessions:
            self._send(node, self._sessions[node], Note(verb, 0, body))

    def send(self, frames: list[object]) -> None:
        raise NotImplementedError  # A simulated process sends its frames itself.

    def watch(self, watcher: LinkWatcher) -> None:
        self._watchers.append(watcher)

    def linked(self) -> list[int]:
        return sorted(self._sessions)

    def close(self) -> None:
        """A process only ever ends."""

    # ---- what happens

    def connected(self, node: int, session: int) -> None:
        if node in self._sessions:
            self.closed(node, self._sessions[node])
        self._sessions[node] = session
        for watcher in self._watchers:
            watcher(node, True)

    def closed(self, node: int, session: int) -> None:
        if self._sessions.get(node) != session:
            return
        del self._sessions[node]
        for number in [number for number, call in self._calls.items() if call[0] == node]:
            self._fail(number, "the session ended")
        for watcher in self._watchers:
            watcher(node, False)

    def receive(self, node: int, session: int, note: Note) -> None:
        """Raises ProtocolError."""
        if note.verb:
            answer = self._handle(node, note)
            if note.number:
                answer.on_done(lambda done: self._reply(node, session, note.number, done))
            return
        _, waiting = self._calls.pop(note.number, (0, None))
        if waiting is None:
            return
        if note.code is ErrorCode.NONE:
            waiting.resolve(note.body)
        else:
            waiting.fail(KafkaError(note.code, note.text))

    def _handle(self, node: int, note: Note) -> Answer[bytes]:
        """Raises ProtocolError; any other error is the answer."""
        answer: Answer[bytes] = Answer()
        try:
            return self._handlers[note.verb](node, note.body)
        except ProtocolError:
            raise
        except DmqError as error:
            answer.fail(error)
        return answer

    def _reply(self, node: int, session: int, number: int, done: Answer[bytes]) -> None:
        try:
            note = Note("", number, done.get())
        except DmqError as error:
            note = Note("", number, b"", error.code, str(error))
        self._send(node, session, note)

    def _send(self, node: int, session: int, note: Note) -> None:
        network = self._broker.world.network
        network.send(self._broker.number, node, session, False, note, in_order=True)

    def _time_out(self, number: int) -> None:
        if number in self._calls:
            self._fail(number, "nobody answered in time")

    def _fail(self, number: int, why: str) -> None:
        self._calls.pop(number)[1].fail(PeerError(why, was_sent=True))
