"""What becomes of a request whose handler fails, at once or after a wait."""

from typing import Any

import pytest

from dmq.doors.call import Call
from dmq.wire import registry


class Line:
    """A connection that can only be closed."""

    is_closed = False

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def close(self, reason: str) -> None:
        self.reasons.append(reason)


def call_on(line: Any) -> Call:
    return Call(line, registry.RequestHeader(3, 9, 1, "me", 0), 10)


def fail(error: Exception) -> None:
    raise error


def test_a_handler_that_fails_costs_its_client_the_connection_and_nobody_else_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = Line()
    call_on(line).perform(fail, ValueError("odd"))
    assert line.reasons == ["met an internal error"]
    assert "handler of API 3 version 9 failed" in caplog.text


def test_a_broken_invariant_is_not_swallowed() -> None:
    line = Line()
    with pytest.raises(AssertionError, match="never"):
        call_on(line).perform(fail, AssertionError("never"))
    assert line.reasons == []
