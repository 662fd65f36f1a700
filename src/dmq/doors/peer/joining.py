"""What a broker with an empty directory does first: form a cluster, join one, or wait for its peers. One
that belongs to a cluster already only looks whether its settings lead to another (`check_cluster`).

    cluster.bootstrap, or nothing   form a cluster
    cluster.join                    ask these addresses until one leads to the metadata leader; register
    cluster.peers                   ask all of the list, this broker too, again and again; then `judge`:
                                    whoever finds a member joins its cluster; the lowest id forms one when
                                    *every* other has answered that it is empty; all else waits

Why the last rule is safe. Only one id may form the cluster, and its own address must lead back to it, so
two processes with that id can't both. All must have answered, so a broker whose disk was wiped does not
form a second cluster while those who remember are down or slow. All must have been given the same ids, so
two brokers with different lists don't each think that they are the lowest. A founder that dies right
after has a directory that is not empty, and is a member when it comes back.

A newcomer that got no answer to its registration asks again: the cluster knows its directory. What people
must look after is raised as JoinError; what time may heal is logged, once until it changes, and tried
again. Called by the runtime, with the door listening and `Admission` open on it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from dmq.broker.membership import Founded as Founded
from dmq.broker.membership import Joined as Joined
from dmq.broker.membership import Newcomer as Newcomer
from dmq.broker.peers import Address, PeerError
from dmq.config.broker import BrokerConfig
from dmq.doors.peer.asking import RefusedError, ask
from dmq.doors.peer.entry import (
    JOIN,
    PROBE,
    Admitted,
    Postponed,
    Probed,
    Redirected,
    decode_probed,
    decode_reply,
    encode_join,
)
from dmq.errors import RETRIABLE, DmqError, ErrorCode, KafkaError, ProtocolError

log = logging.getLogger("dmq.broker")

NO_NUMBER = -1
"""The node id of a newcomer that leaves it to the cluster."""
HOPS_MAX = 5
"""Redirections on the way to the metadata leader before we pause."""
_PASSING = RETRIABLE | {ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE}


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a question may take, and how long to wait before the next."""

    ask_ms: int = 2000
    register_ms: int = 10_000
    pause_ms: int = 100
    pause_max_ms: int = 1000
    tell_again_s: float = 10.0
    """A reason that does not change is logged again after this."""


class JoinError(DmqError):
    """The cluster refuses this broker, and will again."""

    code = ErrorCode.INVALID_REGISTRATION


def wished_node_id(config: BrokerConfig) -> int:
    """The number that this broker wants to have; NO_NUMBER: whichever it is given."""
    if config.cluster_join and "node.id" not in config.values:
        return NO_NUMBER
    return config.node_id


async def find_place(
    config: BrokerConfig, newcomer: Newcomer, pace: Pace | None = None
) -> Founded | Joined:
    """As the settings say. Raises JoinError."""
    search = Search(newcomer, pace or Pace())
    if config.cluster_peers:
        return await search.assemble(config.peers_by_id)
    if config.cluster_join:
        return await search.join(config.join_addresses)
    return Founded(newcomer.new_cluster_id(), newcomer.node_id)


async def check_cluster(
    config: BrokerConfig, cluster_id: str, pace: Pace | None = None
) -> dict[int, Address]:
    """Ask each broker that the settings name, once: where those of our cluster answer, this one too if
    it is named. Who is silent may be of our cluster. Raises JoinError as soon as one is of another."""
    ask_ms = (pace or Pace()).ask_ms
    addresses = {*config.join_addresses, *config.peers_by_id.values()}
    tasks = [asyncio.create_task(_probe_at(address, ask_ms)) for address in addresses]
    found: dict[int, Address] = {}
    try:
        for task in asyncio.as_completed(tasks):
            address, probed = await task
            if probed is None or probed.cluster_id is None:
                continue
            if probed.cluster_id != cluster_id:
                raise _is_foreign(config, cluster_id, address, probed.cluster_id)
            if probed.node != NO_NUMBER:
                found[probed.node] = address
    finally:
        for each in tasks:
            each.cancel()
    return found


def _is_foreign(config: BrokerConfig, ours: str, address: Address, other: str) -> JoinError:
    return JoinError(
        f"the data directory {config.data_dir} belongs to cluster {ours}, and "
        f"{address[0]}:{address[1]} is a broker of cluster {other}. To go on in cluster "
        f"{ours}, name brokers of it (--join, --peers), as before; to join {other}, "
        "give --data an empty directory"
    )


async def _probe_at(address: Address, ask_ms: int) -> tuple[Address, Probed | None]:
    try:
        return address, await _probe(address, ask_ms)
    except RefusedError as error:  # A link with it is refused too, and that is told.
        log.debug("%s", error)
        return address, None


async def _probe(address: Address, ask_ms: int) -> Probed | None:
    """None: there was no answer. Raises RefusedError."""
    try:
        return decode_probed(await ask(address, PROBE, b"", ask_ms))
    except RefusedError:
        raise
    except DmqError as error:
        log.debug("%s:%d: %s", *address, error)
        return None


# ---- the rule for a fixed set of peers


@dataclass(frozen=True, slots=True)
class Found:
    """Form the cluster."""


@dataclass(frozen=True, slots=True)
class Join:
    """There is a cluster: these are members of it."""

    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again; `reason` is for people."""

    reason: str


def judge(
    me: int, directory: UUID, peers: Mapping[int, Address], heard: Mapping[int, Probed]
) -> Found | Join | Wait:
    """What follows from the answers of the peers, ours among them; see the module."""
    for node, probed in heard.items():
        if probed.node != node:
            return Wait(f"the address of broker {node} is that of broker {probed.node}")
    own = heard.get(me)
    if own is not None and own.directory != directory:
        return Wait(f"another process is broker {me} and answers at our address")
    members = {node: probed for node, probed in heard.items() if probed.cluster_id is not None}
    clusters = sorted({str(probed.cluster_id) for probed in members.values()})
    if len(clusters) > 1:
        return Wait(f"brokers {_list(members)} are of several clusters: {', '.join(clusters)}")
    if members:
        return Join(tuple(peers[node] for node in members))
    silent = [node for node in peers if node not in heard]
    if silent:
        return Wait(f"no answer yet from {_places(peers, silent)}")
    for node, probed in heard.items():
        if probed.peers != tuple(peers):
            return Wait(f"broker {node} was started with peers {_list(probed.peers)}")
    if me != min(peers):
        return Wait(f"broker {min(peers)} is to form the cluster")
    return Found()


def _list(nodes: Iterable[int]) -> str:
    return ", ".join(str(node) for node in nodes)


def _places(peers: Mapping[int, Address], nodes: list[int]) -> str:
    return ", ".join(f"broker {node} at {peers[node][0]}:{peers[node][1]}" for node in nodes)


# ---- asking around


class Search:
    """One newcomer's way into a cluster."""

    def __init__(self, newcomer: Newcomer, pace: Pace) -> None:
        self._newcomer = newcomer
        self._pace = pace
        self._pauses = 0
        self._is_usual = False
        self._refused: RefusedError | None = None
        """By one of those that were asked last."""
        self._told = ""
        self._told_at = 0.0

    async def assemble(self, peers: Mapping[int, Address]) -> Founded | Joined:
        """Together with the others of a fixed set. Raises JoinError."""
        newcomer = self._newcomer
        self._is_usual = True
        while True:
            heard = await self._probe_all(peers)
            verdict = judge(newcomer.node_id, newcomer.directory, peers, heard)
            if isinstance(verdict, Found):
                log.info("all brokers of the list are empty: forming a cluster")
                return Founded(newcomer.new_cluster_id(), newcomer.node_id)
            if isinstance(verdict, Join):
                joined = await self._join_once(verdict.addresses)
                if joined is not None:
                    return joined
            elif self._refused is not None:
                raise JoinError(str(self._refused)) from self._refused
            else:
                self._tell(verdict.reason)
            await self._pause()

    async def _probe_all(self, peers: Mapping[int, Address]) -> dict[int, Probed]:
        """Those that answered."""
        ask_ms = self._pace.ask_ms
        answers = await asyncio.gather(
            *(_probe(address, ask_ms) for address in peers.values()), return_exceptions=True
        )
        heard: dict[int, Probed] = {}
        self._refused = None
        for node, said in zip(peers, answers, strict=True):
            if isinstance(said, RefusedError):
                self._refused = said
            elif isinstance(said, BaseException):
                raise said
            elif said is not None:
                heard[node] = said
        return heard

    async def join(self, addresses: tuple[Address, ...]) -> Joined:
        """Whoever of these answers first. Raises JoinError."""
        while True:
            joined = await self._join_once(addresses)
            if joined is not None:
                return joined
            await self._pause()

    async def _join_once(self, addresses: tuple[Address, ...]) -> Joined | None:
        """None: nobody could say yes or no; why is logged. Raises JoinError."""
        reasons, self._refused = [], None
        for address in addresses:
            try:
                return await self._join_at(address)
            except KafkaError as error:
                if error.code not in _PASSING:
                    raise JoinError(f"the cluster refuses this broker: {error}") from error
                reasons.append(f"{address[0]}:{address[1]} says {error}")
            except PeerError as error:
                hint = " (is it a peer port, and not that of clients?)" if error.was_sent else ""
                reasons.append(f"{error}{hint}")
            except RefusedError as error:
                self._refused = error
            except ProtocolError as error:
                reasons.append(f"{address[0]}:{address[1]} speaks another protocol: {error}")
        if self._refused is not None:
            raise JoinError(str(self._refused)) from self._refused
        self._tell("; ".join(reasons))
        return None

    async def _join_at(self, address: Address) -> Joined:
        """Follow to the metadata leader. Raises KafkaError, PeerError, RefusedError, ProtocolError."""
        for _ in range(HOPS_MAX):
            body = encode_join(self._newcomer.command())
            reply = decode_reply(await ask(address, JOIN, body, self._pace.register_ms))
            if isinstance(reply, Admitted):
                return self._admitted(reply)
            if isinstance(reply, Postponed):
                raise PeerError(f"{address[0]}:{address[1]}: {reply.reason}", was_sent=False)
            assert isinstance(reply, Redirected)
            address = reply.address
        raise PeerError("each names another metadata leader", was_sent=False)

    def _admitted(self, reply: Admitted) -> Joined:
        node_id, epoch = self._newcomer.result(reply.result)
        others = {node: at for node, at in reply.addresses.items() if node != node_id}
        return Joined(reply.cluster_id, node_id, epoch, reply.metadata_voters, others)

    async def _pause(self) -> None:
        pace = self._pace
        delay_ms = min(pace.pause_ms * 2 ** min(self._pauses, 10), pace.pause_max_ms)
        self._pauses += 1
        await asyncio.sleep(delay_ms / 1000)

    def _tell(self, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        is_new = reason != self._told
        if is_new or now - self._told_at >= self._pace.tell_again_s:
            self._told, self._told_at = reason, now
            self._pauses = 0
            # Those that start together wait for each other, for a moment.
            level = logging.INFO if self._is_usual and is_new else logging.WARNING
            log.log(level, "waiting for a cluster: %s", reason)
