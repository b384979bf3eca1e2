"""Every key of Apache Kafka's jars is in our table, with the same type, default, limits, importance and scope."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.differential import config_oracle
from pykbroker.config.key_table import (
    BROKER_KEYS,
    DYNAMIC_ONLY_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_synonyms,
)
from pykbroker.config.kinds import Key, ListOf, Range, Required, format_value


@pytest.fixture(scope="module")
def kafka() -> Any:
    return config_oracle.run("DumpConfigs")


def row(key: Key) -> dict[str, Any]:
    """Return our row as DumpConfigs writes Kafka's."""
    check = key.check
    required = isinstance(key.default, Required)
    written: dict[str, Any] = {
        "type": key.type.name,
        "required": required,
        "default": None if isinstance(key.default, Required) else format_value(key.default),
        "validator": None if check is None else str(check),
        "importance": key.importance.upper(),
        "internal": key.internal,
        "alternative": None,
    }
    if isinstance(check, ListOf):
        written |= {"emptyAllowed": check.empty, "nullAllowed": check.null}
    return written


def kafka_row(row: dict[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in row.items() if name != "validatorClass"}
    text = row["validator"]
    if text is not None and text.startswith("(case insensitive)"):  # a Java HashSet prints in no particular order
        row["validator"] = f"(case insensitive) [{', '.join(sorted(text[20:-1].split(', ')))}]"
    return row


@pytest.mark.parametrize(
    ("scope", "ours", "count"), [("broker", BROKER_KEYS, 379), ("topic", TOPIC_KEYS, 38), ("group", GROUP_KEYS, 27)]
)
def test_every_key(kafka: Any, scope: str, ours: dict[str, Key], count: int) -> None:
    assert len(kafka[scope]) == count
    assert {name: row(key) for name, key in ours.items()} == {
        name: kafka_row(theirs) for name, theirs in kafka[scope].items()
    }


def test_group_names(kafka: Any) -> None:
    assert set(kafka["groupNames"]) == set(GROUP_KEYS)


def test_dynamic_scope(kafka: Any) -> None:
    ours = {name: key.dynamic for name, key in (BROKER_KEYS | DYNAMIC_ONLY_KEYS).items() if key.dynamic != "read-only"}
    assert ours == kafka["updateModes"]
    assert {name for name, key in BROKER_KEYS.items() if key.dynamic == "read-only"} == set(kafka["nonDynamic"])
    assert set(kafka["dynamicOnly"]) == set(ours)
    for name, key in DYNAMIC_ONLY_KEYS.items():
        assert row(key) == kafka_row(kafka["dynamicOnly"][name])


def test_synonyms(kafka: Any) -> None:
    ours = {topic: [[name, str(factor)] for name, factor in names] for topic, names in TOPIC_SYNONYMS.items()}
    assert ours == kafka["topicSynonyms"]
    assert {name: GROUP_SYNONYMS.get(name) for name in GROUP_KEYS} == kafka["groupSynonyms"]
    chains = {name: list(broker_synonyms(name)) for name in BROKER_KEYS if len(broker_synonyms(name)) > 1}
    assert chains == kafka["brokerSynonyms"]


def test_ranges_print_their_bounds() -> None:
    """The comparison above is by text, so this test shows that the text contains the bounds."""
    assert str(Range(1, None)) == "[1,...]"
    assert str(Range(0, 0.5)) == "[0,...,0.5]"
