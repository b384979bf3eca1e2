from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.kinds import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    ConfigError,
    Password,
    Type,
    Value,
    format_double,
    format_value,
    parse_host_port,
    parse_text,
)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (BOOLEAN, " True ", True),
        (BOOLEAN, "false", False),
        (INT, "+7", 7),
        (INT, "-2147483648", -(2**31)),
        (SHORT, "32767", 32767),
        (LONG, " 9223372036854775807\t", 2**63 - 1),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, ".5f", 0.5),
        (DOUBLE, "Infinity", math.inf),
        (STRING, "  a b  ", "a b"),
        (LIST, "", ()),
        (LIST, " a , b,c ", ("a", "b", "c")),
        (LIST, "a,", ("a", "")),
        (CLASS, "a.b.C$D", "a.b.C$D"),
        (PASSWORD, " secret ", "secret"),
    ],
)
def test_text_to_value(type: Type, text: str, value: Value) -> None:
    assert parse_text("k", type, text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (BOOLEAN, "yes"),
        (BOOLEAN, ""),
        (INT, "2147483648"),
        (INT, "1.0"),
        (INT, "0x1"),
        (INT, "1_0"),
        (INT, ""),
        (INT, "9" * 5000),
        (SHORT, "32768"),
        (LONG, "9223372036854775808"),
        (DOUBLE, "one"),
        (DOUBLE, "inf"),
        (CLASS, "not a class"),
    ],
)
def test_wrong_text_names_key_and_value(type: Type, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_text("some.key", type, text)
    assert "some.key" in str(caught.value)
    assert f"Invalid value {text} for" in str(caught.value)


@given(st.floats(allow_nan=False))
def test_doubles_keep_their_value(value: float) -> None:
    text = format_double(value)
    assert float(text) == value
    assert parse_text("k", DOUBLE, text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1e-5, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-1e22, "-1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_print_as_in_java(value: float, text: str) -> None:
    assert format_double(value) == text


def test_values_to_text() -> None:
    assert [format_value(value) for value in (None, True, False, 5, 0.5, ("a", "b"), (), "x")] == [
        None,
        "true",
        "false",
        "5",
        "0.5",
        "a,b",
        "",
        "x",
    ]


def test_a_password_is_hidden_where_it_is_shown() -> None:
    assert repr(Password("secret")) == "[hidden]"
    assert repr({"k": (Password("secret"),)}) == "{'k': ([hidden],)}"
    with pytest.raises(ConfigError) as caught:
        parse_text("k", INT, "x")
    assert "x" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("PLAINTEXT://a-b.example.org:1", ("a-b.example.org", 1)),
        ("localhost", None),
        (":9092", None),
        ("a b:1", None),
    ],
)
def test_host_and_port(text: str, expected: tuple[str, int] | None) -> None:
    assert parse_host_port(text) == expected
