"""What the metadata log would say, kept by an oracle that never fails: topics, placements, directories.

Brokers learn of a change late and in any order, but a broker that starts reads all of it before it
serves, as SPEC §3 wants. The oracle follows the rules of the real thing: a broker that comes with another
directory id is somebody else, and its groups want the new name; a replica is told to drop its log only
when a committed mark leaves it out; a name that left a group comes back as a learner.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from sim.ledger import GroupFacts

from dmq.types import Voter

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.world import World

TELL_MS = (0, 80)
RECONCILE_MS = 200


class Topic:
    """A topic of one partition."""

    __slots__ = (
        "facts",
        "first_voters",
        "is_async",
        "is_deleted",
        "is_internal",
        "left",
        "name",
        "nodes",
        "topic_id",
    )

    def __init__(self, name: str, facts: GroupFacts, voters: tuple[Voter, ...]) -> None:
        self.name = name
        self.facts = facts
        self.topic_id: UUID = facts.topic_id
        self.is_async = facts.is_async
        self.first_voters = voters
        self.nodes = [voter.node for voter in voters]
        """Where it shall be, in order of succession."""
        self.is_deleted = False
        self.is_internal = name.startswith("__")
        self.left: dict[Voter, None] = {}
        """Names that may give their replica up, or did: the newest committed mark leaves them out."""

    def __repr__(self) -> str:
        return self.name


class Metadata:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.topics: dict[str, Topic] = {}
        self.live: list[Topic] = []
        self.directories: dict[int, UUID] = {}
        """Of the brokers, as they last registered."""

    @property
    def data(self) -> list[Topic]:
        """Topics that are not the brokers' own."""
        return [topic for topic in self.live if not topic.is_internal]

    # ---- what changes it

    def register(self, number: int, directory: UUID) -> None:
        """A broker started; a new directory id makes it somebody else."""
        before = self.directories.get(number)
        self.directories[number] = directory
        if before is not None and before != directory:
            self.tell_all()

    def create(
        self, name: str, nodes: list[int], *, is_async: bool, is_compacted: bool = False
    ) -> Topic:
        voters = tuple(Voter(n, self.directories[n]) for n in nodes)
        topic_id = UUID(int=self._world.rng.getrandbits(128) | 1)
        min_insync = self._world.mix.min_insync
        facts = self._world.ledger.add(
            topic_id, is_async, voters, min_insync, is_compacted=is_compacted
        )
        topic = Topic(name, facts, voters)
        self.topics[name] = topic
        self.live.append(topic)
        self.tell_all()
        return topic

    def delete(self, topic: Topic) -> None:
        topic.is_deleted = True
        self.live.remove(topic)
        self.tell_all()

    def place(self, topic: Topic, nodes: list[int]) -> None:
        topic.nodes = nodes
        self.tell_all()

    def target(self, topic: Topic) -> tuple[Voter, ...]:
        return tuple(Voter(n, self.directories[n]) for n in topic.nodes)

    # ---- who learns of it

    def tell_all(self) -> None:
        for broker in self._world.brokers.values():
            delay = self._world.rng.randint(*TELL_MS)
            self._world.clock.after(delay, self._tell_later, broker, broker.life)

    def _tell_later(self, broker: "Broker", life: int) -> None:
        if broker.is_up and broker.life == life:
            broker.arrive(self.tell, broker)

    def tell(self, broker: "Broker") -> None:
        """Bring one broker to what is wanted."""
        for topic in self.topics.values():
            if broker.backend is not None and not topic.is_deleted:
                broker.backend.learn(topic)
            is_wanted = broker.number in topic.nodes
            if topic.is_deleted:
                broker.drop(topic)
            elif not is_wanted and broker.me in topic.left:
                broker.leave(topic)
            elif is_wanted or broker.has_log(topic) or self.may_begin(topic, broker.me):
                # Whoever has a log may be a voter still, wanted or not.
                if is_wanted:
                    topic.left.pop(broker.me, None)
                broker.host(topic, self.target(topic))

    def may_begin(self, topic: Topic, voter: Voter) -> bool:
        """Whether this voter, without a log, begins with the first mark; else it learns.

        One that was here and left keeps a memory, and will not found the group again.
        """
        return voter in topic.first_voters and voter not in topic.left

    def start_reconciling(self) -> None:
        self._world.clock.after(RECONCILE_MS, self._reconcile)

    def _reconcile(self) -> None:
        self._world.clock.after(RECONCILE_MS, self._reconcile)
        for topic in self.live:
            self._release(topic)

    def _release(self, topic: Topic) -> None:
        """Replicas that the newest mark of all leaves out may go, once that mark is committed.

        Not before: a voter of a mark that may yet win would forget what it promised. A committed
        mark alone is not enough, for a newer one may have brought the replica back.
        """
        if not self._is_reached(topic):
            return
        for broker in self._world.brokers.values():
            if broker.number in topic.nodes:
                continue
            topic.left[Voter(broker.number, self.directories[broker.number])] = None
            if broker.is_up and broker.holds(topic):
                broker.arrive(broker.leave, topic)

    def _is_reached(self, topic: Topic) -> bool:
        marks = [marks.last for marks in topic.facts.marks_of.values()]
        newest = max(marks, key=lambda mark: mark[:3], default=None)
        if newest is None or topic.facts.marks.get(newest[:2]) != newest:
            return False
        return set(newest.voters) == set(self.target(topic))
