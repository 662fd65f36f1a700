"""Clients as generators: a script yields what it waits for, and is resumed with what came of it.

    reply = yield Ask(...)         a request to whoever leads a topic; `Reply`, without code if none came
    replies = yield [Ask(...), …]  several on one connection, in order, without waiting in between
    yield 50                       so many milliseconds

What a broker answers is judged at the broker, whether or not it arrives. Some requests are delivered a
second time, much later: what a client sent again after its patience ended looks just like that.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.workload import Client

from dmq.broker.answer import Answer
from dmq.errors import DmqError, ErrorCode

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.coordination.world import CoordinatorWorld
    from sim.metadata import Topic

PATIENCE_MS = 1500
REPEATS_MS = (5, 60, 700, 4000)
MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
RETRIABLE = MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
"""Answers after which the same request is sent again."""


class Reply(NamedTuple):
    """What came of a request; no code: nobody answered in time."""

    code: ErrorCode | None
    value: Any = None

    @property
    def is_good(self) -> bool:
        return self.code is ErrorCode.NONE

    @property
    def is_retriable(self) -> bool:
        return self.code is None or self.code in RETRIABLE


class Ask(NamedTuple):
    """A request. `judge` is told what a broker answers, each time that one does."""

    topic: "Topic"
    serve: Callable[[Any], Answer[Any]]
    judge: Callable[[Reply], None] | None = None
    patience_ms: int = PATIENCE_MS
    repeats_as: str = ""
    """What it is called if it may be delivered twice."""


Steps = Generator[Ask | list[Ask] | int, Any, Any]


class _Requests:
    """What was asked at once, until all is answered or patience ends."""

    __slots__ = ("asks", "is_list", "left", "replies")

    def __init__(self, asks: list[Ask], is_list: bool) -> None:
        self.asks = asks
        self.is_list = is_list
        self.replies = [Reply(None)] * len(asks)
        self.left = len(asks)

    @property
    def result(self) -> Any:
        return self.replies if self.is_list else self.replies[0]


class Script(Client):
    """Runs one generator."""

    world: "CoordinatorWorld"

    def __init__(self, world: "CoordinatorWorld", name: str, steps: Steps | None = None) -> None:
        super().__init__(world, name)
        self._token = 0
        self.retries = 0
        self.is_over = False
        self._steps = self.steps() if steps is None else steps
        world.clock.after(self.rng.randint(0, 50), self._resume, 0, None)

    def steps(self) -> Steps:
        """What it does."""
        raise NotImplementedError

    def die(self) -> None:
        """It ends in the middle of whatever it does, and tells nobody."""
        self.is_over = True
        self._token += 1

    def _resume(self, token: int, value: Any) -> None:
        if token != self._token or self.is_over:
            return
        self._token += 1
        try:
            wish = self._steps.send(value)
        except StopIteration:
            self.is_over = True
            return
        if isinstance(wish, int):
            self.world.clock.after(wish, self._resume, self._token, None)
        elif isinstance(wish, list):
            self._ask(_Requests(wish, True))
        else:
            self._ask(_Requests([wish], False))

    def _ask(self, requests: _Requests) -> None:
        world, clock, first = self.world, self.world.clock, requests.asks[0]
        broker, delay = self.guess(first.topic), self.delay()
        gap_ms, at = world.coordination.gap_ms, delay
        for index, ask in enumerate(requests.asks):
            world.operations += 1
            clock.after(at, broker.arrive, self._serve, broker, ask, self._token, requests, index)
            at += self.rng.randint(0, gap_ms) if gap_ms else 0
        if first.repeats_as and self.rng.random() < world.coordination.repeats:
            world.reached[f"{first.repeats_as} delivered twice"] += 1
            later = delay + self.rng.choice(REPEATS_MS)
            for ask in requests.asks:  # Nobody waits for what is answered.
                clock.after(later, broker.arrive, self._serve, broker, ask, -1, None, 0)
        clock.after(first.patience_ms, self._lose_patience, first.topic, self._token, requests)

    def _serve(
        self, broker: "Broker", ask: Ask, token: int, requests: _Requests | None, index: int
    ) -> None:
        """At the broker."""
        life = broker.life

        def served(done: Answer[Any]) -> None:
            reply = _reply(done)
            self._told(broker, life, ask, reply)
            if requests is not None:
                self.world.clock.after(
                    self.delay(), self._answered, broker, life, token, requests, index, reply
                )

        ask.serve(broker.backend).on_done(served)

    def _told(self, broker: "Broker", life: int, ask: Ask, reply: Reply) -> None:
        """The broker answers; the answer may still get lost."""
        if not (broker.is_up and broker.life == life):
            return
        broker.look()
        world = self.world
        if reply.code is not None:
            world.answers[reply.code] += 1
        if world.lines is not None:
            world.say(self.name, "is told", reply.code and reply.code.name, reply.value)
        if ask.judge is not None:
            ask.judge(reply)

    def _answered(
        self,
        broker: "Broker",
        life: int,
        token: int,
        requests: _Requests,
        index: int,
        reply: Reply,
    ) -> None:
        if broker.life != life or token != self._token:
            return
        if reply.code in MOVED:
            topic = requests.asks[index].topic
            self.was_wrong(topic, broker.leader_hint(topic) if broker.is_up else None)
        requests.replies[index] = reply
        requests.left -= 1
        if not requests.left:
            self._resume(token, requests.result)

    def _lose_patience(self, topic: "Topic", token: int, requests: _Requests) -> None:
        if token == self._token and not self.is_over:
            self.hints.pop(topic.name, None)
            self._resume(token, requests.result)

    # ---- habits

    def until_answered(self, ask: Ask, tries: int = 1000) -> Steps:
        """Ask again and again, as long as that may help."""
        reply = Reply(None)
        for _ in range(tries):
            reply = yield ask
            if not reply.is_retriable or ask.topic.is_deleted:
                break
            self.retries += 1
            yield self.rng.randint(10, 120)
        return reply


def _reply(done: Answer[Any]) -> Reply:
    try:
        return Reply(ErrorCode.NONE, done.get())
    except DmqError as error:
        return Reply(error.code)
