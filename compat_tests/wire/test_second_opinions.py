"""Second opinions on our bytes, from libraries that read the protocol's definitions without Kafka's generator."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from generate.layout import snake
from testkit.messages.catalogue import PLAIN_STYLES, Entry, cases, entries, make

pytestmark = pytest.mark.slow


def plain(ours: Any, theirs: Any, where: str) -> Iterator[str]:
    """Yield where two values differ, as far as both sides use plain Python for them. kio has types of its own for
    times, topic names and error codes. They compare equal, or are left to the comparison of bytes."""
    if isinstance(ours, list):
        theirs = list(theirs)
        if len(ours) != len(theirs):
            yield f"{where}: {len(ours)} elements, not {len(theirs)}"
        for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from plain(one, other, f"{where}[{number}]")
    elif hasattr(ours, "__slots__"):
        for name in ours.__slots__:
            if hasattr(theirs, name):
                yield from plain(getattr(ours, name), getattr(theirs, name), f"{where}.{name}")
    elif isinstance(theirs, bool | int | str | bytes | float) and ours != theirs:
        yield f"{where}: {ours!r}, not {theirs!r}"


def kio_modules() -> Iterator[tuple[Entry, int, Any]]:
    from importlib import import_module

    for item, version in cases():
        kind = item.message.kind
        stem = snake(item.message.name.removesuffix("Request").removesuffix("Response"))
        if kind not in ("request", "response"):
            continue
        try:
            module = import_module(f"kio.schema.{stem}.v{version}.{kind}")
        except ModuleNotFoundError:
            continue
        yield item, version, getattr(module, item.message.name)


RENAMED = "StreamsGroupHeartbeatResponse.acceptable_recovery_lag:"


def test_kio_reads_and_writes_the_same_bytes() -> None:
    serial = pytest.importorskip("kio.serial")
    found = list(kio_modules())
    assert len(found) > 400
    for item, version, cls in found:
        for style in PLAIN_STYLES:
            message = make(item, version, style)
            data = message.encode_bytes(version)
            theirs, size = serial.entity_reader(cls)(memoryview(data), 0)
            assert size == len(data), (item, version, style)
            # kio has the names of an earlier release.
            different = [line for line in plain(message, theirs, repr(item)) if not line.startswith(RENAMED)]
            assert different == [], (version, style)


def kafka_python_classes() -> dict[str, Any]:
    import importlib
    import pkgutil

    found: dict[str, Any] = {}
    for package in ("admin", "consumer", "metadata", "producer"):
        loaded = importlib.import_module(f"kafka.protocol.{package}")
        for info in pkgutil.iter_modules(loaded.__path__):
            module = importlib.import_module(f"kafka.protocol.{package}.{info.name}")
            for name, value in vars(module).items():
                if isinstance(value, type) and name.endswith(("Request", "Response")):
                    found[name] = value
    return found


def test_kafka_python_reads_and_writes_the_same_bytes() -> None:
    pytest.importorskip("kafka.protocol.api_message")
    classes = kafka_python_classes()
    known = {item.message.name for item in entries()} & classes.keys()
    assert len(known) > 50
    checked = 0
    for item, version in cases():
        cls = classes.get(item.message.name)
        if cls is None or cls.max_version is None or version > cls.max_version:
            continue
        for style in PLAIN_STYLES:
            message: Any = make(item, version, style)
            if item.message.name == "ApiVersionsResponse":
                # With an error it is read as version 0, whatever was requested. That is right on the wire, but not for
                # this test.
                message.error_code = 0
            data = message.encode_bytes(version)
            theirs = cls.decode(io.BytesIO(data), version=version)
            # kio writes only what it made itself, and this attribute is missing on what it has read.
            theirs._header = None
            assert theirs.encode(version=version) == data, (item, version, style)
            checked += 1
    assert checked > 900
