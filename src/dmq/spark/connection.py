"""One broker's connection: blocking requests on our own `wire`, with versions agreed on first.

How the data source talks to a cluster (both the readers and the writers):

    cluster = Cluster(Settings.of(options))               # dmq.spark.cluster; options as Spark gives
    cluster.connection(node_id)                           # a given broker, by node id
    cluster.leader_connection("orders", 0)                # a partition's leader
    cluster.coordinator_connection("my-id", TRANSACTION)  # a group's or a transaction's coordinator
    cluster.any_connection()                              # whoever answers

    response = connection.ask(FETCH, request)             # one request, its response
    connection.send(PRODUCE, first); connection.send(PRODUCE, second)   # several in flight …
    answers = connection.receive(), connection.receive()  # … answered in the order of sending

    def attempt() -> Answer: …                            # look the connection up *inside*
    cluster.retry("commit offsets", attempt)              # again, elsewhere, while that may help

Requests and responses are the classes of `dmq.wire.messages`. The version is the highest that both
sides speak; `highest=` caps it (Fetch and Produce by topic name need `highest=12`). A response's
error codes are the caller's: `failures.check(code, "what")` raises KafkaError, which `retry` knows.

Raises OSError when the connection breaks (it is then closed; the next look-up makes a new one),
`SparkSourceError` when a human must act. Not for use by several threads at once.
"""

import socket
import struct
import time
from collections import deque
from typing import Any, NamedTuple

from dmq.errors import ProtocolError
from dmq.spark.failures import SparkSourceError, check
from dmq.spark.security import Security
from dmq.wire import registry
from dmq.wire.messages.k18_api_versions import ApiVersionsRequest

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
SASL_HANDSHAKE = 17
API_VERSIONS = 18
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
END_TXN = 26
SASL_AUTHENTICATE = 36
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66

ANSWER_BYTES_MAX = 1 << 30
RECEIVE_BUFFER_BYTES = 4 << 20
_FRAME = struct.Struct(">i")


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Sent(NamedTuple):
    """A request on its way."""

    key: int
    version: int
    correlation_id: int


class Connection:
    """A connection to one broker, logged in, with its API versions known."""

    def __init__(
        self,
        address: Address,
        security: Security,
        *,
        client_id: str = "dmq-spark",
        connect_timeout_s: float = 10.0,
        request_timeout_s: float = 30.0,
    ) -> None:
        """Connect and log in. Raises OSError, SparkSourceError if the login or TLS is refused."""
        self.address = address
        self.is_open = True
        self.used_at = time.monotonic()
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._sent: deque[_Sent] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        plain = socket.create_connection(address, timeout=connect_timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket: socket.socket = plain
        try:
            self._socket = security.wrap(plain, str(address), address.host)
            self._learn_versions()
            if security.mechanism:
                self._log_in(security)
        except BaseException:
            self.close()
            raise

    # --- requests

    def ask(
        self,
        key: int,
        request: Any,
        *,
        highest: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """One request and its response; nothing else may be in flight."""
        assert not self._sent, "answers are read in the order of sending"
        self.send(key, request, highest=highest)
        return self.receive(timeout_s=timeout_s)

    def send(self, key: int, request: Any, *, highest: int | None = None) -> None:
        """Send a request; its response is read by a `receive` later, in the order of sending."""
        self._send(key, self.version(key, highest), request)

    def receive(self, *, timeout_s: float | None = None) -> Any:
        """The response to the oldest request in flight. Records in it are a view of its bytes."""
        assert self._sent, "nothing is in flight"
        sent = self._sent.popleft()
        try:
            self._socket.settimeout(timeout_s or self._request_timeout_s)
            answer = self._frame()
            correlation_id, start = registry.decode_response_header(sent.key, sent.version, answer)
            if correlation_id != sent.correlation_id:
                raise ProtocolError(f"{self.address} answered another request")
            self.used_at = time.monotonic()
            return registry.api(sent.key).decode_response(sent.version, answer, start)
        except BaseException:  # An interrupt too: half an answer may be left in the socket.
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        """How many responses are still to be read."""
        return len(self._sent)

    def version(self, key: int, highest: int | None = None) -> int:
        """The highest version of an API that both sides speak. Raises SparkSourceError if none."""
        api = registry.api(key)
        lowest, theirs = self._versions.get(key, (0, -1))
        version = min(api.max_version, theirs, api.max_version if highest is None else highest)
        if version < max(api.min_version, lowest):
            raise SparkSourceError(
                f"the broker at {self.address} does not speak {api.name} in a version that this"
                f" package knows (it says {lowest} to {theirs}, here {api.min_version} to"
                f" {api.max_version}); use brokers of Kafka 2.1 or later, or a newer dmq package"
            )
        return version

    def speaks(self, key: int) -> bool:
        """Does the broker have this API at all?"""
        return key in self._versions

    def close(self) -> None:
        """Hang up."""
        self.is_open = False
        self._sent.clear()
        self._socket.close()

    # --- bytes

    def _send(self, key: int, version: int, request: Any) -> None:
        self._correlation_id += 1
        header = registry.encode_request_header(key, version, self._correlation_id, self._client_id)
        parts: Any = registry.api(key).encode_request(version, request)
        size = len(header) + sum(len(part) for part in parts)
        try:
            self._socket.settimeout(self._request_timeout_s)
            self._socket.sendall(_FRAME.pack(size) + header + b"".join(parts))
        except BaseException:
            self.close()
            raise
        self._sent.append(_Sent(key, version, self._correlation_id))

    def _frame(self) -> bytearray:
        (size,) = _FRAME.unpack(self._exactly(_FRAME.size))
        if not _FRAME.size <= size <= ANSWER_BYTES_MAX:
            raise SparkSourceError(
                f"{self.address} does not answer as a Kafka broker does: check the port in"
                " kafka.bootstrap.servers, and kafka.security.protocol (a TLS port answers like this"
                " when it is spoken to in plain text)"
            )
        return self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        received = bytearray(size)
        view, at = memoryview(received), 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise ConnectionResetError(f"{self.address} closed the connection")
            at += count
        return received

    # --- the beginning of a connection

    def _learn_versions(self) -> None:
        # Version 0 is understood by every broker there ever was.
        self._send(API_VERSIONS, 0, ApiVersionsRequest())
        response = self.receive()
        check(response.error_code, f"{self.address} refuses to say which APIs it has")
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in response.api_keys
        }

    def _log_in(self, security: Security) -> None:
        from dmq.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
        from dmq.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

        handshake = self.ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=security.mechanism))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise SparkSourceError(
                f"{self.address} does not take kafka.sasl.mechanism={security.mechanism};"
                f" it offers: {offered}"
            )
        exchange = security.exchange()
        token = next(exchange)
        while True:
            answer = self.ask(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                why = answer.error_message or "user or password is wrong"
                raise SparkSourceError(
                    f"{self.address} refuses the login of {security.username!r}: {why};"
                    " check kafka.sasl.username and kafka.sasl.password (or kafka.sasl.jaas.config)"
                )
            try:
                token = exchange.send(answer.auth_bytes)
            except StopIteration:
                return
