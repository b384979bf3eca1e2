"""A configuration key: its type, the values that it takes, and the conversion between text and value.

Responsible for one value at a time, with Apache Kafka's rules for reading and printing it. Not responsible for the set
of keys (keys/, key_table.py) nor for rules between keys (checks.py, topic.py, dynamic.py).

Parsed values are plain Python: bool, int, float, str, a tuple of str for LIST, `Password` for PASSWORD. None means "not
set".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigError(ValueError):
    """A node must not start with a configuration, or must not apply it. The message names the key, the value and what
    is allowed."""


class Type(IntEnum):
    """The types of values. The numbers are those of DescribeConfigs' ConfigType field."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN: Final = Type.BOOLEAN
STRING: Final = Type.STRING
INT: Final = Type.INT
SHORT: Final = Type.SHORT
LONG: Final = Type.LONG
DOUBLE: Final = Type.DOUBLE
LIST: Final = Type.LIST
CLASS: Final = Type.CLASS
#: The prefix of a class of Python in a properties file (plugins/).
PYTHON_CLASS: Final = "python:"
#: The one class of an authorizer that is served (security/standard_authorizer.py).
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD: Final = Type.PASSWORD

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"

# READ_ONLY keys need a restart to change. Topic and group keys may always be changed, for one topic or group.
READ_ONLY: Final = "read-only"
CLUSTER_WIDE: Final = "cluster-wide"
PER_BROKER: Final = "per-broker"
PER_TOPIC: Final = "per-topic"
PER_GROUP: Final = "per-group"

# Traits of a broker key, which say what a change, a listener or a SASL mechanism may do with it.
#: A dynamic change may set the key only for one listener: listener.name.<listener>.<key>
LISTENER_ONLY: Final = "listener only"
#: The key may change with the prefix of a TLS listener while a node runs (SslConfigs.RECONFIGURABLE_CONFIGS).
RELOADED: Final = "reloaded"
#: The key may have a value for all brokers also with the prefix of a listener.
ALL_BROKERS: Final = "all brokers"
#: The key is a number of threads, which a dynamic change may at most double or halve.
THREAD_POOL: Final = "thread pool"
#: The key may be set per SASL mechanism: listener.name.<listener>.<mechanism>.<key>
PER_MECHANISM: Final = "per mechanism"
#: The key defines listeners or their security.
DEFINES_LISTENERS: Final = "defines listeners"
#: The key acts with the prefix of a SASL listener, if the properties file sets it.
SERVED_SASL: Final = "served SASL"
#: The key sets when a client logs in again, or with which program. It protects nothing, and acts only with Kerberos and
#: OAuth.
LOGIN_TIME: Final = "login time"

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
#: the largest array that Java allocates
MAX_ARRAY: Final = 2**31 - 9
MAX_DOUBLE: Final = 1.7976931348623157e308
HIDDEN: Final = "[hidden]"

_BITS: Final[Mapping[Type, int]] = {INT: 32, SHORT: 16, LONG: 64}
_INTEGER: Final = r"[+-]?[0-9]+"
# The expression matches each digit in only one way. Otherwise a match would take a time that grows with the square of
# the length.
_DOUBLE: Final = r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"


class Password(str):
    """A secret. It is an ordinary str, except that `repr` hides it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


class Required:
    """Stands for the default of a key that has no default: the configuration must set the key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = Required()


def invalid(name: str, value: object, message: str) -> ConfigError:
    """Return the error for one wrong value, with the text that Apache Kafka's tools print."""
    shown = format_value(value) if isinstance(value, (bool, float, tuple)) else value
    return ConfigError(f"Invalid value {shown} for configuration {name}: {message}")


class Check:
    """A validator: `check` raises ConfigError, `str()` returns what is allowed (as in Apache Kafka's reference)."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        raise NotImplementedError


class Range(Check):
    """A number between two bounds, both included; None means no bound."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float | None) -> None:
        self.low = low
        self.high = high

    def check(self, name: str, value: Value) -> None:
        if not isinstance(value, (int, float)):
            raise invalid(name, value, "Value must be non-null")
        if value < self.low:
            raise invalid(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"


_at_least: dict[float, Range] = {}


def at_least(low: float) -> Range:
    """Return a Range that keys share, because half of all keys have one of the same three bounds."""
    found = _at_least.get(low)
    if found is None:
        found = _at_least[low] = Range(low, None)
    return found


def between(low: float, high: float) -> Range:
    return Range(low, high)


class OneOf(Check):
    """A string from a fixed list."""

    __slots__ = ("values",)

    def __init__(self, *values: str) -> None:
        self.values = values

    def check(self, name: str, value: Value) -> None:
        if value not in self.values:
            raise invalid(name, value, "String must be one of: " + ", ".join(self.values))

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]"


class OneOfAnyCase(Check):
    """A string from a fixed list, in any case."""

    __slots__ = ("values",)

    def __init__(self, *values: str) -> None:
        self.values = values

    def check(self, name: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in self.values:
            raise invalid(name, value, "String must be one of (case insensitive): " + ", ".join(self.values))

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.values)}]"


class ListOf(Check):
    """A list without duplicates or empty entries; with `values` every entry must be one of them."""

    __slots__ = ("empty", "null", "values")

    def __init__(self, *values: str, empty: bool, null: bool = False) -> None:
        self.values = values
        self.empty = empty
        self.null = null

    def check(self, name: str, value: Value) -> None:
        if value is None:
            if self.null:
                return
            raise ConfigError(f"Configuration '{name}' values must not be null.")
        assert isinstance(value, tuple), f"{name} is not a list"
        if not value and not self.empty:
            raise ConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: {str(self) or 'any non-empty value'}"
            )
        for entry in value:
            if not entry:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.values and entry not in self.values:
                raise invalid(name, entry, "String must be one of: " + ", ".join(self.values))

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]" if self.values else ""


class NonEmpty(Check):
    """Not set, or a string that is not empty."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class NonNull(Check):
    """Any string, but it must be set."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        if value is None:
            raise invalid(name, value, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


class GzipLevel(Check):
    """A compression level of gzip: -1 is the library's own choice, 0 is not allowed."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        if not isinstance(value, int) or not (1 <= value <= 9 or value == -1):
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


class Voters(Check):
    """Entries of the form id@host:port."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple), f"{name} is not a list"
        for entry in value:
            parse_voter(name, entry)

    def __str__(self) -> str:
        return "non-empty list"


class HostsAndPorts(Check):
    """Entries of the form host:port."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple), f"{name} is not a list"
        for entry in value:
            if parse_host_port(entry) is None:
                raise invalid(name, entry, 'Each entry should be in the form "{host}:{port}"')

    def __str__(self) -> str:
        return "non-empty list"


class HostAndPort(Check):
    """host:port."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        found = parse_host_port(value) if isinstance(value, str) else None
        if value is not None and (found is None or found[1] > 65535):
            raise invalid(name, value, 'It should be in the form "{host}:{port}"')

    def __str__(self) -> str:
        return "host:port"


class ThrottledReplicas(Check):
    """`*`, or entries of the form partition:broker."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple), f"{name} is not a list"
        if "".join(value) != "*" and not all(re.fullmatch("([0-9]+:[0-9]+)?", entry) for entry in value):
            raise invalid(
                name,
                value,
                f"{name} must be the literal '*' or a list of replicas in the following format: {self}",
            )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class ShareOffsetReset(Check):
    """`latest`, `earliest`, or the duration before now at which a share group starts (KIP-1106)."""

    __slots__ = ()

    def check(self, name: str, value: Value) -> None:
        text = value if isinstance(value, str) else ""
        if text in ("latest", "earliest"):
            return
        if text.startswith("by_duration:") and _duration_seconds(text[len("by_duration:") :]) >= 0:
            return
        raise invalid(
            name,
            value,
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>', "
            "where the duration is not negative",
        )

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


class RefusedValues:
    """The values of a key that are refused because they promise protection which this version does not give.

    A node starts if the key has one of the `harmless` values, or a value that means "not set". With `python` it also
    starts if the properties file names a class of Python. With `role` only a node of that role refuses. `when`: the
    words for the key, if a rule of protection.py judges it and not its value alone. `not_served`: the protection that
    is not given. `served`: what is served although the key can be refused.
    """

    __slots__ = ("harmless", "not_served", "python", "role", "served", "when")

    def __init__(
        self,
        not_served: str,
        *,
        harmless: tuple[Value, ...] = (),
        python: bool = False,
        role: str | None = None,
        when: str = "",
        served: str = "",
    ) -> None:
        self.not_served = not_served
        self.harmless = harmless
        self.python = python
        self.role = role
        self.when = when
        self.served = served


class Key:
    """One row of the table: everything that is known of a key but its text, which is the `#:` comment above the row.

    `acts`: the key has an effect in today's broker, which a test with `@acts` shows (testkit/acting.py). `refused`:
    values of the key stop the start. `in_area` sets `area`.
    """

    __slots__ = (
        "acts",
        "area",
        "check",
        "default",
        "dynamic",
        "importance",
        "internal",
        "name",
        "refused",
        "traits",
        "type",
    )

    def __init__(
        self,
        name: str,
        type: Type,
        default: Value | Required,
        check: Check | None,
        importance: str,
        dynamic: str = READ_ONLY,
        internal: bool = False,
        *,
        acts: bool = False,
        traits: tuple[str, ...] = (),
        refused: RefusedValues | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.check = check
        self.importance = importance
        self.dynamic = dynamic
        self.internal = internal
        self.acts = acts
        self.traits = traits
        self.refused = refused
        self.area = ""

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.type.name}, {self.default!r})"

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def doc(self) -> str:
        """A description of the key in our own words. The texts are loaded at the first use."""
        from pykbroker.config.texts import text_of

        return text_of(self)

    def parse(self, text: str) -> Value:
        """Return the typed value of a text from a file or a client. Raises ConfigError if it is not allowed."""
        python = self.refused is not None and self.refused.python
        value = parse_text(self.name, self.type, text, python=python)
        if isinstance(value, tuple) and isinstance(self.check, ListOf):
            value = tuple(dict.fromkeys(value))  # KIP-1161: duplicates are dropped, not refused
        if self.check is not None:
            self.check.check(self.name, value)
        return value


def in_area(area: str, *keys: Key) -> tuple[Key, ...]:
    for key in keys:
        key.area = area
    return keys


#: The white space of Java's regular expressions.
_WHITE_SPACE: Final = " \t\n\v\f\r"


def split_list(text: str) -> tuple[str, ...]:
    """Return the entries of a list as Apache Kafka splits it, without the blanks around each comma.

    A client may send the text, so this uses no regular expression with blanks on both sides of a comma: its time would
    grow with the square of the number of blanks in a row.
    """
    if not text:
        return ()
    first, *others = text.split(",")
    if not others:
        return (first,)
    middle = (entry.strip(_WHITE_SPACE) for entry in others[:-1])
    return (first.rstrip(_WHITE_SPACE), *middle, others[-1].lstrip(_WHITE_SPACE))


def parse_text(name: str, type: Type, text: str, *, python: bool = False) -> Value:
    """Convert a text to a value by its type alone. As in Kafka, a value of any type is trimmed, even a password. With
    `python` a class may be one of Python."""
    trimmed = text.strip("".join(map(chr, range(33))))
    match type:
        case Type.BOOLEAN:
            lower = trimmed.lower()
            if lower not in ("true", "false"):
                raise invalid(name, text, "Expected value to be either true or false")
            return lower == "true"
        case Type.INT | Type.SHORT | Type.LONG:
            bits = _BITS[type]
            if re.fullmatch(_INTEGER, trimmed) and len(trimmed) < 40:
                number = int(trimmed)
                if -(1 << bits - 1) <= number < 1 << bits - 1:
                    return number
            raise invalid(name, text, f"Not a number of type {type.name}")
        case Type.DOUBLE:
            if not re.fullmatch(_DOUBLE, trimmed):
                raise invalid(name, text, "Not a number of type DOUBLE")
            return float(trimmed.rstrip("fFdD"))
        case Type.LIST:
            return split_list(trimmed)
        case Type.PASSWORD:
            return Password(trimmed)
        case Type.CLASS:
            path = trimmed.removeprefix(PYTHON_CLASS) if python else trimmed
            if not path or any(not part.isidentifier() for part in re.split(r"[.$]", path)):
                raise invalid(name, text, f"Class {text} could not be found.")
            return trimmed
        case Type.STRING:
            return trimmed


def format_value(value: object) -> str | None:
    """Convert a value to text, as DescribeConfigs shows it. Callers must not pass a password."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def format_double(value: float) -> str:
    """Return a double as Java prints it: plain between 0.001 and ten million, otherwise d.ddE±n."""
    if value != value:
        return "NaN"
    sign = "-" if str(value).startswith("-") else ""
    if value in (float("inf"), float("-inf")):
        return f"{sign}Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)  # Python's own plain range is wider on both sides
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    power = len(whole) - 1 - leading_zeros + int(exponent or 0)
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}"


def parse_voter(name: str, entry: str) -> tuple[int, str, int]:
    """Parse `id@host:port` of controller.quorum.voters."""
    node_id, at, address = entry.partition("@")
    found = parse_host_port(address)
    if not at or not re.fullmatch(_INTEGER, node_id) or found is None:
        raise invalid(name, entry, "Each entry should be in the form `{id}@{host}:{port}`.")
    return int(node_id), found[0], found[1]


def parse_host_port(text: str) -> tuple[str, int] | None:
    """Parse `host:port` or `[ipv6]:port`; returns None for other texts."""
    match = re.fullmatch(r"(?:.*://)?(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):([0-9]{1,5})", text)
    if match is None:
        return None
    host = match[1] if match[1] is not None else match[2]
    return (host, int(match[3])) if host else None


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a socket on the host. Returns False for every name but localhost,
    because it may stand for any address."""
    import ipaddress  # rarely needed, and not cheap to import

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO-8601 duration of days to seconds, which `ShareOffsetReset` has checked."""
    return int(_duration_seconds(text) * 1000)


def _duration_seconds(text: str) -> float:
    """Return the seconds of an ISO-8601 duration of days to seconds, or a negative number if the text is none."""
    number = "[+-]?[0-9]{1,18}"  # a 64-bit number of Java; Python's int() takes no more than 4,300 digits
    time = rf"T(?=.)(?:({number})H)?(?:({number})M)?(?:({number}(?:[.,][0-9]{{0,9}})?)S)?"
    pattern = rf"([+-]?)P(?=.)(?:({number})D)?(?:{time})?"
    match = re.fullmatch(pattern, text, re.IGNORECASE)
    if match is None:
        return -1.0
    sign, days, hours, minutes, seconds = match.groups()
    total = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    amount = total + float((seconds or "0").replace(",", "."))
    return -amount if sign == "-" else amount
