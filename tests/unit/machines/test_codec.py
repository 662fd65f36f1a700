"""Commands and answers survive their own bytes; anything else is one kind of error."""

import contextlib
import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmq.errors import (
    ConfigError,
    DmqError,
    ErrorCode,
    FatalStorageError,
    KafkaError,
    ProtocolError,
)
from dmq.machines import commands
from dmq.machines.codec import decode_command, decode_result, encode_command, encode_result
from dmq.machines.commands import CreateTopics, Done, NewTopic, Registered, TopicCreated
from dmq.machines.machine import Command
from dmq.types import NIL_UUID

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no finding."""

errors = st.builds(KafkaError, st.sampled_from(ErrorCode), st.text(max_size=10))
st.register_type_strategy(KafkaError, errors)


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, with mappings as plain dicts."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return st.one_of([strategy(one) for one in arguments])
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=8), strategy(arguments[1]), max_size=3)
    if origin is list:
        return st.lists(strategy(arguments[0]), max_size=3)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(strategy, arguments))
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{name: strategy(hint) for name, hint in hints.items()})
    return st.from_type(kind)


def answer_of(command: type) -> Any:
    (base,) = command.__orig_bases__  # type: ignore[attr-defined]
    return typing.get_args(base)[0]


COMMANDS = [
    kind
    for kind in vars(commands).values()
    if isinstance(kind, type) and issubclass(kind, Command) and kind is not Command
]
commands_of_all_kinds = st.one_of([strategy(kind) for kind in COMMANDS])
answers_of_all_kinds = st.one_of([strategy(answer_of(kind)) for kind in COMMANDS])


def plain(value: Any) -> Any:
    """Comparable: errors have no equality of their own."""
    if isinstance(value, KafkaError):
        return value.code, value.message
    if isinstance(value, list | tuple):
        return type(value), [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return type(value), [plain(getattr(value, name)) for name in names]
    return type(value), value


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_command_and_its_answer_survive(kind: type) -> None:
    @calmly
    @given(strategy(kind), strategy(answer_of(kind)))
    def survive(command: Any, answer: Any) -> None:
        assert plain(decode_command(encode_command(command))) == plain(command)
        assert plain(decode_result(encode_result(answer))) == plain(answer)

    survive()


@calmly
@given(errors)
def test_a_refusal_is_raised_again(error: KafkaError) -> None:
    with pytest.raises(KafkaError) as raised:
        decode_result(encode_result(error))
    assert (raised.value.code, raised.value.message) == (error.code, error.message)


@pytest.mark.parametrize(
    "error", [FatalStorageError("the sync failed"), ConfigError(["a", "b"]), ProtocolError("x")]
)
def test_what_failed_over_there_did_not_fail_here(error: DmqError) -> None:
    """A fatal error of another broker must not stop this one."""
    with pytest.raises(KafkaError) as raised:
        decode_result(encode_result(error))
    assert type(raised.value) is KafkaError
    assert (raised.value.code, raised.value.message) == (error.code, str(error))


def test_the_bytes_are_text_and_short() -> None:
    command = CreateTopics((NewTopic("t", NIL_UUID),))
    assert json.loads(encode_command(command)) == {
        "v": 1,
        "do": "CreateTopics",
        "with": {"topics": [{"name": "t", "topic_id": NIL_UUID.hex}]},
    }
    assert json.loads(encode_result(Registered(1, 2))) == {
        "v": 1,
        "is": "Registered",
        "one": {"node": 1, "epoch": 2},
    }


def test_a_command_with_a_field_of_a_later_version_is_refused_an_answer_is_not() -> None:
    later = encode_command(CreateTopics(())).replace(b'"topics"', b'"more":1,"topics"')
    with pytest.raises(ProtocolError):
        decode_command(later)
    later = encode_result(TopicCreated("t")).replace(b'"name"', b'"more":1,"name"')
    assert decode_result(later) == TopicCreated("t")


def test_a_code_of_a_later_version_is_an_error_all_the_same() -> None:
    with pytest.raises(KafkaError, match="because") as raised:
        decode_result(b'{"v":1,"error":[30000,"because"]}')
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"v":2,"do":"DeleteTopics","with":{"topics":[]}}',
        b'{"v":1,"do":"Command","with":{}}',
        b'{"v":1,"do":["DeleteTopics"],"with":{"topics":[]}}',
        b'{"v":1,"do":"DeleteTopics"}',
        b'{"v":1,"do":"DeleteTopics","with":{}}',
        b'{"v":1,"do":"DeleteTopics","with":[]}',
        b'{"v":1,"do":"DeleteTopics","with":{"topics":{}}}',
        b'{"v":1,"do":"DeleteTopics","with":{"topics":[["a"]]}}',
        b'{"v":1,"do":"DeleteTopics","with":{"topics":[["a","zz"]]}}',
        b'{"v":1,"do":"UnregisterBroker","with":{"node":true}}',
        b'{"v":1,"do":"UnregisterBroker","with":{"node":1.0}}',
        b'{"v":1,"do":"UnregisterBroker","with":{"node":' + b"9" * 5000 + b"}}",
        b"[" * 100_000,
    ],
)
def test_what_is_no_command_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_command(data)
    with pytest.raises(ProtocolError):
        decode_result(data)


@calmly
@given(commands_of_all_kinds, answers_of_all_kinds, st.data())
def test_any_bytes_give_a_value_or_one_kind_of_error(
    command: Any, answer: Any, data: st.DataObject
) -> None:
    for valid in (encode_command(command), encode_result(answer)):
        at = data.draw(st.integers(0, len(valid)))
        cut = data.draw(st.integers(0, 8))
        junk = data.draw(st.binary(max_size=8) | st.sampled_from([b"{}", b"[]", b"null", b"1"]))
        spoilt = valid[:at] + junk + valid[at + cut :]
        with contextlib.suppress(ProtocolError):
            decode_command(spoilt)
        with contextlib.suppress(ProtocolError, KafkaError):
            decode_result(spoilt)


def test_done_and_nothing() -> None:
    assert decode_result(encode_result(Done())) == Done()
    assert decode_result(encode_result([])) == []
