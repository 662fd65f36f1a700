"""What a setting is: its type, default, check, reach and sentence; how values are read and printed.

Types, their codes, parsing rules and the shape of the error sentences are Kafka's, because clients
see them through DescribeConfigs and AlterConfigs and tools search for them. Owns no setting itself:
`topic.py`, `broker*.py` and `group.py` declare them as fields of frozen dataclasses with
`setting()`. Reads no file and no environment.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dmq.errors import ConfigError

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

Check: TypeAlias = Callable[[str, Any], str | None]
"""Given a setting's name and its parsed value, says what is wrong with it, or None."""


class ConfigType(enum.IntEnum):
    """Kafka's types of settings, by their codes on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(enum.IntEnum):
    """Where a value comes from, by Kafka's codes on the wire."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ResourceType(enum.IntEnum):
    """What can be configured, by Kafka's codes on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Scope(enum.Enum):
    """Whether a broker setting can be changed while brokers run: for one of them, or for all."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"


class Importance(enum.Enum):
    """How likely it is that an operator needs to think about it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
READ_ONLY, CLUSTER_WIDE = Scope.READ_ONLY, Scope.CLUSTER_WIDE
BOOLEAN, STRING, INT, SHORT = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
)
LONG, DOUBLE, LIST, PASSWORD = (
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER_BITS = {SHORT: 16, INT: 32, LONG: 64}


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigDef:
    """One setting. `name` is what users write, `field` the attribute that holds its value.

    synonym  of a topic or group config: the broker setting whose value it takes when it is not set
    also     of a broker setting: the other settings that it is computed from when it is not set
    inert    accepted and listed for Kafka's sake; changes nothing here
    hidden   not listed unless set
    """

    name: str
    field: str
    type: ConfigType
    default: ConfigValue
    doc: str
    check: Check | None = None
    importance: Importance = MEDIUM
    scope: Scope = READ_ONLY
    unit: str = ""
    synonym: str | None = None
    also: tuple[str, ...] = ()
    inert: bool = False
    hidden: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.type is PASSWORD

    def parse(self, text: str) -> Any:
        """The value that `text` says. Raises ConfigError with one sentence, Kafka's in meaning."""
        problem = None
        try:
            value = read_value(self.type, text)
        except ValueError as error:
            problem, shown = str(error), text
        else:
            shown = write_value(self.type, value) or ""
            if self.check is not None:
                problem = self.check(self.name, value)
        if problem is None:
            return value
        shown = "[hidden]" if self.is_sensitive else shown
        raise ConfigError([f"Invalid value {shown} for configuration {self.name}: {problem}"])

    def text(self, value: ConfigValue) -> str | None:
        return write_value(self.type, value)

    def canonical(self, text: str) -> str:
        """`text` as we store and show it: parsed, checked, printed again."""
        return self.text(self.parse(text)) or ""


Definitions: TypeAlias = Mapping[str, ConfigDef]


def setting(type: ConfigType, default: ConfigValue, doc: str, **details: Any) -> Any:
    """A dataclass field that is a setting. Its name is the field's, with dots for underscores."""
    return dataclasses.field(
        default=default, metadata={"setting": dict(type=type, default=default, doc=doc, **details)}
    )


def definitions_of(settings: type) -> dict[str, ConfigDef]:
    """The table that a dataclass of settings declares, by name, in alphabetical order."""
    found = {}
    for field in dataclasses.fields(settings):
        if (details := field.metadata.get("setting")) is not None:
            name = field.name.replace("_", ".")
            found[name] = ConfigDef(name=name, field=field.name, **details)
    return dict(sorted(found.items()))


def read_value(type: ConfigType, text: str) -> ConfigValue:
    """Text to value by Kafka's rules. Raises ValueError with the reason."""
    trimmed = text.strip()
    if type is BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return trimmed.lower() == "true"
    if type in _INTEGER_BITS:
        return _read_integer(type, trimmed)
    if type is DOUBLE:
        return _read_double(trimmed)
    if type is LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    return trimmed if type is not PASSWORD else text


def _read_integer(type: ConfigType, trimmed: str) -> int:
    digits = trimmed[1:] if trimmed[:1] in ("-", "+") else trimmed
    limit = 1 << (_INTEGER_BITS[type] - 1)
    # int() alone would also take "1_000" and the digits of other alphabets.
    if digits.isascii() and digits.isdigit() and len(digits) < 40:
        value = int(trimmed)
        if -limit <= value < limit:
            return value
    raise ValueError(f"Not a number of type {type.name}")


def _read_double(trimmed: str) -> float:
    try:
        value = float(trimmed)
    except ValueError:
        value = math.nan
    # float() alone would also take "1_000", "inf" and "nan".
    if "_" in trimmed or not math.isfinite(value):
        raise ValueError("Not a number of type DOUBLE")
    return value


def write_value(type: ConfigType, value: ConfigValue) -> str | None:
    """Value to text, as Kafka shows it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if type is DOUBLE:
        assert isinstance(value, int | float)
        return _write_double(float(value))
    return str(value)


def _write_double(value: float) -> str:
    """As Java prints it: plain between 0.001 and ten million, else with an E."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # Python prints plainly up to 1e16.
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        mantissa = mantissa.rstrip("0")
        mantissa += "0" if mantissa.endswith(".") else ""
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
