"""What one seed came to, small enough to be sent between processes."""

import traceback
from collections import Counter
from dataclasses import dataclass, field

from sim.cluster.world import ClusterWorld
from sim.coordination.world import CoordinatorWorld
from sim.swarm import Mix
from sim.world import World

KINDS: dict[str, type[World | ClusterWorld]] = {
    "replicas": World,
    "coordinators": CoordinatorWorld,
    "clusters": ClusterWorld,
}
MANY = {"replicas": 300, "coordinators": 40, "clusters": 16}
"""So many seeds must visit every state below: a world that no longer gets there has become tame."""
# A crash inside a recovery and a repair of another length have scenarios of their own; a flush note after
# a cut, the storage model.
MUST_REACH = (
    "closed",
    "clean start",
    "compacted log sent to a follower",
    "compacted under load",
    "configuration rolled back",
    "crash in a compaction",
    "cut of a mark",
    "damage found",
    "damaged replica repaired",
    "digest mismatch",
    "end of a log not told",
    "journal file with an old tail",
    "journal gone",
    "latest told",
    "leadership lost under a read",
    "learner promoted",
    "lease read",
    "lease read refused",
    "new directory id",
    "power lost in a write",
    "progress",
    "read to the end",
    "read waits for a round",
    "reader below the log start",
    "recovering voter healed",
    "replica left",
    "reset",
    "rotten journal",
    "settled",
    "start with a swap file",
    "stopped by its disk",
    "torn record",
    "torn record before old ones",
    "transfer under load",
    "two empty epochs in a row",
    "unclean quorum",
    "written when all was over",
)
COORDINATORS_MUST_REACH = (
    "EndTxn asked again",
    "EndTxn delivered twice",
    "EndTxn refused",
    "abort",
    "abort read at a follower",
    "classic generation",
    "client died",
    "clients at rest",
    "commit",
    "consumer assignment",
    "consumer fenced",
    "duplicate answered",
    "duplicate answered after failover",
    "leadership lost under a read",
    "marker cut",
    "marker written again",
    "member left",
    "name taken over",
    "offset committed",
    "offset in a transaction",
    "offset shown",
    "read waits for a round",
    "refused behind another",
    "ending resumed by a new coordinator",
    "settled",
    "timed out",
    "transactions read at a follower",
    "write after the end refused",
    "zombie fenced",
)
CLUSTERS_MUST_REACH = (
    "broker added",
    "left",
    "move begun",
    "move called off",
    "partition added",
    "preferred elected",
    "settled",
    "topic created",
    "topic deleted",
    "wiped",
    "write refused",
)
_WANTED = {
    "replicas": MUST_REACH,
    "coordinators": COORDINATORS_MUST_REACH,
    "clusters": CLUSTERS_MUST_REACH,
}


def unreached(reached: Counter[str], seeds: int, kind: str = "replicas") -> list[str]:
    """Rare states that so many seeds should have visited and did not."""
    if seeds < MANY[kind]:
        return []
    return [name for name in _WANTED[kind] if not reached[name]]


@dataclass
class Outcome:
    """See the module."""

    seed: int
    failure: str | None = None
    figures: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    is_weak: bool = False
    """It says nothing: too little was asked, broken or promised."""


def run_seed(seed: int, mix: Mix | None = None, kind: str = "replicas") -> Outcome:
    """Never raises: whatever a run ends in is its failure."""
    return outcome_of(KINDS[kind](seed, mix))


def outcome_of(world: World | ClusterWorld) -> Outcome:
    """Run it; never raises."""
    failure = None
    try:
        world.run()
    except Exception as error:  # noqa: BLE001
        last = traceback.extract_tb(error.__traceback__)[-1]
        failure = (
            f"{type(error).__name__}: {error} ({last.filename.rpartition('/')[2]}:{last.lineno})"
        )
    figures = Counter(
        {
            "operations": world.operations,
            "faults": world.faults.count,
            "events": world.clock.events,
            "elections": world.elections,
            "acknowledged": world.ledger.acknowledged,
            "shown": getattr(world.ledger, "shown", 0),
            "simulated s": world.clock.now // 1000,
        }
    )
    return Outcome(
        world.seed,
        failure,
        figures,
        world.reached,
        world.happened,
        [*world.faults.pairs],
        failure is None and world.is_weak(world.faults.count),
    )
