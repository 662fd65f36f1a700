"""Commands of the cluster machine and their answers as bytes, and back.

    command   {"v": 1, "do": "CreateTopics", "with": {field: value}}
    answer    {"v": 1, "is": "Registered", "one": {field: value}}  or  {…, "many": [{…}]}
    refusal   {"v": 1, "error": [code, message]}

For the way from the broker that was asked to the metadata leader. The classes of `commands.py` are
the schema: what is declared there travels, nothing else has to be written. Fields that have their
default are left out, so a new field with a default (which then never changes) is understood by an
older broker until somebody uses it. A command with a field that we don't know is refused, because we
would do something else than was asked; in an answer it is skipped. Bytes are the peer's: whatever they
are, they give a value or raise ProtocolError. Called by the broker's way of submitting commands.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from uuid import UUID

from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError
from dmq.machines import commands
from dmq.machines.machine import Command

VERSION = 1

_encode_json = json.JSONEncoder(separators=(",", ":")).encode
_decode_json = json.JSONDecoder().decode

Convert = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """How values of one type become JSON, and back."""

    to_json: Convert
    from_json: Convert


class _Forms:
    """Forms of types, made when they are first met. `is_strict`: unknown fields are refused."""

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._known: dict[Any, _Form] = {
            UUID: _Form(lambda value: value.hex, lambda raw: UUID(_exactly(str, raw))),
            KafkaError: _Form(_error_to_json, _error_from_json),
        }
        for plain in (str, int, bool):
            self._known[plain] = _Form(_same, _reader_of(plain))

    def of(self, kind: Any) -> _Form:
        form = self._known.get(kind)
        if form is None:
            form = self._known[kind] = self._make(kind)
        return form

    def _make(self, kind: Any) -> _Form:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is types.UnionType or origin is typing.Union:
            (given,) = (one for one in arguments if one is not types.NoneType)
            return _optional(self.of(given))
        if origin is Mapping:
            assert arguments[0] is str, kind
            return _mapping(self.of(arguments[1]))
        if origin is tuple and arguments[-1] is Ellipsis:
            return _series(self.of(arguments[0]))
        if origin is tuple:
            return _row(tuple, [self.of(argument) for argument in arguments])
        if dataclasses.is_dataclass(kind):
            return self._record(kind)
        hints = typing.get_type_hints(kind)
        assert issubclass(kind, tuple), f"no form for {kind}"
        return _row(lambda items: kind(*items), [self.of(hint) for hint in hints.values()])

    def _record(self, kind: Any) -> _Form:
        hints = typing.get_type_hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        forms = {name: self.of(hints[name]) for name in fields}

        def to_json(value: Any) -> dict[str, Any]:
            body = {}
            for name, form in forms.items():
                item = getattr(value, name)
                if not _is_default(fields[name], item):
                    body[name] = form.to_json(item)
            return body

        def from_json(raw: Any) -> Any:
            known = {}
            for name, item in _exactly(dict, raw).items():
                if name in forms:
                    known[name] = forms[name].from_json(item)
                elif self._is_strict:
                    raise ValueError(f"{kind.__name__} has no field {name!r}")
            return kind(**known)  # TypeError, if one without a default is missing.

        return _Form(to_json, from_json)


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return bool(field.default is not dataclasses.MISSING and value == field.default)


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type, raw: Any) -> Any:
    """JSON's own types only: a bool is no int."""
    if type(raw) is not kind:
        raise ValueError(f"{kind.__name__} expected, not {type(raw).__name__}")
    return raw


def _reader_of(kind: type) -> Convert:
    return lambda raw: _exactly(kind, raw)


def _optional(form: _Form) -> _Form:
    return _Form(
        lambda value: None if value is None else form.to_json(value),
        lambda raw: None if raw is None else form.from_json(raw),
    )


def _mapping(form: _Form) -> _Form:
    return _Form(
        lambda value: {name: form.to_json(item) for name, item in value.items()},
        lambda raw: {name: form.from_json(item) for name, item in _exactly(dict, raw).items()},
    )


def _series(form: _Form) -> _Form:
    return _Form(
        lambda value: [form.to_json(item) for item in value],
        lambda raw: tuple([form.from_json(item) for item in _exactly(list, raw)]),
    )


def _row(make: Callable[[list[Any]], Any], forms: list[_Form]) -> _Form:
    def to_json(value: Any) -> list[Any]:
        return [form.to_json(item) for form, item in zip(forms, value, strict=True)]

    def from_json(raw: Any) -> Any:
        pairs = zip(forms, _exactly(list, raw), strict=True)
        return make([form.from_json(item) for form, item in pairs])

    return _Form(to_json, from_json)


def _error_to_json(error: DmqError) -> list[Any]:
    message = error.message if isinstance(error, KafkaError) else str(error)
    return [int(error.code), message]


def _error_from_json(raw: Any) -> KafkaError:
    number, message = _exactly(list, raw)
    try:
        code = ErrorCode(_exactly(int, number))
    except ValueError:  # Of a later version.
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(code, "" if message is None else _exactly(str, message))


def _answer_kind(command: type) -> Any:
    """The class of a command's answer, or of each item of it."""
    bases = command.__orig_bases__  # type: ignore[attr-defined]
    base = next(base for base in bases if typing.get_origin(base) is Command)
    (kind,) = typing.get_args(base)
    return typing.get_args(kind)[0] if typing.get_origin(kind) is list else kind


_COMMANDS: dict[str, type[Command[Any]]] = {
    name: kind
    for name, kind in vars(commands).items()
    if isinstance(kind, type) and issubclass(kind, Command) and kind is not Command
}
_ANSWERS: dict[str, type] = {kind.__name__: kind for kind in map(_answer_kind, _COMMANDS.values())}
_IN_COMMANDS = _Forms(is_strict=True)
_IN_ANSWERS = _Forms(is_strict=False)


def encode_command(command: Command[Any]) -> bytes:
    """A command as bytes."""
    kind = type(command)
    assert _COMMANDS.get(kind.__name__) is kind, f"{kind} is no command of the cluster machine"
    body = {"v": VERSION, "do": kind.__name__, "with": _IN_COMMANDS.of(kind).to_json(command)}
    return _encode_json(body).encode()


def decode_command(data: bytes) -> Command[Any]:
    """Bytes as a command. Raises ProtocolError."""
    try:
        body = _body(data)
        kind = _COMMANDS[_exactly(str, body["do"])]
        return typing.cast("Command[Any]", _IN_COMMANDS.of(kind).from_json(body["with"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        _refuse("command", error)


def encode_result(result: object) -> bytes:
    """A command's answer as bytes; or the error that it ended in."""
    if isinstance(result, DmqError):
        return _encode_json({"v": VERSION, "error": _error_to_json(result)}).encode()
    items = result if isinstance(result, list) else [result]
    if not items:
        return _encode_json({"v": VERSION, "is": "", "many": []}).encode()
    kind = type(items[0])
    assert _ANSWERS.get(kind.__name__) is kind, f"{kind} is no answer of the cluster machine"
    assert all(type(item) is kind for item in items), "an answer has items of one kind"
    values = list(map(_IN_ANSWERS.of(kind).to_json, items))
    said = {"many": values} if isinstance(result, list) else {"one": values[0]}
    return _encode_json({"v": VERSION, "is": kind.__name__, **said}).encode()


def decode_result(data: bytes) -> Any:
    """Bytes as an answer. Raises ProtocolError; or the error that they carry, as a KafkaError:
    what may have happened over there (a failed disk, say) did not happen here."""
    try:
        body = _body(data)
        if "error" in body:
            result: Any = _error_from_json(body["error"])
        elif body.get("many") == []:
            result = []
        else:
            form = _IN_ANSWERS.of(_ANSWERS[_exactly(str, body["is"])])
            if "many" in body:
                result = [form.from_json(item) for item in _exactly(list, body["many"])]
            else:
                result = form.from_json(body["one"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        _refuse("answer", error)
    if isinstance(result, KafkaError):
        raise result
    return result


def _body(data: bytes) -> dict[str, Any]:
    body = _exactly(dict, _decode_json(bytes(data).decode()))
    if body["v"] != VERSION:
        raise ValueError(f"unknown version {body['v']}")
    return typing.cast("dict[str, Any]", body)


def _refuse(what: str, error: Exception) -> NoReturn:
    raise ProtocolError(f"this is no {what} of the cluster machine: {error!r}") from error
