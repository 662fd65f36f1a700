"""Ctrl-C and SIGTERM: at once between calls of librdkafka, afterwards within one."""

import contextlib
import signal
from collections.abc import Iterator

import pytest

from dmq.cli.interrupts import held, take_over


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    take_over()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupted_inside(*numbers: signal.Signals) -> list[signal.Signals]:
    """Raise signals in a held block; returns those after which the block went on."""
    passed = []
    with contextlib.suppress(KeyboardInterrupt), held():
        for number in numbers:
            signal.raise_signal(number)
            passed.append(number)
    return passed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_outside_an_interrupt_comes_at_once(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_inside_it_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    assert interrupted_inside(number) == [number]


def test_at_the_end_of_the_block_it_comes() -> None:
    with pytest.raises(KeyboardInterrupt), held():
        signal.raise_signal(signal.SIGINT)


def test_two_are_one_and_the_next_block_is_free_of_it() -> None:
    twice = [signal.SIGINT, signal.SIGINT]
    assert interrupted_inside(*twice) == twice
    with held():
        pass
