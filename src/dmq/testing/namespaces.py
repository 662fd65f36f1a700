"""Real networks: each broker in a network namespace of its own (Linux, root).

A router namespace lies in the middle; every broker, and this machine for the clients, has a virtual
cable to it. A cut is a routing rule of the router that drops what comes in on one cable for one address:
one-way and silent, and nothing of the kernel's packet filters is needed. The machine itself gains one
interface and one route for the time of the cluster. Packets that were on their way are lost, TCP sends
them again: what a broker sees is what a broken switch looks like.
"""

import itertools
import os
import shutil
import subprocess

from dmq.testing.networks import CLIENTS, NotPossibleError, Place

_numbers = itertools.count(1)
_KAFKA_PORT, _PEER_PORT = 9092, 9093


def why_not() -> str:
    """Why namespaces can't be used here; empty if they can."""
    if shutil.which("ip") is None:
        return "there is no `ip` command (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"dmqt{os.getpid()}"
    try:
        _ip([f"netns add {name}"])
        _ip([f"link add {name} type veth peer name {name}p netns {name}", f"link del {name}"])
        _ip(["rule add iif lo to 255.255.255.254 blackhole"], namespace=name)
    except NotPossibleError as error:
        return str(error)
    finally:
        _try(["ip", "netns", "del", name])
    return ""


class Namespaces:
    """One router, one namespace and one /24 per broker."""

    name = "namespaces"
    what = "network namespaces behind a router that drops packets by rule"

    def __init__(self) -> None:
        self._id = f"dmq{os.getpid()}x{next(_numbers)}"
        self._cable = f"d{os.getpid()}x{self._id.rpartition('x')[2]}"
        self._net = _free_net()
        self._slots = 0
        self._cuts: set[tuple[int, int]] = set()
        try:
            self._lay_out()
        except NotPossibleError:
            self.close()
            raise

    def _lay_out(self) -> None:
        _ip([f"netns add {self._id}"])
        _ip([f"link add {self._cable} type veth peer name world netns {self._id}"])
        _ip(
            [
                f"addr add {self._net}.0.1/24 dev {self._cable}",
                f"link set {self._cable} up",
            ]
        )
        _ip([f"addr add {self._net}.0.2/24 dev world", "link set world up"], namespace=self._id)
        _ip([f"route add {self._net}.0.0/16 via {self._net}.0.2"])
        forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
        _run(["ip", "netns", "exec", self._id, "sh", "-c", forward])

    def place(self) -> Place:
        self._slots += 1
        slot, net = self._slots, f"{self._net}.{self._slots}"
        name = f"{self._id}n{slot}"
        _ip([f"netns add {name}"])
        _ip([f"link add b{slot} type veth peer name e0 netns {name}"], namespace=self._id)
        _ip([f"addr add {net}.1/24 dev b{slot}", f"link set b{slot} up"], namespace=self._id)
        lines = [f"addr add {net}.2/24 dev e0", "link set e0 up", "link set lo up"]
        _ip([*lines, f"route add default via {net}.1"], namespace=name)
        host, prefix = f"{net}.2", ("ip", "netns", "exec", name)
        return Place(slot, host, _KAFKA_PORT, _PEER_PORT, (host, _PEER_PORT), prefix)

    def is_up(self, slot: int, pid: int) -> None:
        pass

    def is_down(self, slot: int) -> None:
        pass

    def cut(self, source: int, target: int) -> None:
        if (source, target) not in self._cuts:
            self._cuts.add((source, target))
            _ip([f"rule add {self._rule(source, target)}"], namespace=self._id)

    def heal(self, source: int, target: int) -> None:
        if (source, target) in self._cuts:
            self._cuts.remove((source, target))
            _ip([f"rule del {self._rule(source, target)}"], namespace=self._id)

    def _rule(self, source: int, target: int) -> str:
        cable = "world" if source == CLIENTS else f"b{source}"
        address = f"{self._net}.0.1" if target == CLIENTS else f"{self._net}.{target}.2"
        return f"iif {cable} to {address} blackhole"

    def cleanup(self) -> list[list[str]]:
        names = [f"{self._id}n{slot}" for slot in range(1, self._slots + 1)] + [self._id]
        # With the router's namespace its end of every cable goes, and with it the other end.
        return [["ip", "netns", "del", name] for name in names]

    def close(self) -> None:
        for command in self.cleanup():
            _try(command)


def _free_net() -> str:
    """The first two numbers of a network that this machine does not know yet."""
    known = _run(["ip", "-4", "route", "show", "table", "all"])
    for second in range(64 + os.getpid() % 128, 256):
        if f"10.{second}." not in known:
            return f"10.{second}"
    raise NotPossibleError("no unused network 10.x.0.0/16 was found")


def _ip(lines: list[str], namespace: str = "") -> None:
    """Commands of iproute2, in one process."""
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    _run(command, "\n".join(lines) + "\n")


def _try(command: list[str]) -> None:
    """For what may be gone already."""
    subprocess.run(command, check=False, capture_output=True)  # noqa: S603


def _run(command: list[str], given: str = "") -> str:
    done = subprocess.run(  # noqa: S603
        command, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotPossibleError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
