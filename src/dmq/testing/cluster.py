"""`Cluster`: several brokers as processes of their own, to try what happens when they fail.

    with Cluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(cluster.leader("orders", 0))      # kill -9; writes go on at another broker

`async with Cluster(3)` works too. Brokers are named by their node ids: 1, 2, 3 at first, then what
`add` returns; another id raises NoSuchBrokerError. Owns their processes, ports, folders and the network
between them; when a test fails inside of `with`, folder and logs are kept and the exception says where.
The brokers end with the process that started them, however that ends. Never used by the broker itself.
"""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, permutations, product
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dmq.errors import ProtocolError
from dmq.testing.defaults import (
    DEFAULTS,
    START_PATIENCE_S,
    BrokerFailedError,
    NoSuchBrokerError,
)
from dmq.testing.leash import Leash
from dmq.testing.member import Member
from dmq.testing.networks import CLIENTS, Direct, Network
from dmq.testing.probe import PartitionView, View, metadata_voters, view

STOP_PATIENCE_S = 30.0
_LOOK_EACH_S = 0.02
_NOT_SHARED = ("host", "port")
"""Defaults of a single broker that each broker of a cluster has for itself."""


class Cluster:
    """Running brokers between `start` and `stop`, or as a context manager.

    brokers   how many to begin with
    settings  by their names, for all brokers, e.g. {"num.partitions": 3, "durability": "sync"}
    data_dir  kept after the stop; without it a temporary one, removed unless a test failed
    network   "proxy": TCP proxies of ours between the brokers, so that `isolate` works without root;
              "namespaces": each broker in a network namespace (Linux, root): real cuts, also from
              clients; "direct": nothing in between, nothing can be cut
    """

    _member_type = Member

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, Any] | None = None,
        *,
        data_dir: str | Path | None = None,
        network: str = "proxy",
    ) -> None:
        assert brokers >= 1
        assert network in _NETWORKS, f"network is one of {', '.join(_NETWORKS)}"
        own = {name: value for name, value in DEFAULTS.items() if name not in _NOT_SHARED}
        self._settings = own | dict(settings or {})
        self._count = brokers
        self._network_name = network
        self._given_dir = None if data_dir is None else Path(data_dir)
        self._network: Network = Direct()
        self._leash: Leash | None = None
        self._members: dict[int, Member] = {}
        self._founders: list[Member] = []
        self._replaced: list[Member] = []
        """Processes that had the numbers of others; they may run."""
        self._cuts: set[tuple[int, int]] = set()
        self.folder: Path = self._given_dir or Path()
        """Data and logs of the brokers: broker-1, broker-1.log and so on."""
        self.keep = False
        """Whether the folder stays after the stop."""

    # --- the whole

    def start(self) -> Self:
        """Start the brokers all at once and wait until they are a cluster. Raises BrokerFailedError."""
        assert not self._members, "the cluster is running already"
        if self._given_dir is None:
            self.folder = Path(tempfile.mkdtemp(prefix="dmq-cluster-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._leash = Leash()
        try:
            self._network = _make_network(self._network_name)
            for command in self._network.cleanup():
                self._leash.run_at_end(command)
            self._founders = members = [self._new_member() for _ in range(self._count)]
            for member in members:
                member.node = member.place.slot
                self._members[member.node] = member
            for member in members:
                self._spawn(member)
            for member in members:
                member.wait_for_ready_line()
            self.wait_ready()
        except BaseException as error:
            self._note_logs(error)
            self._end()
            raise
        return self

    def stop(self, broker: int | None = None) -> None:
        """Stop one broker in order (SIGTERM): it hands its leaderships over first. Without one: stop
        all, those that are paused or cut off too. Raises BrokerFailedError if one ends badly."""
        if broker is None:
            self._stop_all()
        else:
            self._stop_one(self.member(broker))

    def _stop_one(self, member: Member) -> None:
        member.terminate()
        try:
            member.wait_for_end(STOP_PATIENCE_S)
        finally:
            self._is_down(member)

    def _stop_all(self) -> None:
        failures = []
        try:
            self.heal()
            running = [member for member in self._members.values() if member.is_running]
            for member in running:
                member.terminate()
            for member in running:
                try:
                    member.wait_for_end(STOP_PATIENCE_S)
                except BrokerFailedError as error:
                    failures.append(error)
        finally:
            self.keep = self.keep or bool(failures)
            self._end()
        if failures:
            self._note_logs(failures[0])
            raise failures[0]

    def _end(self) -> None:
        for former in self._replaced:
            former.kill()
            self._is_down(former)
        self._replaced.clear()
        for member in self._members.values():
            member.kill()
        self._members.clear()
        self._cuts.clear()
        self._network.close()
        self._network = Direct()
        if self._leash is not None:
            self._leash.close()
            self._leash = None
        if self._given_dir is None and not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers for clients, also of those that are down now."""
        return ",".join(member.bootstrap for member in self._members.values())

    bootstrap_servers = bootstrap

    @property
    def brokers(self) -> list[int]:
        """Node ids of all brokers, also of those that are down now."""
        return sorted(self._members)

    @property
    def running(self) -> list[int]:
        """Node ids of the brokers whose processes run and are not paused."""
        return [
            node
            for node in self.brokers
            if self._members[node].is_running and not self._members[node].is_paused
        ]

    @property
    def network(self) -> str:
        """For people: what lies between the brokers."""
        return self._network.what

    # --- one broker

    def kill(self, broker: int) -> None:
        """kill -9; one that is down already stays so."""
        member = self.member(broker)
        member.kill()
        self._is_down(member)

    def restart(
        self,
        broker: int,
        *,
        wiped: bool = False,
        wait: bool = True,
        options: Sequence[str] = (),
    ) -> None:
        """Start one that is down, or stop it in order and start it again; `wiped`: with an empty
        disk; `options`: more words for this `dmq serve`. Returns when it takes requests, which it does
        in a cluster that works: when a majority is down, start all of them with `wait=False`, then
        `wait_ready`."""
        member = self.member(broker)
        if member.is_running:
            self.stop(broker)
        if wiped:
            member.wipe()
        self._spawn(member, options)
        if wait:
            member.wait_for_ready_line()
            assert member.node == broker, f"broker {broker} came back as {member.node}"

    def pause(self, broker: int) -> None:
        """SIGSTOP: it stands still, its connections stay open. One that is down stays so."""
        self.member(broker).pause()

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        self.member(broker).resume()

    def add(self, settings: Mapping[str, Any] | None = None) -> int:
        """One more broker, which joins the running ones; returns its node id."""
        member = self._new_member(settings)
        self._members[-member.place.slot] = member
        try:
            self._spawn(member)
            member.wait_for_ready_line()
        except BaseException:
            member.kill()
            self._is_down(member)
            raise
        finally:
            del self._members[-member.place.slot]
        assert member.node not in self._members, f"node id {member.node} was given twice"
        self._members[member.node] = member
        return member.node

    def replace(
        self, broker: int, settings: Mapping[str, Any] | None = None, *, wait: bool = True
    ) -> Member:
        """Give a broker's number to another process, as on another machine: with ports of its own and
        an empty disk. The former one is not touched: kill it before to try a lost machine; if it runs,
        two processes have one number for a moment. It is returned and has its folder, its log and its
        cuts still; it ends with the cluster at the latest. Returns when the new one takes requests;
        without `wait`, at once."""
        former, member = self.member(broker), self._new_member(settings)
        member.node = broker
        self._spawn(member)
        self._members[broker] = member
        self._replaced.append(former)
        self._cuts = {pair for pair in self._cuts if broker not in pair}
        if wait:
            member.wait_for_ready_line()
            assert member.node == broker, f"broker {broker} came back as {member.node}"
        return former

    def remove(self, broker: int, patience_s: float = 120.0) -> None:
        """Move everything off a broker (`dmq cluster decommission`), then stop it for good, if it runs.
        Its cuts are undone when it is taken out."""
        was_running = self.member(broker).is_running
        others = [self._members[node] for node in self.running if node != broker]
        command = ["cluster", "decommission", str(broker), "--yes"]
        reached = ["--bootstrap-server", ",".join(member.bootstrap for member in others)]
        with (self.folder / "decommission.log").open("w+") as words:
            try:
                code = subprocess.run(  # noqa: S603
                    [sys.executable, "-m", "dmq", *command, *reached],
                    stdin=subprocess.DEVNULL,
                    stdout=words,
                    stderr=words,
                    timeout=patience_s,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
            words.seek(0)
            said = words.read()
        if code:
            how = f"not within {patience_s:.0f} s" if code < 0 else f"exit code {code}"
            raise BrokerFailedError(f"broker {broker} could not be removed, {how}:\n{said}")
        self.heal(broker)
        if was_running:
            self.stop(broker)
        del self._members[broker]

    # --- the network

    def cut(self, source: int, target: int) -> None:
        """Nothing of `source` reaches `target` any longer; the other direction stays. Raises
        ValueError for a broker and itself."""
        if source == target:
            raise ValueError(f"broker {source} can't be cut from itself")
        self._network.cut(self._slot(source), self._slot(target))
        self._cuts.add((source, target))

    def isolate(self, broker: int, *, clients: bool = False) -> None:
        """Cut a broker from all others, both ways; with `clients`, from clients as well."""
        others = [node for node in self.brokers if node != broker]
        for other in [*others, *([CLIENTS] if clients else [])]:
            self.cut(broker, other)
            self.cut(other, broker)

    def partition(self, *sides: Sequence[int]) -> None:
        """Cut every broker of one side from every broker of another. Raises ValueError, and cuts
        nothing, if one is on two sides."""
        for node, count in Counter(chain.from_iterable(map(set, sides))).items():
            self._slot(node)
            if count > 1:
                raise ValueError(f"broker {node} is on {count} sides of the partition")
        for side, other in permutations(sides, 2):
            for source, target in product(side, other):
                self.cut(source, target)

    def heal(self, broker: int | None = None) -> None:
        """Undo the cuts that concern a broker; without one, all cuts."""
        if broker is not None:
            self._slot(broker)
        for source, target in list(self._cuts):
            if broker in (None, source, target):
                self._network.heal(self._slot(source), self._slot(target))
                self._cuts.discard((source, target))

    # --- looking

    def member(self, broker: int) -> Member:
        """The process behind a node id: its pid, folder and log. Raises NoSuchBrokerError."""
        found = self._members.get(broker)
        if found is None:
            there = ", ".join(map(str, self.brokers)) or "none: it is not running"
            raise NoSuchBrokerError(f"the cluster has no broker {broker}; it has {there}")
        return found

    def views(self, topics: list[str] | None = None) -> dict[int, View]:
        """What each running broker says of the cluster; who does not answer is left out."""
        found: dict[int, View] = {}
        for node in self.running:
            with contextlib.suppress(OSError, ProtocolError):
                found[node] = view(self.member(node).address, topics)
        return found

    def partition_view(self, topic: str, partition: int) -> PartitionView | None:
        """A partition as seen by the broker with the newest leader epoch."""
        seen = [
            each
            for found in self.views([topic]).values()
            for each in found.partitions
            if each.partition == partition
        ]
        return max(seen, key=lambda each: (each.epoch, each.leader), default=None)

    def leader(self, topic: str, partition: int = 0, within_s: float = START_PATIENCE_S) -> int:
        """Who leads a partition, among the brokers that run. Waits until somebody does."""

        def found() -> int | None:
            seen = self.partition_view(topic, partition)
            return seen.leader if seen is not None and seen.leader in self.running else None

        leader: int = self._eventually(found, f"{topic}-{partition} has a leader", within_s)
        return leader

    def wait_ready(self, within_s: float = START_PATIENCE_S, *, in_sync: bool = False) -> None:
        """Until all running brokers know each other, a controller, and a running leader for every
        partition, and enough of them vote on the metadata; with `in_sync`, until every replica is
        in sync too. Raises BrokerFailedError."""
        self._eventually(
            lambda: self._is_ready(in_sync), "the brokers are a working cluster", within_s
        )

    def _is_ready(self, in_sync: bool) -> bool:
        running, views = set(self.running), self.views()
        if not running or views.keys() != running or not self._has_voters(len(running)):
            return False
        return all(
            running <= seen.brokers
            and seen.controller in running
            and all(
                each.leader in running and (not in_sync or set(each.isr) == set(each.replicas))
                for each in seen.partitions
            )
            for seen in views.values()
        )

    def _has_voters(self, count: int) -> bool:
        """Whether as many brokers vote on the metadata as so many are to have: else the loss of one
        could be the loss of all."""
        wanted = 1 if count < 3 else 3 if count < 5 else 5
        with contextlib.suppress(OSError, ProtocolError):
            return metadata_voters(self.member(self.running[0]).address) >= wanted
        return False

    def _eventually(self, condition: Callable[[], Any], what: str, within_s: float) -> Any:
        deadline = time.monotonic() + within_s
        while not (answer := condition()):
            for member in self._members.values():
                if member.exit_code not in (None, 0, -9):
                    raise member.failure(f"ended by itself with {member.exit_code}")
            if time.monotonic() > deadline:
                raise BrokerFailedError(f"not within {within_s:.0f} s: {what}: {self.views()}")
            time.sleep(_LOOK_EACH_S)
        return answer

    # --- parts

    def _new_member(self, settings: Mapping[str, Any] | None = None) -> Member:
        assert self._leash is not None, "the cluster is not running"
        place = self._network.place()
        for command in self._network.cleanup()[-2:]:
            self._leash.run_at_end(command)
        return self._member_type(place, self.folder, self._settings | dict(settings or {}))

    def _spawn(self, member: Member, options: Sequence[str] = ()) -> None:
        assert self._leash is not None, "the cluster is not running"
        pid = member.spawn(self._way_in(member), options)
        self._leash.hold(pid)
        self._network.is_up(member.place.slot, pid)

    def _way_in(self, member: Member) -> dict[str, Any]:
        """How it finds the others. A directory that is not empty knows them already."""
        # Once a founder has left, an emptied one could wait for it for ever, or found anew: it joins.
        if member in self._founders and all(m in self._members.values() for m in self._founders):
            peers = [f"{m.place.slot}@{_address(m)}" for m in self._founders]
            return {"node.id": member.place.slot, "cluster.peers": ",".join(peers)}
        others = [m for m in self._members.values() if m is not member and m.is_running]
        assigned = {"node.id": member.node} if member.node else {}
        return {**assigned, "cluster.join": ",".join(_address(m) for m in others)}

    def _is_down(self, member: Member) -> None:
        assert self._leash is not None
        self._leash.release(member.pid)
        self._network.is_down(member.place.slot)

    def _slot(self, broker: int) -> int:
        return CLIENTS if broker == CLIENTS else self.member(broker).place.slot

    def _note_logs(self, error: BaseException) -> None:
        self.keep = True
        error.add_note(f"data and logs of the brokers: {self.folder}")

    # --- context managers

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._note_logs(error)
            with contextlib.suppress(BrokerFailedError):  # The first error is the one to see.
                self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)


_NETWORKS = ("proxy", "namespaces", "direct")


def _make_network(name: str) -> Network:
    if name == "namespaces":
        from dmq.testing.namespaces import Namespaces

        return Namespaces()
    if name == "proxy":
        from dmq.testing.proxy import Proxied

        return Proxied()
    return Direct()


def _address(member: Member) -> str:
    host, port = member.place.peer_advertised
    return f"{host}:{port}"
