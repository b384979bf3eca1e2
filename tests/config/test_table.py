"""The table by itself. compat_tests/differential/test_config_table.py compares it with Apache Kafka's jars."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pykbroker.config import key_texts, protection, reference
from pykbroker.config.key_table import (
    BROKER_KEYS,
    DYNAMIC_ONLY_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    OWN_KEYS,
    STATIC_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_synonyms,
)
from pykbroker.config.kinds import BOOLEAN, LIST, Key, Required, format_value
from pykbroker.config.texts import texts_of_scope

ALL = [*STATIC_KEYS.values(), *DYNAMIC_ONLY_KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values()]


def test_the_number_of_keys() -> None:
    assert (len(BROKER_KEYS), len(TOPIC_KEYS), len(GROUP_KEYS)) == (379, 38, 27)
    assert all(name.startswith("pykbroker.") for name in OWN_KEYS)
    assert not OWN_KEYS.keys() & BROKER_KEYS.keys()


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_each_default_is_a_value_of_its_key(key: Key) -> None:
    text = None if isinstance(key.default, Required) else format_value(key.default)
    if text is not None:
        assert key.parse(text) == key.default


def test_each_key_has_a_text_and_each_text_a_key() -> None:
    assert texts_of_scope("broker").keys() == STATIC_KEYS.keys() | DYNAMIC_ONLY_KEYS.keys()
    assert texts_of_scope("per-topic").keys() == TOPIC_KEYS.keys()
    assert texts_of_scope("per-group").keys() == GROUP_KEYS.keys()
    for key in ALL:
        assert key.doc.endswith("."), key.name
        assert 10 < len(key.doc) < 300, key.name
        assert "|" not in key.doc, "it would break the table in docs/configuration.md"


def test_synonyms_are_keys_of_the_same_kind() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        for synonym, _ in synonyms:
            assert (BROKER_KEYS[synonym].type.name in ("INT", "LONG")) == (
                TOPIC_KEYS[name].type.name in ("INT", "LONG")
            )
        assert broker_synonyms(synonyms[0][0]) == tuple(synonym for synonym, _ in synonyms)
    for name, synonym in GROUP_SYNONYMS.items():
        # A group has one of the assignors of its broker.
        wanted = LIST if name == "streams.assignor.name" else GROUP_KEYS[name].type
        assert BROKER_KEYS[synonym].type is wanted


def test_each_row_that_refuses_is_judged() -> None:
    judged = {key for row in protection.TABLE for key in row.keys if key in STATIC_KEYS}
    assert judged == {name for name, key in STATIC_KEYS.items() if key.refused is not None}
    assert all(key.type is BOOLEAN for key in TOPIC_KEYS.values() if key.refused is not None)
    assert not [name for name, key in (DYNAMIC_ONLY_KEYS | GROUP_KEYS).items() if key.refused is not None]


def test_the_texts_are_the_comments_of_the_rows() -> None:
    for path, text in key_texts.modules().items():
        assert path.read_text(encoding="utf-8") == text


def test_a_text_is_the_marked_comment_directly_above_its_row() -> None:
    source = (
        "# Not a text.\nAREA = in_area(\n    'Area',\n    # A remark.\n    #: Two lines\n    #: of text.\n"
        "    Key('a.b', INT),\n    Key('c', INT),\n)\nOTHER = 1\n"
    )
    assert key_texts.texts_of_source(source) == {"AREA": {"a.b": "Two lines of text.", "c": ""}}
    written = key_texts.module_of_texts(source, "some")
    assert written.endswith('\nAREA = """\\\na.b\n    Two lines of text.\nc\n\n"""\n')


def test_the_page_is_fresh() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()


def test_the_texts_are_not_imported_with_the_table() -> None:
    """A node is ready within 300 ms, and the texts are needed only to describe keys."""
    code = (
        "import sys, pykbroker.config.load, pykbroker.config.topic\n"
        "print([name for name in sys.modules if name.startswith('pykbroker.config.texts')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
