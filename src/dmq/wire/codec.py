"""A message type with its versions, and its compiled readers and writers by version.

Compiling takes about a millisecond and happens when a version is first met. Used by `registry` for
requests and responses and by `stored` for the records of coordinators.
"""

from collections.abc import Callable

from dmq.errors import ProtocolError
from dmq.wire.decoder import Decode, compile_decoder
from dmq.wire.encoder import Encode, compile_encoder

NEVER_FLEXIBLE = 1 << 15
"""First flexible version of a message that has none."""


class Versions:
    """The versions of a message that we speak; compact and tagged from `first_flexible` on."""

    __slots__ = ("first_flexible", "highest", "lowest")

    def __init__(self, lowest: int, highest: int, first_flexible: int = NEVER_FLEXIBLE) -> None:
        assert 0 <= lowest <= highest
        self.lowest = lowest
        self.highest = highest
        self.first_flexible = first_flexible

    def check(self, name: str, version: int) -> None:
        """Raises ProtocolError for a version that we don't speak."""
        if not self.lowest <= version <= self.highest:
            raise ProtocolError(f"{name}: version {version} is not in {self}")

    def is_flexible(self, version: int) -> bool:
        """Does the version have compact lengths and tagged fields?"""
        return version >= self.first_flexible

    def __str__(self) -> str:
        return f"{self.lowest}-{self.highest}"


class Decoders(dict[int, Decode]):
    """Version -> reader of a message. Raises ProtocolError for a version that we don't speak."""

    def __init__(self, message: Callable[[], type], versions: Versions) -> None:
        super().__init__()
        self._message = message
        self._versions = versions

    def __missing__(self, version: int) -> Decode:
        message = self._message()
        self._versions.check(message.__name__, version)
        decode = compile_decoder(message, version, flexible=self._versions.is_flexible(version))
        self[version] = decode
        return decode


class Encoders(dict[int, Encode]):
    """Version -> writer of a message. Raises ProtocolError for a version that we don't speak."""

    def __init__(self, message: Callable[[], type], versions: Versions) -> None:
        super().__init__()
        self._message = message
        self._versions = versions

    def __missing__(self, version: int) -> Encode:
        message = self._message()
        self._versions.check(message.__name__, version)
        encode = compile_encoder(message, version, flexible=self._versions.is_flexible(version))
        self[version] = encode
        return encode
