"""A call of the Kafka door without a socket: a request goes in as bytes, the answer comes out as bytes.

Both ways go through the real codecs of the API's version, so what an answer can't carry is not seen.
"""

from types import SimpleNamespace
from typing import Any, cast

from dmq.wire import registry


class FakeCall:
    """What a handler needs of `doors.call.Call`."""

    def __init__(self, api_key: int, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.replies: list[Any] = []
        self.connection = SimpleNamespace(door=SimpleNamespace(listener="PLAINTEXT"))

    def perform(self, work: Any, *args: Any) -> None:
        work(*args)

    def reply(self, message: object) -> None:
        self.replies.append(over_the_wire(self.api_key, self.version, message))


def over_the_wire(api_key: int, version: int, response: object) -> Any:
    """A response as a client of this version gets it."""
    api = registry.api(api_key)
    data = b"".join(cast(list[bytes], api.response_encoder(version)(response)))
    return api.decode_response(version, data, 0)


def asked(handle: Any, service: object, api_key: int, version: int, request: object) -> FakeCall:
    """The call after `handle` got the request as it arrives in this version."""
    api = registry.api(api_key)
    data = b"".join(cast(list[bytes], api.encode_request(version, request)))
    decoded, _ = api.request_decoder(version)(memoryview(data), 0)
    call = FakeCall(api_key, version)
    handle(service, call, decoded)
    return call


def answer(handle: Any, service: object, api_key: int, version: int, request: object) -> Any:
    """The one answer that came at once."""
    [reply] = asked(handle, service, api_key, version, request).replies
    return reply
