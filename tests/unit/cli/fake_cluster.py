"""A cluster at the other end of `cluster_wire.ClusterWire`: what the commands ask for, it does.

Answers are the wire's own messages. Moves of replicas take as many looks as `looks_per_move` says.
The requests themselves are put to real brokers by the compatibility tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pytest

from dmq.cli.cluster_wire import Move, Outcome, Where
from dmq.cli.exits import CommandError, Exit
from dmq.errors import ErrorCode
from dmq.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dmq.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from dmq.wire.messages.k55_describe_quorum import ReplicaState, ResponsePartitionData
from dmq.wire.messages.k60_describe_cluster import DescribeClusterBroker, DescribeClusterResponse

SIZE = 1000
"""Bytes of each replica."""


class FakeCluster:
    """Brokers 1 to n in racks of their own, topics as {(topic, index): replicas}."""

    def __init__(self, brokers: int, placed: Mapping[Where, Sequence[int]]) -> None:
        self.registered = list(range(1, brokers + 1))
        self.down: set[int] = set()
        self.replicas = {where: list(nodes) for where, nodes in placed.items()}
        self.leaders = {where: nodes[0] for where, nodes in placed.items()}
        self.looks_per_move = 1
        self.looks_behind = 0
        """So often is who is asked about moves and replicas behind: it knows nothing of new moves."""
        self.is_headless = False
        """Nobody leads the metadata."""
        self.mute: set[int] = set()
        """Those that don't tell of their disks."""
        self.orders: dict[Where, tuple[ErrorCode, str]] = {}
        """How an unclean election is answered, if not with success."""
        self.deletes: list[Where] = []
        """Partitions that are gone after an unclean election."""
        self.refuses: dict[Where, ErrorCode] = {}
        self.log: list[tuple[Any, ...]] = []
        self._moves: dict[Where, tuple[Move, int]] = {}
        self._before: dict[Where, list[int]] = {}
        self.meanwhile: list[Callable[[], None]] = []
        """What others do when the metadata were told: one thing each time."""
        self.leaving: int | None = None
        self.looks_to_leave = 1
        """So often is a broker still there after it was unregistered: it votes on the metadata."""

    def stop(self, node: int) -> None:
        """It is down; what it led is led by the next in line, if a majority is left."""
        self.down.add(node)
        for where, nodes in self.replicas.items():
            up = [each for each in nodes if each not in self.down]
            if 2 * len(up) <= len(nodes):
                self.leaders[where] = -1
            elif self.leaders[where] in self.down:
                self.leaders[where] = up[0]

    def isr(self, where: Where) -> list[int]:
        if self.leaders[where] < 0:
            return []
        return [node for node in self.replicas[where] if node not in self.down]

    # --- what ClusterWire does

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.log.append(("hang up",))

    def metadata(self) -> MetadataResponse:
        topics: dict[str, MetadataResponseTopic] = {}
        for where, now in self.replicas.items():
            nodes = self._before.get(where, now) if self.looks_behind else now
            topic = topics.setdefault(where[0], MetadataResponseTopic(0, where[0], partitions=[]))
            topic.partitions.append(
                MetadataResponsePartition(
                    0,
                    where[1],
                    self.leaders[where],
                    7,
                    nodes,
                    self.isr(where),
                    [node for node in nodes if node in self.down],
                )
            )
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return MetadataResponse(brokers=[], topics=list(topics.values()))

    def avoid(self, address: tuple[str, int]) -> None:
        self.log.append(("avoid", address))

    def cluster(self) -> DescribeClusterResponse:
        if self.leaving is not None:
            self.looks_to_leave -= 1
            if self.looks_to_leave <= 0:
                self.registered.remove(self.leaving)
                self.leaving = None
        return DescribeClusterResponse(
            cluster_id="abc",
            brokers=[
                DescribeClusterBroker(node, "h", 9000 + node, f"r{node}", node in self.down)
                for node in self.registered
            ],
        )

    def quorum(self) -> ResponsePartitionData:
        if self.is_headless:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            return ResponsePartitionData(0, code, "nobody", -1, -1, -1, [], observers=[])
        copies = [ReplicaState(node, log_end_offset=50 - node) for node in self.registered]
        return ResponsePartitionData(
            0, 0, None, self.registered[0], 3, 48, copies[:3], observers=copies[3:]
        )

    def log_dirs(
        self, host: str, port: int, wanted: Iterable[Where] | None = None
    ) -> DescribeLogDirsResponse | None:
        node = port - 9000
        self.log.append(("log dirs", node, None if wanted is None else list(wanted)))
        if node in self.mute:
            return None
        asked = self.replicas if wanted is None else wanted
        topics = [
            DescribeLogDirsTopic(
                where[0], [DescribeLogDirsPartition(where[1], self._size(where, node), 0, False)]
            )
            for where in asked
            if node in self.replicas[where]
        ]
        return DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(0, "/d", topics, total_bytes=10**9, usable_bytes=10**8)]
        )

    def _size(self, where: Where, node: int) -> int:
        """A new replica has so much of it as looks have passed."""
        move, looks = self._moves.get(where, (None, 0))
        if move is None or node not in move.adding:
            return SIZE
        return SIZE * (self.looks_per_move - looks) // self.looks_per_move

    def moves(self) -> list[Move]:
        if self._before and self.looks_behind:
            self.looks_behind -= 1
            return []
        found = [move for move, _ in self._moves.values()]
        for where, (move, looks) in list(self._moves.items()):
            if looks > 1:
                self._moves[where] = (move, looks - 1)
            else:
                self.end(where)
        return found

    def end(self, where: Where) -> None:
        """A move has arrived."""
        move, _ = self._moves.pop(where)
        target = [node for node in move.replicas if node not in move.removing]
        self.replicas[where] = target
        if self.leaders[where] not in target:
            self.leaders[where] = target[0]

    def reassign(
        self, targets: Mapping[Where, Sequence[int] | None], *, may_resize: bool = False
    ) -> list[Outcome]:
        self.log.append(("reassign", dict(targets)))
        outcomes = []
        for where, after in targets.items():
            assert after is not None
            code = self.refuses.get(where, ErrorCode.NONE)
            if not may_resize and len(after) != self._count(where):
                code = ErrorCode.INVALID_REPLICATION_FACTOR
            outcomes.append(Outcome(*where, code, "no" if code else ""))
            if not code:
                self._begin(where, after)
        return outcomes

    def _count(self, where: Where) -> int:
        """Its replicas, or those that it is on the way to."""
        removing = self._moves[where][0].removing if where in self._moves else []
        return len([node for node in self.replicas[where] if node not in removing])

    def _begin(self, where: Where, after: Sequence[int]) -> None:
        before = self.replicas[where]
        adding = [node for node in after if node not in before]
        removing = [node for node in before if node not in after]
        if not adding and not removing:
            self.replicas[where] = list(after)
            return
        self._before[where] = before
        everybody = [*after, *removing]
        self.replicas[where] = everybody
        self._moves[where] = (
            Move(*where, everybody, adding, removing),
            self.looks_per_move,
        )

    def elect(self, kind: int, wanted: Iterable[Where] | None) -> list[Outcome]:
        asked = None if wanted is None else list(wanted)
        self.log.append(("elect", kind, asked))
        return [self._elect(kind, where) for where in (self.replicas if asked is None else asked)]

    def _elect(self, kind: int, where: Where) -> Outcome:
        if where not in self.replicas:
            return Outcome(*where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown")
        up = [node for node in self.replicas[where] if node not in self.down]
        if kind == 1:
            if self.leaders[where] >= 0:
                return Outcome(*where, ErrorCode.ELECTION_NOT_NEEDED, "not needed")
            if not up:
                return Outcome(*where, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "nobody")
            code, said = self.orders.get(where, (ErrorCode.NONE, ""))
            if code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                self.leaders[where] = up[0]
            if where in self.deletes:
                del self.replicas[where]
            return Outcome(*where, code, said)
        preferred = self.replicas[where][0]
        if self.leaders[where] == preferred:
            return Outcome(*where, ErrorCode.ELECTION_NOT_NEEDED, "not needed")
        if preferred in self.down:
            return Outcome(*where, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is down")
        self.leaders[where] = preferred
        return Outcome(*where, 0, "")

    def unregister(self, node: int) -> None:
        self.log.append(("unregister", node))
        if any(node in nodes for nodes in self.replicas.values()):
            raise CommandError("it has replicas", code=Exit.FAILURE)
        self.leaving = node

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> "FakeCluster":
        """Be what the commands reach."""
        for module in ("cluster", "cluster_leaders", "partition"):
            monkeypatch.setattr(f"dmq.cli.{module}.ClusterWire", lambda session: self)
        monkeypatch.setattr("dmq.cli.cluster.ELECTION_S", 0.0)
        for module in ("cluster_farewell", "cluster_moves"):
            monkeypatch.setattr(f"dmq.cli.{module}.LOOK_AGAIN_S", 0.0)
        monkeypatch.setattr("dmq.cli.cluster_copies.ASK_EACH_S", 0.0)
        return self
