"""Topics by pattern, against Python's own engine, and against patterns that would hang it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.patterns import Pattern

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\W", r"\.", "-", "^", "$", "(?:ab)"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)
NAMES = st.text("abc.-9_", max_size=6)


@given(PATTERNS, st.lists(NAMES, max_size=5))
def test_patterns_match_as_pythons_do(text: str, names: list[str]) -> None:
    pattern = Pattern(text)
    for name in names:
        assert pattern.matches(name) == (re.fullmatch(text, name, re.ASCII) is not None)
        assert pattern.matches(name) == (re.fullmatch(text, name, re.ASCII) is not None)


def test_the_whole_name_must_match() -> None:
    assert Pattern("(^t.*)").matches("topic")
    assert not Pattern("t").matches("topic")
    assert Pattern("foo|topic").matches("topic")
    assert Pattern("").matches("")


def test_nothing_takes_for_ever() -> None:
    pattern = Pattern("(a+)+$")
    assert not pattern.matches("a" * 248 + "b")
    assert Pattern("(a|a)*(b|b)*c").matches("a" * 100 + "b" * 100 + "c")


@pytest.mark.parametrize(
    "text",
    [
        "(",
        "[",
        "*",
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        r"(a)\1",
        "(?>a)",
        "a++",
        r"\pL",
        r"\bfoo",
        "[[:alpha:]]",
        "[a&&b]",
    ],
)
def test_what_re2_has_no_word_for_is_refused(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        Pattern(text)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_sets_are_sets() -> None:
    assert Pattern(r"[]a\[-]+").matches("]a[-")
    assert Pattern("[^]]").matches("a")
    assert not Pattern("[^]]").matches("]")


@pytest.mark.parametrize("text", ["a" * 5000, "((a{100}){100}){100}", "(" * 2000 + ")" * 2000])
def test_what_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(KafkaError):
        Pattern(text)


def test_what_is_remembered_is_no_more_than_there_are_topics() -> None:
    pattern = Pattern("a.*")
    for number in range(100):
        assert pattern.select([f"a{number}", "b"]) == (f"a{number}",)
    assert set(pattern._seen) == {"a99", "b"}
