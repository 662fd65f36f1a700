"""Topics by pattern: regular expressions in RE2's syntax, matched in time linear in the name.

A pattern comes from a client and is matched by the coordinator, so backtracking is out of the
question. Python's own parser reads it; what RE2 has no word for (look-around, back references, atomic
groups) is refused; the rest becomes a set of states that are walked together, and the walk is
remembered. The whole name must match, as in Kafka.

Not supported of RE2: word boundaries, flags in the midst of a pattern, Unicode classes (`\\pL`), POSIX
classes (`[[:alpha:]]`) and `[` in a set without a backslash, `\\Q…\\E`, `\\C`, `\\z`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from dmq.errors import ErrorCode, KafkaError

PATTERN_MAX = 4096
STATES_MAX = 20_000
"""RE2 bounds its programs by memory; Kafka's default is about as many instructions."""

_parser: Any = re._parser  # type: ignore[attr-defined]
"""Private, but the same in every Python from 3.11 on; `tests/.../test_patterns.py` would tell."""

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_STARTS = ("AT_BEGINNING", "AT_BEGINNING_STRING")
_ENDS = ("AT_END", "AT_END_STRING")

Test = Callable[[str], bool]


def invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
    )


def _check_sets(text: str) -> None:
    """Refuse sets that Python reads in another way than RE2, or will one day."""
    inside, before, at = False, "", 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at, before = at + 2, ""
            continue
        if not inside:
            inside = char == "["
            if inside:
                at += text.startswith("^", at + 1)
                at += text.startswith("]", at + 1)  # The first one in a set is a character.
        elif char == "]":
            inside = False
        elif char == "[" or (char == before and char in "-&~|"):
            raise invalid(text, "sets in sets are not supported")
        at, before = at + 1, char


class Pattern:
    """A pattern, ready to be matched with names of topics."""

    __slots__ = ("_edges", "_end", "_seen", "_start", "_steps", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._edges: list[list[tuple[str, Any, int]]] = []
        """By state: ("", None, next) moves freely, ("?", test, next) over one character, ("^", …) at
        the start only, ("$", …) at the end only."""
        self._seen: dict[str, bool] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        if len(text) > PATTERN_MAX:
            raise invalid(text[:32] + "…", "it is too long")
        _check_sets(text)
        try:
            tree = _parser.parse(text, re.ASCII)
        except (re.error, RecursionError, OverflowError, ValueError) as error:
            raise invalid(text, str(error)) from None
        start = self._state()
        self._end = self._sequence(tree, start)
        self._start = start

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        known = self._seen.get(name)
        if known is None:
            known = self._seen[name] = self._walk(name)
        return known

    def select(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of all names there are that match; what is known of others is forgotten."""
        found = tuple(name for name in names if self.matches(name))
        if len(self._seen) > len(names):
            self._seen = {name: self._seen[name] for name in names}
        return found

    # --- building ----------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self._edges) >= STATES_MAX:
            raise invalid(self._text, "it is too large")
        self._edges.append([])
        return len(self._edges) - 1

    def _link(self, state: int, kind: str, test: Test | None, target: int) -> None:
        self._edges[state].append((kind, test, target))

    def _sequence(self, items: Any, state: int) -> int:
        for op, argument in items:
            state = self._item(str(op), argument, state)
        return state

    def _item(self, op: str, argument: Any, state: int) -> int:
        if op in _REPEATS:
            return self._repeat(argument, state)
        if op == "BRANCH":
            return self._branch(argument[1], state)
        if op == "SUBPATTERN":
            _, added, removed, items = argument
            if added or removed:
                raise invalid(self._text, "flags inside of it are not supported")
            return self._sequence(items, state)
        target = self._state()
        if op == "AT":
            self._link(state, self._anchor(str(argument)), None, target)
        else:
            self._link(state, "?", self._test(op, argument), target)
        return target

    def _anchor(self, where: str) -> str:
        if where in _STARTS:
            return "^"
        if where in _ENDS:
            return "$"
        raise invalid(self._text, "word boundaries are not supported")

    def _repeat(self, argument: tuple[int, Any, Any], state: int) -> int:
        least, most, items = argument
        for _ in range(least):
            state = self._sequence(items, state)
        if most == _parser.MAXREPEAT:
            loop = self._state()
            self._link(state, "", None, loop)
            self._link(self._sequence(items, loop), "", None, loop)
            end = self._state()
            self._link(loop, "", None, end)
            return end
        end = self._state()
        for _ in range(int(most) - least):
            self._link(state, "", None, end)
            state = self._sequence(items, state)
        self._link(state, "", None, end)
        return end

    def _branch(self, choices: Any, state: int) -> int:
        end = self._state()
        for items in choices:
            begin = self._state()
            self._link(state, "", None, begin)
            self._link(self._sequence(items, begin), "", None, end)
        return end

    def _test(self, op: str, argument: Any) -> Test:
        if op == "LITERAL":
            return chr(argument).__eq__
        if op == "NOT_LITERAL":
            return chr(argument).__ne__
        if op == "ANY":
            return "\n".__ne__
        if op == "IN":
            return self._set(argument)
        raise invalid(self._text, f"RE2 has no {op.lower().replace('_', ' ')}")

    def _set(self, items: Any) -> Test:
        is_negated = str(items[0][0]) == "NEGATE"
        tests: list[Test] = []
        for op, argument in items[is_negated:]:
            if str(op) == "RANGE":
                low, high = argument
                tests.append(lambda char, low=low, high=high: low <= ord(char) <= high)  # type: ignore[misc]
            elif str(op) == "CATEGORY":
                tests.append(self._category(str(argument)))
            else:
                tests.append(self._test(str(op), argument))
        return lambda char: any(test(char) for test in tests) != is_negated

    def _category(self, name: str) -> Test:
        kind, is_negated = name.removeprefix("CATEGORY_"), "_NOT_" in name
        escape = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[kind.removeprefix("NOT_")]
        one = re.compile(escape, re.ASCII)
        return lambda char: (one.fullmatch(char) is not None) != is_negated

    # --- matching ----------------------------------------------------------------------------

    def _walk(self, name: str) -> bool:
        states = self._closure({self._start}, is_start=True, is_end=not name)
        for at, char in enumerate(name):
            is_end = at == len(name) - 1
            states = self._step(states, char) if not is_end else self._last_step(states, char)
            if not states:
                return False
        return self._end in states

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        found = self._steps.get((states, char))
        if found is None:
            found = self._closure(self._over(states, char), is_start=False, is_end=False)
            if len(self._steps) < STATES_MAX:
                self._steps[states, char] = found
        return found

    def _last_step(self, states: frozenset[int], char: str) -> frozenset[int]:
        return self._closure(self._over(states, char), is_start=False, is_end=True)

    def _over(self, states: frozenset[int], char: str) -> set[int]:
        return {
            target
            for state in sorted(states)
            for kind, test, target in self._edges[state]
            if kind == "?" and test(char)
        }

    def _closure(self, states: set[int], *, is_start: bool, is_end: bool) -> frozenset[int]:
        """Those states, and all that can be reached from them without a character."""
        found, todo = set(states), sorted(states)
        while todo:
            for kind, _, target in self._edges[todo.pop()]:
                is_free = not kind or (kind == "^" and is_start) or (kind == "$" and is_end)
                if is_free and target not in found:
                    found.add(target)
                    todo.append(target)
        return frozenset(found)
