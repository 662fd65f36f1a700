"""TCP proxies between the brokers' peer doors: cuts without root and without the kernel's help.

One proxy per broker stands at the address that its peers are told; who calls is seen from the calling
process's sockets (Linux). A cut stops the flow in one direction: bytes are neither passed on nor dropped,
connections stay open, and what was held back arrives when the cut is healed, as with TCP across a broken
cable. What it can't show: lost packets, and a connect that gets no answer (the proxy takes it and then
stays silent). Clients are not behind it. Runs on a loop of its own in a thread of the test's process.
"""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from dmq.testing.networks import CLIENTS, NotPossibleError, Place, free_port

T = TypeVar("T")
_HOST = "127.0.0.1"
_PIECE_BYTES = 256 << 10
_UNKNOWN = -1
"""A caller whose process is not one of ours, or has ended since."""
_LOOKS = 3
"""The kernel's list changes while it is read, and may lack what was there all the time."""


class Proxied:
    """A proxy in front of each broker's peer door."""

    name = "proxy"
    what = "TCP proxies of dmq.testing between the brokers' peer doors, which stop passing bytes on"

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._pids: dict[int, int] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._gates: dict[tuple[int, int], asyncio.Event] = {}
        self._flows: set[asyncio.Task[None]] = set()
        self._fresh: set[socket.socket] = set()
        """Connections that no stream has taken over yet."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="dmq-proxy", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the proxies' loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # --- the seam

    def place(self) -> Place:
        slot = len(self._places) + 1
        place = Place(slot, _HOST, free_port(), free_port(), (_HOST, free_port()))
        self._places[slot] = place
        return place

    def is_up(self, slot: int, pid: int) -> None:
        """From now on the proxy listens: a dead broker's address refuses, as it would by itself."""
        self._pids[slot] = pid
        self._call(self._listen(slot))

    def is_down(self, slot: int) -> None:
        self._pids.pop(slot, None)
        self._call(self._close(slot))

    def cut(self, source: int, target: int) -> None:
        if not sys.platform.startswith("linux"):
            raise NotPossibleError("who calls a proxy can only be told on Linux: no cuts here")
        if CLIENTS in (source, target):
            raise NotPossibleError(
                'clients are not behind the proxies: as root on Linux use network="namespaces"'
            )
        self._call(self._set_gate(source, target, is_open=False))

    def heal(self, source: int, target: int) -> None:
        if CLIENTS not in (source, target):
            self._call(self._set_gate(source, target, is_open=True))

    def cleanup(self) -> list[list[str]]:
        return []

    def close(self) -> None:
        self._call(self._close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # --- on the loop

    async def _listen(self, slot: int) -> None:
        """By hand: a server of asyncio loses a connection that comes while it is being closed."""
        if slot not in self._listeners:
            listener = socket.create_server(self._places[slot].peer_advertised)
            listener.setblocking(False)
            self._listeners[slot] = listener
            self._loop.add_reader(listener, self._accept, slot, listener)

    async def _close(self, slot: int) -> None:
        listener = self._listeners.pop(slot, None)
        if listener is not None:
            self._loop.remove_reader(listener)
            listener.close()

    async def _close_all(self) -> None:
        for slot in list(self._listeners):
            await self._close(slot)
        for task in self._flows:
            task.cancel()
        await asyncio.gather(*self._flows, return_exceptions=True)
        await self._pass_by()

    @staticmethod
    async def _pass_by() -> None:
        """Let asyncio finish what it began: closing a connection takes it some passes."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def _set_gate(self, source: int, target: int, *, is_open: bool) -> None:
        gate = self._gate(source, target)
        if is_open:
            gate.set()
        else:
            gate.clear()

    def _gate(self, source: int, target: int) -> asyncio.Event:
        if (source, target) not in self._gates:
            self._gates[source, target] = asyncio.Event()
            self._gates[source, target].set()
        return self._gates[source, target]

    def _accept(self, target: int, listener: socket.socket) -> None:
        try:
            connection, (_, caller) = listener.accept()
        except OSError:  # Whoever called is gone again.
            return
        connection.setblocking(False)
        self._fresh.add(connection)
        task = self._loop.create_task(self._carry(target, caller, connection))
        self._flows.add(task)
        task.add_done_callback(self._flows.discard)
        task.add_done_callback(lambda _: self._drop_fresh(connection))

    def _drop_fresh(self, connection: socket.socket) -> None:
        """Its task was cancelled before its first step."""
        if connection in self._fresh:
            self._fresh.discard(connection)
            connection.close()

    async def _carry(self, target: int, caller: int, connection: socket.socket) -> None:
        """One connection, until either end closes it."""
        self._fresh.discard(connection)
        reader, writer = await asyncio.open_connection(sock=connection)
        far_writer: asyncio.StreamWriter | None = None
        try:
            place = self._places[target]
            source = _slot_of(caller, place.peer_advertised[1], self._pids)
            await self._gate(source, target).wait()
            far_reader, far_writer = await asyncio.open_connection(place.host, place.peer_port)
            there = self._flow(reader, far_writer, self._gate(source, target))
            back = self._flow(far_reader, writer, self._gate(target, source))
            async with asyncio.TaskGroup() as both:
                both.create_task(there)
                both.create_task(back)
        except* OSError:
            pass  # The broker is not there, or either end was reset: so is the other one.
        finally:
            writer.transport.abort()
            if far_writer is not None:
                far_writer.transport.abort()

    @staticmethod
    async def _flow(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while True:
            await gate.wait()
            piece = await reader.read(_PIECE_BYTES)
            await gate.wait()
            if not piece:
                raise ConnectionResetError  # A peer that closes one direction is done with both.
            writer.write(piece)
            await writer.drain()


def _slot_of(port: int, to: int, pids: dict[int, int]) -> int:
    """The slot of the process that owns the loopback connection from `port` to the port `to`."""
    for _ in range(_LOOKS):
        inode = inode_of(port, to)
        if inode is not None:
            for slot, pid in list(pids.items()):
                if _holds(pid, f"socket:[{inode}]"):
                    return slot
    return _UNKNOWN


def inode_of(port: int, to: int) -> str | None:
    """By both ports: one that calls from may be that of other connections too, or of ended ones."""
    ends = f":{port:04X}", f":{to:04X}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if (fields[1][-5:], fields[2][-5:]) == ends:
                return fields[9]
    return None


def _holds(pid: int, target: str) -> bool:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) == target:
                    return True
    return False
