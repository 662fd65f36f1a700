"""The networks of `dmq.testing.Cluster`: what a cut stops, which way, and that it heals."""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from compat.eventually import eventually

from dmq.testing import proxy
from dmq.testing.namespaces import Namespaces, why_not
from dmq.testing.networks import CLIENTS, Direct, Network, NotPossibleError, Place
from dmq.testing.proxy import Proxied

ECHO = """
import socket, sys, threading
def serve(end):
    while piece := end.recv(1000):
        end.sendall(piece)
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
"""A peer: gives back what it gets."""

CALLER = """
import socket, sys
sys.stdin.readline()
end = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
for line in sys.stdin:
    end.sendall(line.encode())
    print(end.makefile().readline(), end="", flush=True)
"""
"""Another peer: sends a line when told, and tells when it came back."""


@dataclass
class Pair:
    """Two processes in slots 1 and 2 of a network, with a connection from 1 to 2."""

    network: Network
    first: Place
    second: Place
    echo: subprocess.Popen[str]
    caller: subprocess.Popen[str]
    lines: list[str]

    def send(self, line: str) -> None:
        assert self.caller.stdin is not None
        self.caller.stdin.write(line + "\n")
        self.caller.stdin.flush()


@pytest.fixture(params=["proxy", "namespaces"])
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    if not sys.platform.startswith("linux"):
        pytest.skip("cuts need Linux")
    if request.param == "namespaces" and (reason := why_not()):
        pytest.skip(reason)
    made = Proxied() if request.param == "proxy" else Namespaces()
    yield made
    made.close()


@pytest.fixture
def pair(network: Network) -> Iterator[Pair]:
    with ExitStack() as stack:
        first, second = network.place(), network.place()
        echo = _process(stack, [*second.prefix], ECHO, (second.host, second.peer_port))
        assert echo.stdout is not None
        assert echo.stdout.readline() == "ready\n"
        network.is_up(2, echo.pid)
        caller = _process(stack, [*first.prefix], CALLER, second.peer_advertised)
        network.is_up(1, caller.pid)
        pair = Pair(network, first, second, echo, caller, [])
        pair.send("go")
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        yield pair


def _process(
    stack: ExitStack, prefix: list[str], program: str, address: tuple[str, int]
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", program, address[0], str(address[1])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def answers(pair: Pair, line: str) -> None:
    pair.send(line)
    assert pair.caller.stdout is not None
    assert pair.caller.stdout.readline() == line + "\n"


def is_silent(pair: Pair) -> bool:
    """Does nothing come back for a while? Wrong answers are possible one way only: a broken cut
    passes bytes at once."""
    return not select.select([pair.caller.stdout], [], [], 0.3)[0]


@pytest.mark.parametrize("way", [(1, 2), (2, 1)])
def test_a_cut_holds_one_direction_and_heals(pair: Pair, way: tuple[int, int]) -> None:
    answers(pair, "before")
    pair.network.cut(*way)
    pair.send("during")
    assert is_silent(pair)
    pair.network.heal(*way)
    assert pair.caller.stdout is not None
    assert pair.caller.stdout.readline() == "during\n"
    answers(pair, "after")


def test_a_cut_concerns_only_the_two(pair: Pair) -> None:
    third = pair.network.place()
    pair.network.cut(third.slot, 2)
    pair.network.cut(2, third.slot)
    answers(pair, "still here")


def test_a_broker_that_is_down_refuses(pair: Pair) -> None:
    pair.echo.kill()
    pair.echo.wait()
    pair.network.is_down(2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(pair.second.peer_advertised, timeout=5)


def test_clients_are_cut_only_where_they_are_part_of_the_network(pair: Pair) -> None:
    address = (pair.second.host, pair.second.peer_port)
    if pair.network.name == "proxy":
        with pytest.raises(NotPossibleError, match="namespaces"):
            pair.network.cut(CLIENTS, 2)
        return
    socket.create_connection(address, timeout=5).close()
    pair.network.cut(CLIENTS, 2)
    with pytest.raises(TimeoutError):
        socket.create_connection(address, timeout=0.5)
    answers(pair, "brokers still reach it")
    pair.network.heal(CLIENTS, 2)
    eventually(lambda: _connects(address), "clients reach it again")


def _connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError:
        return False
    return True


def test_loopback_alone_says_that_it_cannot_cut() -> None:
    with pytest.raises(NotPossibleError, match="proxy"):
        Direct().cut(1, 2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_caller_is_known_by_both_ends_of_its_connection() -> None:
    """One port can be that of several connections: the kernel gives it out again for another place."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        port = 0
        for server in servers:
            end = stack.enter_context(socket.socket())
            end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            end.bind(("127.0.0.1", port))
            end.connect(server.getsockname())
            port = end.getsockname()[1]
            inode = str(os.fstat(end.fileno()).st_ino)
            assert proxy.inode_of(port, server.getsockname()[1]) == inode
