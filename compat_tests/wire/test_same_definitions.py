"""Our schemas agree with the definitions in Apache Kafka's jars, which are read here again without the converter's
model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from generate import convert, project
from generate.__main__ import main
from generate.schema import Field, Message
from pykbroker.api.reference import earlier_versions
from pykbroker_wire.apis import APIS
from testkit import needs
from testkit.messages.catalogue import WIRE, schemas
from testkit.oracle.kafka import KAFKA, NEWEST, kafka_libs

ZERO = {"bool": "false", "string": "", "bytes": "", "records": "null", "uuid": ""}


def versions(text: str | None) -> set[int]:
    """Return the versions in one of Kafka's ranges; none goes beyond 40."""
    if not text or text == "none":
        return set()
    low, _, high = text.partition("-")
    return set(range(int(low.removesuffix("+")), (40 if low.endswith("+") else int(high or low)) + 1))


def kafka_default(raw: dict[str, Any]) -> str:
    value = raw.get("default")
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text or implied(raw["type"])


def implied(kind: str) -> str:
    return "" if kind.startswith("[]") or kind[0].isupper() else ZERO.get(kind, "0")


def our_default(item: Field) -> str:
    return item.default or implied(f"[]{item.type}" if item.array else item.type)


def differences(where: str, theirs: dict[str, Any], ours: Field) -> Iterator[str]:
    kind = f"[]{ours.type}" if ours.array else ours.type
    present = versions(theirs.get("versions") or theirs.get("taggedVersions"))
    facts = {
        "name": (theirs["name"], ours.name),
        "type": (theirs["type"], kind),
        "versions": (present, versions(str(ours.versions))),
        "nullable": (versions(theirs.get("nullableVersions")) & present, versions(str(ours.nullable))),
        "default": (kafka_default(theirs), our_default(ours)),
        "tag": (theirs.get("tag"), ours.tag),
        "tagged": (versions(theirs.get("taggedVersions")), versions(str(ours.tagged))),
        "ignorable": (bool(theirs.get("ignorable")), ours.ignorable),
        "map key": (bool(theirs.get("mapKey")), ours.map_key),
        "flexible": (theirs.get("flexibleVersions"), None if ours.flexible is None else str(ours.flexible)),
    }
    for word, (wanted, found) in facts.items():
        if wanted != found:
            yield f"{where}: {word} is {wanted} in Kafka, {found} here"
    yield from field_differences(where, theirs.get("fields") or [], ours.fields or [])


def field_differences(where: str, theirs: list[dict[str, Any]], ours: list[Field]) -> Iterator[str]:
    if len(theirs) != len(ours):
        yield f"{where}: {len(theirs)} fields in Kafka, {len(ours)} here"
    for raw, item in zip(theirs, ours, strict=False):
        yield from differences(f"{where}.{raw['name']}", raw, item)


def message_differences(home: str, theirs: dict[str, Any], ours: Message) -> Iterator[str]:
    name = theirs["name"]
    facts = {
        "kind": (theirs["type"], ours.kind),
        "key": (theirs.get("apiKey"), ours.key),
        "versions": (versions(theirs["validVersions"]), versions(str(ours.versions))),
        "flexible": (versions(theirs.get("flexibleVersions")), versions(str(ours.flexible))),
        "listeners": (tuple(theirs.get("listeners") or ()), ours.listeners),
        "unstable": (bool(theirs.get("latestVersionUnstable")), ours.latest_unstable),
        "home": (home, ours.home),
    }
    for word, (wanted, found) in facts.items():
        if wanted != found:
            yield f"{name}: {word} is {wanted} in Kafka, {found} here"
    yield from field_differences(name, theirs.get("fields") or [], ours.fields)
    structs = theirs.get("commonStructs") or []
    if [item["name"] for item in structs] != [item.name for item in ours.structs]:
        yield f"{name}: other structs"
    for raw, struct in zip(structs, ours.structs, strict=False):
        if versions(raw["versions"]) != versions(str(struct.versions)):
            yield f"{name}: versions of {struct.name}"
        yield from field_differences(f"{name}.{struct.name}", raw["fields"], struct.fields)


def test_every_message_field_and_fact() -> None:
    definitions = convert.definitions(kafka_libs(NEWEST))
    assert len(definitions) == 286
    ours = {message.name: message for message in schemas()}
    assert sorted(definitions) == sorted(ours)
    found = [line for name, (home, raw) in definitions.items() for line in message_differences(home, raw, ours[name])]
    assert found == []


def test_the_schemas_say_which_kafka_they_are_of() -> None:
    assert (WIRE / "schemas" / "KAFKA").read_text().strip() == NEWEST


def test_converting_again_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "schemas", "--libs", str(kafka_libs(NEWEST))]) == 0, capsys.readouterr()


def test_schemas_made_from_the_jars_of_the_newest_release_are_the_repositorys() -> None:
    """The command is that of `make schemas`, jars included."""
    command = [sys.executable, str(WIRE / "generate"), "--check", "schemas", "--kafka", NEWEST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_earlier_release_gives_schemas(tmp_path: Path) -> None:
    """Only the jars with message definitions are resolved."""
    made = project.schema_files(convert.convert(convert.resolve(KAFKA, needs.CACHE)), KAFKA)
    assert project.write(tmp_path, made, set(), check=False)
    release = project.load(tmp_path)
    assert {message.name for message in schemas()} > {message.name for message in release}
    assert "apis.py" in project.generated_files(release)


def latest_if_unstable(raw: dict[str, Any]) -> set[int]:
    """Return the latest version if brokers do not advertise it."""
    return {max(versions(raw["validVersions"]))} if raw.get("latestVersionUnstable") else set()


def test_the_page_of_apis_says_the_versions_of_the_earlier_release() -> None:
    earlier = {
        int(raw["apiKey"]): versions(raw["validVersions"]) - latest_if_unstable(raw)
        for _, raw in convert.definitions(kafka_libs(KAFKA)).values()
        if raw["type"] == "request" and raw["validVersions"] != "none"
    }
    found = {int(key): earlier_versions(key) for key in APIS}
    assert {key: set(range(low, high + 1)) for key, (low, high) in found.items() if high >= 0} == earlier


def test_a_difference_would_be_found() -> None:
    """Test the comparison itself, with one fact changed at a time."""
    home, raw = convert.definitions(kafka_libs(NEWEST))["MetadataRequest"]
    ours = convert.message_from_json(raw, home)
    assert list(message_differences(home, raw, ours)) == []
    ours.fields[0].nullable = ours.fields[0].versions
    ours.fields[1].default = ""
    ours.fields[2].ignorable = not ours.fields[2].ignorable
    assert len(list(message_differences(home, raw, ours))) == 3
