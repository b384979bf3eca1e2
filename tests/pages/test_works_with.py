"""docs/works-with.md says the versions that the tests ask for, and names places that are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testkit.console import page
from testkit.nodes.processes import ROOT
from testkit.project import DEPENDENCIES, requirements

NOT_TRIED = "not tried"
Row = tuple[str, str, str, str]


def rows() -> list[Row]:
    """Program, version, the file that asks for it, and where it is tried."""
    text = page("docs/works-with.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    return [line for line in lines if line[0] != "program"]


def versions(file: str) -> set[tuple[str, str]]:
    """Every package that a file asks for, with the version as the file writes it."""
    text = (ROOT / file).read_text(encoding="utf-8")
    name = Path(file).name
    if name == "pyproject.toml":
        return set(map(split, [*DEPENDENCIES, *(one for asked in requirements().values() for one in asked)]))
    if name == "requirements.txt":
        return {split(line) for line in text.splitlines() if line and not line.startswith("#")}
    if name == "package.json":
        return set(json.loads(text)["dependencies"].items())
    if name == "go.mod":
        return set(re.findall(r"^\t(\S+) (v\S+)$", text, re.MULTILINE))
    assert name == "pom.xml"
    properties = dict(re.findall(r"<([\w.]+)>([^<]+)</\1>", text))
    found = re.findall(
        r"<groupId>([^<]+)</groupId>\s*<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)</version>", text
    )
    return {
        (name, properties.get(version.strip("${}"), version))
        for group, artifact, version in found
        for name in (group, artifact)
    }


def split(requirement: str) -> tuple[str, str]:
    """`faststream[kafka]>=0.6,<1` is faststream in the version `>=0.6,<1`."""
    match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", requirement)
    assert match is not None
    return match[1], match[2].strip()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_version_is_what_the_tests_ask_for(row: Row) -> None:
    program, version, file, place = row
    if version == NOT_TRIED:
        assert (file, place) == ("–", "–")
        return
    if file != "–":
        asked = versions(file)
        (named,) = re.findall(r"\(([^)]+)\)$", program) or [program]
        names = {name for name, _ in asked}
        if named in names or program.partition(" ")[0] in names:
            assert {(named, version), (program.partition(" ")[0], version)} & asked
        else:
            # Apache Kafka itself: every part of it has one version.
            assert program.startswith("Apache Kafka's")
            assert version in {asked_version for name, asked_version in asked if name == "org.apache.kafka"}
    link = re.match(r"\[.*\]\((.*)\)", place)
    assert (ROOT / "docs" / link[1] if link else ROOT / place).exists()


@pytest.mark.parametrize("kind", ["Connect", "Debezium", "Schema Registry", "Flink", "kafka-ui", "AKHQ", "exporter"])
def test_what_people_ask_for_is_answered(kind: str) -> None:
    assert any(kind in program for program, *_ in rows())


def test_what_is_tried_is_on_the_page() -> None:
    """Each client that the compat tests build or install is named."""
    text = page("docs/works-with.md").read_text(encoding="utf-8")
    files = [
        file for pattern in ("go.mod", "package.json", "pom.xml") for file in (ROOT / "compat_tests").rglob(pattern)
    ]
    here = [file.relative_to(ROOT).as_posix() for file in files if "node_modules" not in file.parts]
    # Hadoop's file system under Spark and the parser of Compose files are no clients of a broker.
    missing = [file for file in here if file not in text and "hdfs" not in file and "compose_v2" not in file]
    assert not missing
