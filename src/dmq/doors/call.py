"""One request on one connection: what a handler gets to know, and where it leaves its answer."""

import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from dmq.wire import registry

log = logging.getLogger("dmq.door.kafka")

_INFLEXIBLE = Struct(">ii")
_FLEXIBLE = Struct(">iix")
"""Size of the frame and correlation id; in flexible versions an empty set of tags follows."""

if TYPE_CHECKING:
    from dmq.doors.connection import Connection


class Call:
    """A request between its arrival and its place in the outgoing order.

    A handler ends each call once, by `reply`, `reply_nothing` or `hang_up`, now or later.
    """

    __slots__ = (
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "encode",
        "has_flexible_header",
        "is_dispatched",
        "is_done",
        "on_cancel",
        "parts",
        "request_bytes",
        "version",
    )

    def __init__(
        self,
        connection: "Connection",
        header: registry.RequestHeader,
        request_bytes: int,
    ) -> None:
        self.connection = connection
        self.api_key = header.api_key
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.request_bytes = request_bytes
        self.is_done = False
        self.is_dispatched = False  # Whether a handler has it: then an answer will come.
        self.encode: Callable[[Any], list[Any]] | None = None
        self.has_flexible_header = False
        self.parts: list[Any] | None = None
        self.on_cancel: Callable[[], None] | None = None  # Called if the connection goes first.

    def perform(self, work: Callable[..., None], *args: Any) -> None:
        """Let a handler begin, or go on after a wait: what it fails over is this client's alone."""
        try:
            work(*args)
        except AssertionError:
            raise  # A broken invariant: the runtime stops the process.
        except Exception:
            log.exception("handler of API %d version %d failed", self.api_key, self.version)
            self.hang_up("met an internal error")

    def reply(self, message: object) -> None:
        """Answer with `message` of this API's response type."""
        if not self.connection.is_closed:
            assert self.encode is not None
            self._send(self.encode(message))

    def reply_large(self, message: object) -> None:
        """Answer with a message that takes longer to encode than the loop has."""
        assert self.encode is not None
        encoded = self.connection.door.service.beside(partial(self.encode, message))
        encoded.on_done(lambda parts: self._send(parts.get()))

    def _send(self, parts: list[Any]) -> None:
        if self.connection.is_closed:
            return
        frame_header, header_bytes = (
            (_FLEXIBLE, 5) if self.has_flexible_header else (_INFLEXIBLE, 4)
        )
        size = header_bytes + sum(map(len, parts))
        if type(parts[0]) is bytes:
            parts[0] = frame_header.pack(size, self.correlation_id) + parts[0]
        else:
            parts.insert(0, frame_header.pack(size, self.correlation_id))
        self.parts = parts
        self._done()

    def reply_as(self, message: object, version: int) -> None:
        """Answer in another version than asked (ApiVersions of the future gets version 0)."""
        self.encode = registry.api(self.api_key).response_encoder(version)
        self.has_flexible_header = False
        self.reply(message)

    def reply_nothing(self) -> None:
        """End the call without an answer (Produce with acks=0)."""
        self._done()

    def hang_up(self, reason: str) -> None:
        """Close the connection: the answer to what can't be answered."""
        self.connection.close(reason)

    def _done(self) -> None:
        if self.connection.is_closed:
            return
        assert not self.is_done, "a call is answered once"
        self.is_done = True
        self.connection.answered(self)
