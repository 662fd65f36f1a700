"""The Kafka door: accepts connections and hands each request to its handler.

Owns the listening socket, the limits on connections and on requests under way in all, and the table
of handlers. Decides nothing about a request beyond "is this API and version served here".
"""

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dmq.broker.service import Service
from dmq.config.broker import BrokerConfig, parse_ip_overrides
from dmq.doors.call import Call
from dmq.doors.connection import Connection
from dmq.doors.fetch_sessions import FetchSessions
from dmq.doors.frames import SHARED_BYTES, FrameReader
from dmq.doors.kafka_api import served
from dmq.doors.outbox import Slice
from dmq.errors import ProtocolError
from dmq.wire import registry

log = logging.getLogger("dmq.door.kafka")

ACCEPTS_PER_EVENT = 64
ACCEPT_REST_S = 0.1
"""After the system refused a connection (out of descriptors): the backlog waits."""
IDLE_SWEEP_S = 5.0

UNSENT_BYTES = 64 * 1024 * 1024
"""Answers that one client leaves unread: slices of files mostly, so this is no memory."""


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Bounds of the door. At each of them a sender waits; only `connections` refuses."""

    request_bytes: int
    """One request; a larger one closes its connection."""
    in_flight_bytes: int
    """Requests under way on one connection; beyond it the socket is not read."""
    in_flight_bytes_all: int
    """Requests under way on all connections together; beyond it no socket is read. Requests that
    are still arriving may have as much again; beyond it one after the other arrives."""
    in_flight_requests: int
    """Requests under way on one connection."""
    unsent_bytes: int
    """Answers that a client does not read; beyond it no more of its requests are taken."""
    connections: int
    connections_per_ip: int
    per_ip_overrides: Mapping[str, int]
    """Other numbers for single addresses."""
    connections_per_s: int
    """Accepted within a second; the others wait in the backlog."""
    idle_ms: int
    """A connection without a request for so long is closed; 0 or less: never."""
    backlog: int
    """Connections that wait to be accepted."""
    send_buffer_bytes: int
    receive_buffer_bytes: int
    """Of the sockets; -1: as the system thinks best."""

    @classmethod
    def of(cls, config: BrokerConfig) -> "DoorLimits":
        queued = config.queued_max_request_bytes
        return cls(
            request_bytes=config.socket_request_max_bytes,
            in_flight_bytes=config.connection_queued_max_bytes,
            in_flight_bytes_all=sys.maxsize if queued < 0 else queued,
            in_flight_requests=config.connection_queued_max_requests,
            unsent_bytes=UNSENT_BYTES,
            connections=config.max_connections,
            connections_per_ip=config.max_connections_per_ip,
            per_ip_overrides=parse_ip_overrides(config.max_connections_per_ip_overrides),
            connections_per_s=config.max_connection_creation_rate,
            idle_ms=config.connections_max_idle_ms,
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )


class BoundSocket:
    """A socket that listens and whose door is not open yet: those who knock wait."""

    def __init__(self, config: BrokerConfig, host: str, port: int) -> None:
        """Port 0: any. Raises OSError."""
        limits = DoorLimits.of(config)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.create_server((host, port), family=family, backlog=limits.backlog)
        self.sock.setblocking(False)
        if limits.receive_buffer_bytes > 0:  # Must be set before the connection is there.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)

    @property
    def port(self) -> int:
        return int(self.sock.getsockname()[1])

    def close(self) -> None:
        self.sock.close()


class KafkaDoor:
    """The listening socket and all its connections."""

    def __init__(
        self,
        service: Service,
        listener: str,
        sessions: FetchSessions,
        warm: Callable[[Slice, Callable[[BaseException | None], None]], None],
        bound: "BoundSocket",
    ) -> None:
        self.service = service
        self.listener = listener
        self.limits = DoorLimits.of(service.config)
        self.sessions = sessions
        self.warm = warm
        self.in_flight_bytes = 0
        self.handlers = served.Handlers()
        self._connections: dict[Connection, None] = {}
        self._per_ip: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}
        """For room in memory, first come first served."""
        self._held: dict[Connection, None] = {}
        """Producers that wait for the disk."""
        self.unfinished_bytes = 0
        """Memory of large requests that are still arriving; bounded like requests under way."""
        self._halfway: dict[Connection, None] = {}
        """Those that must wait in the middle of one."""
        self._goes_on: Connection | None = None
        """The one that may finish its request though there is no room: somebody must."""
        self._shared = memoryview(bytearray(SHARED_BYTES))
        self._sock: socket.socket | None = bound.sock
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._second_began = 0.0
        self._accepted_in_second = 0

    def configure(self, config: BrokerConfig) -> None:
        """Take settings that changed while running."""
        self.limits = DoorLimits.of(config)

    def __len__(self) -> int:
        return len(self._connections)

    # --- accepting ---------------------------------------------------------------------------

    def open(self) -> None:
        """Take connections."""
        assert self._sock is not None
        self._loop.add_reader(self._sock.fileno(), self._accept)
        if self.limits.idle_ms > 0:
            self._sweep = self._loop.call_later(IDLE_SWEEP_S, self._close_idle)

    def _accept(self) -> None:
        assert self._sock is not None
        for _ in range(ACCEPTS_PER_EVENT):
            if self._is_too_quick():
                self._accept_again_at(self._second_began + 1)
                return
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:  # Out of descriptors: those who are in go on.
                log.warning("can't accept a connection: %s", error)
                self._accept_again_at(self._loop.time() + ACCEPT_REST_S)
                return
            self._accepted_in_second += 1
            self._admit(sock, str(address[0]), int(address[1]))

    def _is_too_quick(self) -> bool:
        """Count connections by the second; at the bound the rest stays in the backlog for now."""
        now = self._loop.time()
        if now - self._second_began >= 1:
            self._second_began, self._accepted_in_second = now, 0
        return self._accepted_in_second >= self.limits.connections_per_s

    def _accept_again_at(self, moment: float) -> None:
        assert self._sock is not None
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_at(moment, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._sock is not None:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _admit(self, sock: socket.socket, ip: str, port: int) -> None:
        limits = self.limits
        if len(self._connections) >= limits.connections:
            log.warning("refused %s: max.connections=%d is reached", ip, limits.connections)
            sock.close()
            return
        per_ip = limits.per_ip_overrides.get(ip, limits.connections_per_ip)
        if self._per_ip[ip] >= per_ip:
            log.warning("refused %s: max.connections.per.ip=%d is reached", ip, per_ip)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        self._per_ip[ip] += 1
        reader = FrameReader(self._shared, limits.request_bytes)
        connection = Connection(self, sock, f"{ip}:{port}", self._loop, reader)
        self._connections[connection] = None

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)
        self._held.pop(connection, None)
        self._halfway.pop(connection, None)
        ip = connection.peer.rpartition(":")[0]
        self._per_ip[ip] -= 1
        if self._per_ip[ip] <= 0:
            del self._per_ip[ip]
        self.made_room()

    def _close_idle(self) -> None:
        oldest = self._loop.time() - self.limits.idle_ms / 1000
        for connection in list(self._connections):
            if connection.last_active < oldest and not connection.in_flight_bytes:
                connection.close("")
        self._sweep = self._loop.call_later(IDLE_SWEEP_S, self._close_idle)

    def stop_taking(self) -> None:
        """Take no more connections and no more requests; answers still leave."""
        self._stop_listening()
        for connection in list(self._connections):
            connection.stop_taking()

    @property
    def has_unsent(self) -> bool:
        return any(connection.has_unsent for connection in self._connections)

    def _stop_listening(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        """Close the door and everything behind it."""
        self._stop_listening()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._connections):
            connection.close("")

    # --- bounds over all connections -----------------------------------------------------------

    def must_wait(self, connection: Connection) -> bool:
        """Whether this connection must wait for others: for room in memory or, if it brings
        records, for the disk. It is told by `room_again`."""
        if self.in_flight_bytes > self.limits.in_flight_bytes_all:
            self._waiting[connection] = None
            return True
        backlog = self.service.backlog
        if connection.has_produced and backlog.is_full:
            if not self._held:
                backlog.when_relieved(self._relieved)
            self._held[connection] = None
            return True
        return bool(connection.unfinished_bytes) and self._must_wait_halfway(connection)

    def _must_wait_halfway(self, connection: Connection) -> bool:
        if self.unfinished_bytes <= self.limits.in_flight_bytes_all:
            return False
        if self._goes_on is None:
            self._goes_on = connection
        if self._goes_on is connection:
            return False
        self._halfway[connection] = None
        return True

    def count_unfinished(self, connection: Connection, change: int) -> None:
        """A connection holds more, or less, of a request that is still arriving."""
        self.unfinished_bytes += change
        if connection is self._goes_on and not connection.unfinished_bytes:
            self._goes_on = None
        if change < 0 and self._halfway:
            halfway, self._halfway = self._halfway, {}
            for other in halfway:
                other.room_again()

    def _relieved(self) -> None:
        held, self._held = self._held, {}
        for connection in held:
            connection.room_again()

    def made_room(self) -> None:
        """Let those read again who wait for the others' requests to end, one after the other."""
        for connection in list(self._waiting):
            if self.in_flight_bytes > self.limits.in_flight_bytes_all:
                return
            del self._waiting[connection]
            connection.room_again()

    # --- requests ------------------------------------------------------------------------------

    def dispatch(self, call: Call, frame: bytearray, header: registry.RequestHeader) -> None:
        """Decode the request and hand it to its handler. Raises ProtocolError."""
        handler = self.handlers.find(call.api_key, call.version)
        if handler is None:
            if call.api_key == served.API_VERSIONS:
                call.is_dispatched = True
                served.answer_unknown_api_versions(self.service, call)
                return
            raise ProtocolError(
                f"asked for API {call.api_key} version {call.version}, which is not served"
            )
        request = handler.decode(memoryview(frame), header.end)[0]
        call.encode = handler.encode
        call.has_flexible_header = handler.is_flexible
        call.is_dispatched = True
        call.perform(handler.handle, self.service, call, request)
