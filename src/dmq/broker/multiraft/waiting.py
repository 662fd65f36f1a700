"""Who waits for a replicated log: producers for their acknowledgement, fetches for bytes.

    acks=1    the leader's own disk has it
    acks=all  it is committed, and as many voters have it durably as `min.insync.replicas` wants

A leader that was deposed does not guess. An append is settled when the commit point has passed its
position: if the log still has it, it is committed; if not, it never will be. A cut alone settles
nothing: another replica may still hold the records and win the next election with them, as long as what
replaced them here is not committed. After a reset nobody knows any more; then, and when the
producer's patience ends, the answer is one that promises nothing either way.

Never looks at a log or at Raft; replica.py says what happened.
"""

from collections import deque
from collections.abc import Callable

from dmq.errors import ErrorCode
from dmq.raft.quorum import NOTHING
from dmq.types import Position

OWN, ALL = 1, -1
"""Values of `acks`, as on the wire; 0 waits for nothing."""


OnAppended = Callable[[ErrorCode], None]


class ParkedAppend:
    """An append on its way, who is told when it is there, and what that one wants."""

    __slots__ = (
        "acks",
        "append_time",
        "base_offset",
        "deadline",
        "is_gone",
        "on_done",
        "on_settled",
        "position",
        "size",
        "was_cut",
    )

    def __init__(
        self, base_offset: int, append_time: int, size: int, position: Position, acks: int
    ) -> None:
        self.base_offset = base_offset
        self.append_time = append_time
        self.size = size
        self.position = position
        self.acks = acks
        self.deadline = 0
        self.is_gone = False
        """The log was cut below it and has not got it back."""
        self.was_cut = False
        """It was cut once: others may have it, whatever becomes of it here."""
        self.on_done: OnAppended | None = None
        self.on_settled: Callable[[int], None] | None = None
        """Told the size when this append holds no memory any more, for whoever counts them."""

    def lose_patience(self) -> None:
        """Call back before the end."""
        self.deadline = 0
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done(ErrorCode.REQUEST_TIMED_OUT)

    def settle(self) -> None:
        """It counts no longer."""
        on_settled, self.on_settled = self.on_settled, None
        if on_settled is not None:
            on_settled(self.size)

    def tell(self, code: ErrorCode) -> None:
        """Call back, once. The callback is let go of first: it often refers to this object, and
        such a circle would keep a request's megabytes until the next collection."""
        self.settle()
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done(code)


class FetchWaiter:
    """A fetch that waits until enough bytes came to the partitions that it asked for."""

    __slots__ = ("callback", "missing_bytes")

    def __init__(self, missing_bytes: int, callback: Callable[[], None]) -> None:
        self.missing_bytes = missing_bytes
        self.callback: Callable[[], None] | None = callback

    def wake(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Acks:
    """Parked appends of one log, in order of their positions."""

    __slots__ = ("_committed", "_durable", "_late", "_own", "_uncommitted")

    def __init__(self) -> None:
        self._durable = NOTHING
        self._late: list[ParkedAppend] = []
        """Nobody waits for them any more, and they may not be on our disk yet."""
        self._own: deque[ParkedAppend] = deque()
        self._uncommitted: deque[ParkedAppend] = deque()
        self._committed: deque[ParkedAppend] = deque()
        """Committed, but not yet on enough disks."""

    def __bool__(self) -> bool:
        return bool(self._own or self._uncommitted or self._committed)

    @property
    def has_committed(self) -> bool:
        return bool(self._committed)

    def park(self, append: ParkedAppend) -> None:
        queue = self._own if append.acks == OWN else self._uncommitted
        assert not queue or queue[-1].position <= append.position, (queue[-1].position, append)
        queue.append(append)

    def park_again(self, append: ParkedAppend, *, is_committed: bool) -> None:
        """One that waits for what came before others, or is there already."""
        if is_committed:
            self._committed.append(append)
        else:
            self._uncommitted.append(append)
            self._uncommitted = deque(sorted(self._uncommitted, key=lambda a: a.position))

    # ---- what happened to the log

    def cut(self, p: Position) -> None:
        """All beyond `p` went."""
        self._durable = min(self._durable, p)
        for append in self._uncommitted:
            if append.position > p:
                append.is_gone = append.was_cut = True
        moved = []
        while self._own and self._own[-1].position > p:
            append = self._own.pop()
            append.is_gone = append.was_cut = True
            moved.append(append)
        # Their own disk does not have them any more: their fate is the group's now.
        self._wait_on(moved)
        self._let_go()

    def _wait_on(self, appends: list[ParkedAppend]) -> None:
        if appends:
            both = sorted([*self._uncommitted, *appends], key=lambda a: a.position)
            self._uncommitted = deque(both)

    def _let_go(self) -> None:
        """Whom nobody waits for counts until its bytes are in the log's files, or nowhere: it may be
        long until the group has a leader and its fate is known."""
        late, self._late = self._late, []
        for append in late:
            if append.is_gone or append.position <= self._durable:
                append.settle()
            elif append.on_settled is not None:
                self._late.append(append)

    def regained(self, end: Position) -> None:
        """The log grew to `end` by another's records; they may be what was cut before."""
        for append in self._uncommitted:
            if append.is_gone and append.position[:2] == end[:2] and append.position <= end:
                append.is_gone = False

    def reset(self) -> None:
        """The log was replaced: what became of the records before is not known here."""
        for append in self._take_all():
            append.tell(ErrorCode.REQUEST_TIMED_OUT)

    def refused(self, p: Position, code: ErrorCode) -> None:
        """The disk did not take what lies beyond `p`, and nobody else was sent it: definite; but for
        what had been cut and came back from others, which may yet be committed."""
        gone, others_have = list[ParkedAppend](), list[ParkedAppend]()
        for queue in (self._own, self._uncommitted):
            while queue and queue[-1].position > p:
                append = queue.pop()
                append.is_gone = True
                (others_have if append.was_cut else gone).append(append)
        self._wait_on(others_have)
        for append in gone:  # Who is told may append again, and must find nobody beyond the end.
            append.tell(code)

    def durable(self, p: Position) -> None:
        """Our disk has all up to `p`."""
        self._durable = p
        own = self._own
        while own and own[0].position <= p:
            own.popleft().tell(ErrorCode.NONE)
        if self._late:
            self._let_go()

    def committed(self, p: Position, *, is_enough: bool = False) -> None:
        """The commit point is at `p`: all up to there is settled. `is_enough`: a majority is all that
        anybody wants, so those who wait for it are answered."""
        waiting = self._uncommitted
        while waiting and waiting[0].position <= p:
            append = waiting.popleft()
            if append.is_gone:
                append.tell(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif is_enough and not self._committed:
                append.tell(ErrorCode.NONE)
            else:
                self._committed.append(append)
        own = self._own
        while own and own[0].position <= p:  # A majority has it; whether we do matters no more.
            own.popleft().tell(ErrorCode.NONE)

    def answer(self, verdict: Callable[[Position], ErrorCode | None]) -> None:
        """Answer those that are committed, as far as `verdict` has one for their positions."""
        queue = self._committed
        while queue:
            code = verdict(queue[0].position)
            if code is None:
                return
            queue.popleft().tell(code)

    def answer_all(self) -> None:
        """All that is committed is on as many disks as anybody wants."""
        queue = self._committed
        while queue:
            queue.popleft().tell(ErrorCode.NONE)

    def expire(self, now: int) -> None:
        """Answer REQUEST_TIMED_OUT where a producer's patience ended; the append itself goes on."""
        late = [
            append
            for queue in (self._own, self._uncommitted, self._committed)
            for append in queue
            if append.deadline and append.deadline <= now
        ]
        for append in late:
            append.lose_patience()
        if late:
            self._late += late
            self._let_go()

    def fail(self, code: ErrorCode) -> None:
        for append in self._take_all():
            append.tell(code)

    def _take_all(self) -> list[ParkedAppend]:
        parked = [*self._committed, *self._own, *self._uncommitted]
        for queue in (self._committed, self._own, self._uncommitted):
            queue.clear()
        self._late.clear()
        return sorted(parked, key=lambda a: a.position)


class Fetches:
    """Fetches that wait for bytes below the high watermark of one log."""

    __slots__ = ("_sizes", "_waiters")

    def __init__(self) -> None:
        self._waiters: dict[FetchWaiter, None] = {}
        self._sizes: deque[tuple[int, int]] = deque()
        """(end offset, bytes) of what came since the high watermark."""

    @property
    def are_any(self) -> bool:
        return bool(self._waiters)

    def wait(self, waiter: FetchWaiter) -> None:
        self._waiters[waiter] = None

    def forget(self, waiter: FetchWaiter) -> None:
        self._waiters.pop(waiter, None)

    def came(self, end_offset: int, size: int) -> None:
        self._sizes.append((end_offset, size))

    def cut(self, end_offset: int) -> None:
        while self._sizes and self._sizes[-1][0] > end_offset:
            self._sizes.pop()

    def shown(self, high_watermark: int) -> None:
        """Records below this may be read now."""
        fresh = 0
        while self._sizes and self._sizes[0][0] <= high_watermark:
            fresh += self._sizes.popleft()[1]
        if not fresh:
            return
        for waiter in list(self._waiters):
            waiter.missing_bytes -= fresh
            if waiter.missing_bytes <= 0:
                self._waiters.pop(waiter, None)
                waiter.wake()

    def wake_all(self) -> None:
        """Whoever waits must look again: who leads has changed, or the log is gone."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake()
