"""One request on one connection: what a handler gets to know, and where it leaves its answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dmq.wire import registry

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
        self.parts: list[Any] | None = None
        self.on_cancel: Callable[[], None] | None = None  # Called if the connection goes first.

    def reply(self, message: object) -> None:
        """Answer with `message` of this API's response type."""
        self.reply_as(message, self.version)

    def reply_as(self, message: object, version: int) -> None:
        """Answer in another version than asked (ApiVersions of the future gets version 0)."""
        if self.connection.is_closed:
            return
        body = registry.api(self.api_key).encode_response(version, message)
        header = registry.encode_response_header(self.api_key, version, self.correlation_id)
        size = len(header)
        for part in body:
            size += len(part)
        self.parts = [size.to_bytes(4, "big") + header, *body]
        self._done()

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
