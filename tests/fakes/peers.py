"""The door to other brokers without a network: calls that a test answers."""

from typing import NamedTuple

from dmq.broker.answer import Answer
from dmq.broker.peers import Handler, Peers


class Asked(NamedTuple):
    """A call under way."""

    node: int
    verb: str
    body: bytes
    timeout_ms: int
    answer: Answer[bytes]


class Wire(Peers):
    """Links with `nodes`, what was asked of them, and what this broker serves."""

    def __init__(self, *nodes: int) -> None:
        self.nodes = [*nodes]
        self.asked: list[Asked] = []
        self.served: dict[str, Handler] = {}

    def serve(self, verb: str, handler: Handler, *, is_open: bool = False) -> None:
        self.served[verb] = handler

    def linked(self) -> list[int]:
        return self.nodes

    def call(self, node: int, verb: str, body: bytes, timeout_ms: int) -> Answer[bytes]:
        answer: Answer[bytes] = Answer()
        self.asked.append(Asked(node, verb, body, timeout_ms, answer))
        return answer

    def answer(self, value: bytes = b"") -> None:
        """All that is asked now."""
        asked, self.asked = self.asked, []
        for one in asked:
            one.answer.resolve(value)
