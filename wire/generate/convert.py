"""From the message definitions (JSON) in Apache Kafka's released jars to our schema files.

Takes over the facts (names, types, versions, tags, defaults, listeners) and never the descriptions. Run for every new
Kafka version; a reviewer reads the diff of `wire/schemas`.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from generate.schema import Field, Message, SchemaError, Struct, Versions

POM = Path(__file__).with_name("pom.xml")
"""It names only the jars of HOMES, so a release can be taken over even if other jars of it are missing."""

# Jar (by its name without version) -> the home of the records that are stored on disk.
HOMES = {
    "kafka-clients": "",
    "kafka-metadata": "metadata",
    "kafka-group-coordinator": "group",
    "kafka-transaction-coordinator": "transaction",
    "kafka-share-coordinator": "share",
    "kafka-storage": "storage",
    "kafka-raft": "raft",
}

_COMMENT_LINE = re.compile(r"^\s*//.*$", re.MULTILINE)
_COMMENT_TAIL = re.compile(r"\s//[^\"\n]*$", re.MULTILINE)

_KNOWN_KEYS = {
    "name", "type", "versions", "about", "fields", "default", "nullableVersions", "entityType", "ignorable", "mapKey",
    "taggedVersions", "tag", "zeroCopy", "flexibleVersions",
}  # fmt: skip
_KNOWN_HEAD = {
    "name", "type", "apiKey", "validVersions", "flexibleVersions", "fields", "commonStructs", "listeners",
    "latestVersionUnstable", "deprecatedVersions",
}  # fmt: skip


def read_json(text: str) -> dict[str, Any]:
    """Parse Kafka's JSON, whose comment lines the standard library's reader refuses."""
    loaded: dict[str, Any] = json.loads(_COMMENT_TAIL.sub("", _COMMENT_LINE.sub("", text)))
    return loaded


def _default(value: object) -> str:
    # JSON null means that there is no default; the string "null" means that the default is null.
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # The zero of a type is its default anyway.
    return "" if text in ("0", "false") else text


def _field(raw: dict[str, Any]) -> Field:
    unknown = raw.keys() - _KNOWN_KEYS
    if unknown:
        raise SchemaError(f"field {raw['name']}: unknown keys {sorted(unknown)}: teach the converter what they mean")
    tagged = Versions.parse(raw.get("taggedVersions") or "none")
    versions = Versions.parse(raw["versions"]) if "versions" in raw else tagged
    kind: str = raw["type"]
    nullable = Versions.parse(raw.get("nullableVersions") or "none") & versions
    flexible = raw.get("flexibleVersions")
    return Field(
        name=raw["name"],
        type=kind.removeprefix("[]"),
        versions=versions,
        array=kind.startswith("[]"),
        nullable=nullable,
        default=_default(raw.get("default")),
        tag=raw.get("tag"),
        tagged=tagged,
        ignorable=bool(raw.get("ignorable", False)),
        map_key=bool(raw.get("mapKey", False)),
        flexible=Versions.parse(flexible) if flexible else None,
        fields=[_field(inner) for inner in raw["fields"]] if raw.get("fields") else None,
    )


def message_from_json(raw: dict[str, Any], home: str) -> Message:
    unknown = raw.keys() - _KNOWN_HEAD
    if unknown:
        raise SchemaError(f"{raw['name']}: unknown keys {sorted(unknown)}: teach the converter what they mean")
    return Message(
        name=raw["name"],
        kind=raw["type"],
        key=raw.get("apiKey"),
        versions=Versions.parse(raw["validVersions"]),
        flexible=Versions.parse(raw.get("flexibleVersions") or "none"),
        listeners=tuple(raw.get("listeners") or ()),
        latest_unstable=bool(raw.get("latestVersionUnstable", False)),
        home=home,
        fields=[_field(item) for item in raw.get("fields", ())],
        structs=[
            Struct(item["name"], Versions.parse(item["versions"]), [_field(inner) for inner in item["fields"]])
            for item in raw.get("commonStructs", ())
        ],
    )


def resolve(version: str, cache: Path) -> Path:
    """Let Maven copy the jars of HOMES of a release into a folder below `cache`; return the folder."""
    if shutil.which("mvn") is None:
        raise SchemaError("mvn is missing, which resolves Apache Kafka's jars")
    folder = cache / f"kafka-{version}" / "definitions"
    cache.mkdir(exist_ok=True)
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-Dkafka.version={version}", "dependency:copy-dependencies"]
    # One download at a time, those of the compat tests included: two into Maven's own folder damage each other's files.
    with (cache / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([*command, f"-DoutputDirectory={folder}"], stdin=subprocess.DEVNULL, timeout=900)  # noqa: S603  # Maven, by a developer
    if done.returncode != 0:
        raise SchemaError(f"Maven could not resolve {POM.name} for Apache Kafka {version}")
    return folder


def jars(libs: Path) -> dict[str, Path]:
    """Return the jars with message definitions, by name without version. Raises SchemaError if one is missing."""
    found: dict[str, Path] = {}
    for path in sorted(libs.glob("kafka-*.jar")):
        match = re.match(r"(kafka-[a-z-]+?)-(\d[\w.]*)\.jar$", path.name)
        if match and match[1] in HOMES:
            found[match[1]] = path
    missing = HOMES.keys() - found.keys()
    if missing:
        raise SchemaError(f"{libs} lacks {sorted(missing)}")
    return found


def kafka_version(libs: Path) -> str:
    return jars(libs)["kafka-clients"].name.removeprefix("kafka-clients-").removesuffix(".jar")


def definitions(libs: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return every message definition in the jars: name -> (home, the raw JSON)."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for jar, path in jars(libs).items():
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                if not re.search(r"(^|/)(message|metadata)/\w+\.json$", entry):
                    continue
                raw = read_json(archive.read(entry).decode())
                if raw["name"] in found:
                    raise SchemaError(f"two definitions of {raw['name']}")
                found[raw["name"]] = (HOMES[jar], raw)
    return found


def convert(libs: Path) -> dict[str, Message]:
    return {name: message_from_json(raw, home) for name, (home, raw) in sorted(definitions(libs).items())}
