"""An answer that comes later: a value or an error, and the callbacks that wait for it.

Not to be confused with `asyncio.Future`: callbacks run at once, in order, inside `resolve`, with no
loop involved, so that the deterministic parts of the broker can use it. Doors attach callbacks.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from dmq.errors import DmqError

T = TypeVar("T")
U = TypeVar("U")


class Answer(Generic[T]):
    """Resolved once, with a value or with an expected error."""

    __slots__ = ("_callbacks", "_error", "_value", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._value: T | None = None
        self._error: DmqError | None = None
        self._callbacks: list[Callable[[Answer[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> "Answer[T]":
        answer: Answer[T] = cls()
        answer.resolve(value)
        return answer

    def resolve(self, value: T) -> None:
        self._value = value
        self._finish()

    def fail(self, error: DmqError) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        assert not self.is_done, "an answer is given once"
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def get(self) -> T:
        """The value. Raises the error that was the answer, if it was one."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def on_done(self, callback: "Callable[[Answer[T]], None]") -> None:
        """Call with this answer when it is there; at once if it is."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def follow(self, other: "Answer[T]") -> None:
        """Be done as `other` was, which is done."""
        try:
            value = other.get()
        except DmqError as error:
            self.fail(error)
        else:
            self.resolve(value)

    def map(self, function: Callable[[T], U]) -> "Answer[U]":
        """An answer with `function` of this one's value, or with its error."""
        mapped: Answer[U] = Answer()

        def finish(answer: "Answer[T]") -> None:
            try:
                value = function(answer.get())
            except DmqError as error:
                mapped.fail(error)
            else:
                mapped.resolve(value)

        self.on_done(finish)
        return mapped


def when_all(answers: Iterable[Answer[T]], callback: Callable[[], None]) -> None:
    """Call once every one of `answers` is done; at once if they are."""
    waiting = [answer for answer in answers if not answer.is_done]
    if not waiting:
        callback()
        return
    left = len(waiting)

    def one_done(_: Answer[T]) -> None:
        nonlocal left
        left -= 1
        if not left:
            callback()

    for answer in waiting:
        answer.on_done(one_done)


def in_turns(begins: Iterable[Callable[[], Answer[T]]], at_once: int) -> "Answer[list[Answer[T]]]":
    """Begin all of them, no more than `at_once` at a time; their answers, in order, when the last one
    is there."""
    waiting, begun = iter(begins), list[Answer[T]]()
    result: Answer[list[Answer[T]]] = Answer()
    under_way, is_beginning = 0, False

    def go_on() -> None:
        nonlocal under_way, is_beginning
        if is_beginning:  # What was done at once is counted by the loop that began it.
            return
        is_beginning = True
        while under_way < at_once and (begin := next(waiting, None)) is not None:
            under_way += 1
            answer = begin()
            begun.append(answer)
            answer.on_done(one_done)
        is_beginning = False
        if not under_way:
            result.resolve(begun)

    def one_done(_: Answer[T]) -> None:
        nonlocal under_way
        under_way -= 1
        go_on()

    go_on()
    return result
