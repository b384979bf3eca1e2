"""A JVM with Apache Kafka's generated message classes that answers line by line, and the JSON form of our messages for
it."""

from __future__ import annotations

import base64
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from generate.layout import Class, snake
from generate.schema import Field
from pykbroker_wire.primitives import TopLevel, uuid_to_str
from testkit import needs
from testkit.messages.catalogue import Entry
from testkit.oracle.kafka import NEWEST, kafka_libs

SOURCE = Path(__file__).with_name("java") / "Judge.java"


class Judge:
    def __init__(self, folder: Path) -> None:
        libs = kafka_libs(NEWEST)
        classpath = f"{folder}:{libs}/*"
        subprocess.run(
            [needs.program("javac"), "-cp", classpath, "-d", str(folder), str(SOURCE)],
            check=True,
            capture_output=True,
            timeout=120,
        )
        self._classes = _generated_classes(libs)
        self._process = subprocess.Popen(
            [needs.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath, "Judge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the judge is gone")
        return answer[:-1]

    def java_class(self, item: Entry) -> str:
        name = item.message.name
        return self._classes[name + "Data" if item.message.kind in ("request", "response", "header") else name]

    def write(self, item: Entry, version: int, message: TopLevel) -> str:
        """Return the bytes, in hex, that Kafka writes for the JSON form of our message."""
        text = json.dumps(to_json(item, message, version), ensure_ascii=True)
        return self.ask(f"write {self.java_class(item)} {version} {text}")

    def read(self, item: Entry, version: int, data: bytes) -> tuple[str, Any]:
        """Return what Kafka reads from our bytes, written again in hex, and as JSON."""
        answer = self.ask(f"read {self.java_class(item)} {version} {data.hex()}")
        if answer.startswith("!"):
            return answer, None
        again, _, text = answer.partition("\t")
        return again, json.loads(text)

    def json_text(self, item: Entry, version: int, data: bytes) -> str:
        """Return the text of Kafka's JSON form of these bytes."""
        answer = self.ask(f"read {self.java_class(item)} {version} {data.hex()}")
        assert not answer.startswith("!"), answer
        return answer.partition("\t")[2]

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _generated_classes(libs: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for jar in sorted(libs.glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith("JsonConverter.class") and "$" not in entry:
                    name = entry.removesuffix("JsonConverter.class").replace("/", ".")
                    found[name.rpartition(".")[2]] = name
    return found


def to_json(item: Entry, message: TopLevel, version: int, *, records: bool = True) -> dict[str, Any]:
    """Return the message as Kafka's JsonConverters write it. They leave out the contents of records; so do we with
    `records=False`."""
    return _struct(item, item.top, message, version, records)


def _struct(item: Entry, cls: Class, value: Any, version: int, records: bool) -> dict[str, Any]:
    flexible = version in item.message.flexible
    found = {}
    for field in cls.fields:
        if version not in field.versions:
            continue
        name = field.name[0].lower() + field.name[1:]
        one = getattr(value, _attribute(field))
        if version in field.tagged and (not flexible or _is_default(cls, field, one, item)):
            continue
        if field.array and one is not None:
            found[name] = [_value(item, cls, field, element, version, records) for element in one]
        else:
            found[name] = _value(item, cls, field, one, version, records)
    return found


def _attribute(field: Field) -> str:
    return snake(field.name)


def _is_default(cls: Class, field: Field, value: Any, item: Entry) -> bool:
    owner = getattr(item.module, cls.name)()
    return bool(getattr(owner, _attribute(field)) == value)


def _value(item: Entry, cls: Class, field: Field, value: Any, version: int, records: bool) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return _struct(item, cls.structs[field.type], value, version, records)
    match field.type:
        case "bytes":
            return base64.b64encode(value).decode()
        case "records":
            return base64.b64encode(value).decode() if records else ""
        case "uuid":
            return uuid_to_str(value)
        case _:
            return value
