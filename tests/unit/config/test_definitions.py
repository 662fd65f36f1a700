"""How values are read and printed."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dmq.config.broker import BROKER
from dmq.config.definitions import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    ConfigDef,
    ConfigType,
    ConfigValue,
    read_value,
    write_value,
)
from dmq.config.group import CLIENT_METRICS, GROUP
from dmq.config.topic import TOPIC
from dmq.errors import ConfigError

TABLES = {"topic": TOPIC, "broker": BROKER, "group": GROUP, "metrics": CLIENT_METRICS}


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (BOOLEAN, " True ", True),
        (BOOLEAN, "FALSE", False),
        (INT, " +7 ", 7),
        (INT, "-2147483648", -(2**31)),
        (LONG, "9223372036854775807", 2**63 - 1),
        (SHORT, "32767", 32767),
        (DOUBLE, "1e3", 1000.0),
        (STRING, " a b ", "a b"),
        (PASSWORD, " a b ", " a b "),
        (LIST, " a , b,c ", ("a", "b", "c")),
        (LIST, "  ", ()),
        (LIST, "a,,b", ("a", "", "b")),
    ],
)
def test_reads(type: ConfigType, text: str, value: ConfigValue) -> None:
    assert read_value(type, text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (BOOLEAN, "yes"),
        (BOOLEAN, ""),
        (INT, "2147483648"),
        (INT, "1_000"),
        (INT, "٣"),
        (INT, "1.0"),
        (INT, ""),
        (INT, "+-1"),
        (INT, "9" * 5000),
        (SHORT, "32768"),
        (LONG, "9223372036854775808"),
        (DOUBLE, "1_0"),
        (DOUBLE, "x"),
    ],
)
def test_refuses(type: ConfigType, text: str) -> None:
    with pytest.raises(ValueError, match=r"Not a number|Expected value"):
        read_value(type, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
    ],
)
def test_doubles_are_printed_as_java_prints_them(value: float, text: str) -> None:
    assert write_value(DOUBLE, value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_come_back(value: float) -> None:
    text = write_value(DOUBLE, value)
    assert text is not None
    assert read_value(DOUBLE, text) == value


@example(DOUBLE, "INF")
@example(DOUBLE, "nan")
@example(DOUBLE, "1e999")
@given(st.sampled_from([INT, SHORT, LONG, BOOLEAN, DOUBLE, LIST, STRING]), st.text(max_size=30))
def test_any_text_gives_a_value_that_prints_and_reads_back_or_a_value_error(
    type: ConfigType, text: str
) -> None:
    try:
        value = read_value(type, text)
    except ValueError:
        return
    if value == value:  # Not a number is not itself.
        printed = write_value(type, value)
        assert printed is not None
        assert read_value(type, printed) == value


@pytest.mark.parametrize("table", TABLES)
def test_every_default_passes_its_own_check(table: str) -> None:
    for definition in TABLES[table].values():
        text = definition.text(definition.default)
        if text is not None:
            assert definition.parse(text) == definition.default, definition.name


@pytest.mark.parametrize("table", TABLES)
def test_every_setting_is_documented(table: str) -> None:
    for definition in TABLES[table].values():
        assert len(definition.doc) > 10, definition.name
        assert definition.doc.endswith("."), definition.name
        if definition.name.endswith((".ms", ".bytes", ".minutes", ".hours", ".seconds")):
            assert definition.unit, definition.name


def test_synonyms_lead_to_broker_settings_of_the_same_type() -> None:
    for table in (TOPIC, GROUP):
        for definition in table.values():
            if definition.synonym is not None:
                assert BROKER[definition.synonym].type is definition.type, definition.name
    for definition in BROKER.values():
        for other in definition.also:
            assert other in BROKER


def test_a_password_is_not_repeated_in_errors() -> None:
    secret = ConfigDef("x", "x", PASSWORD, None, "doc", check=lambda name, value: "too short")
    with pytest.raises(ConfigError) as refused:
        secret.parse("hunter2")
    assert "hunter2" not in str(refused.value)
