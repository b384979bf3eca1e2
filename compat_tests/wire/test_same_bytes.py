"""The bytes of every message and version are those of Apache Kafka's own generated classes, stored records included.

One JVM answers all questions. JSON goes through Kafka's JsonConverters. They leave out the contents of records, so
Kafka also writes the bytes again that it reads, and these are compared.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.wire.judge import Judge, to_json
from pykbroker_wire import json_form
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.json_form import render
from pykbroker_wire.message_fields import MESSAGE_FIELDS
from pykbroker_wire.primitives import DecodeError, EncodeError, TopLevel
from testkit.messages.catalogue import Entry, Style, cases, make
from testkit.messages.mutations import mutations

pytestmark = pytest.mark.slow

SEED = 431


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder: Path = tmp_path_factory.mktemp("judge")
    judge = Judge(folder)
    yield judge
    judge.close()


def mismatch(judge: Judge, item: Entry, version: int, message: TopLevel) -> str:
    ours = message.encode_bytes(version)
    theirs = judge.write(item, version, message)
    if theirs != ours.hex():
        return f"{item} {version}: writes {theirs}, we {ours.hex()}"
    again, json = judge.read(item, version, ours)
    if again != ours.hex():
        return f"{item} {version}: reads our {ours.hex()} and writes {again}"
    if json != to_json(item, message, version, records=False):
        return f"{item} {version}: reads {json}"
    back, pos = item.cls.decode(memoryview(ours), 0, version)
    return "" if (back, pos) == (message, len(ours)) else f"{item} {version}: we read {back}"


def test_every_field_set(judge: Judge) -> None:
    checked = list(cases())
    assert len(checked) == 744
    found = [mismatch(judge, item, version, make(item, version, "full")) for item, version in checked]
    assert [line for line in found if line] == []


def test_everything_null_or_empty(judge: Judge) -> None:
    found = [mismatch(judge, item, version, make(item, version, "empty")) for item, version in cases()]
    assert [line for line in found if line] == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_values(judge: Judge, seed: int) -> None:
    found = [mismatch(judge, item, version, make(item, version, "random", seed)) for item, version in cases()]
    assert [line for line in found if line] == []


@pytest.mark.parametrize("style", ["full", "empty", "random"])
def test_the_json_form_of_what_is_stored_is_the_same_text(judge: Judge, style: Style) -> None:
    """The text is that of `json_form`, which `pykbroker dump-log` prints."""
    stored = [(item, version) for item, version in cases() if item.message.home or item.message.kind == "data"]
    assert len(stored) > 100
    for item, version in stored:
        message = make(item, version, style, SEED)
        theirs = judge.json_text(item, version, message.encode_bytes(version))
        assert render(json_form.to_json(message, version)) == theirs, (item, version)


@pytest.mark.parametrize("style", ["full", "empty", "random"])
def test_the_json_form_of_requests_and_responses_is_the_same_text(judge: Judge, style: Style) -> None:
    """The text is that of the request log, which contains only the size of records."""
    asked = [(item, version) for item, version in cases() if item.message.kind in ("request", "response")]
    assert len(asked) > 500
    for item, version in asked:
        message = make(item, version, style, SEED)
        theirs = judge.json_text(item, version, message.encode_bytes(version))
        assert render(json_form.to_json(message, version, fields=MESSAGE_FIELDS)) == theirs, (item, version)


def test_defaults(judge: Judge) -> None:
    """A message without any set field gives the same bytes, or both refuse to write it in that version."""
    for item, version in cases():
        theirs = judge.ask(f"default {judge.java_class(item)} {version}")
        try:
            assert theirs == item.cls().encode_bytes(version).hex(), (item, version)
        except EncodeError:
            assert theirs.startswith("!"), (item, version)


def attempt(item: Entry, version: int, data: bytes) -> tuple[TopLevel | None, int, str]:
    try:
        message, pos = item.cls.decode(memoryview(data), 0, version)
    except DecodeError as error:
        return None, len(data), str(error)
    return message, pos, ""


def one_replacement(value: Any) -> Any:
    """Return the JSON with one replacement character for several, because Java and Python decode some damaged texts to
    different numbers of them."""
    if isinstance(value, str):
        return re.sub("\ufffd+", "\ufffd", value)
    if isinstance(value, list):
        return [one_replacement(each) for each in value]
    return {key: one_replacement(each) for key, each in value.items()} if isinstance(value, dict) else value


def test_broken_bytes_get_the_same_verdict(judge: Judge) -> None:
    """Both read the bytes with the same result, or both refuse them. If we are stricter, the reason is one of two."""
    rng = random.Random(SEED)
    read = refused = 0
    for item, version in cases():
        whole = make(item, version, "random", rng.randrange(1_000)).encode_bytes(version)[:300]
        for data in mutations(rng, whole, 10):
            message, pos, error = attempt(item, version, data)
            again, json = judge.read(item, version, data[:pos])
            if message is None:
                # Kafka does not compare a tagged field with its declared size, and reads 2^31 tags and more as none.
                lenient = "another size" in error or "tagged fields" in error
                assert again.startswith("!") or lenient, (item, version, data.hex(), error)
                refused += 1
            else:
                # Kafka keeps tagged fields that it does not know; its JSON leaves them out.
                assert not again.startswith("!"), (item, version, data.hex(), again)
                ours = to_json(item, message, version, records=False)
                assert one_replacement(json) == one_replacement(ours), (item, version, data.hex())
                read += 1
    assert min(read, refused) > 1_000


def test_error_codes(judge: Judge) -> None:
    theirs = judge.ask("errors").split(" ")
    assert theirs == [f"{int(code)}:{code.name}:{str(code.retriable).lower()}" for code in ErrorCode]
