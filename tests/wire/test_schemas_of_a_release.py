"""`make schemas KAFKA=X` asks Maven only for the jars with message definitions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

from generate.convert import HOMES, POM

ROOT = Path(__file__).parents[2]
NAMESPACE = {"m": "http://maven.apache.org/POM/4.0.0"}


def test_the_pom_for_schemas_names_the_jars_with_definitions_only() -> None:
    dependencies = ElementTree.parse(POM).getroot().findall(".//m:dependency", NAMESPACE)
    named = [dependency.findtext("m:artifactId", None, NAMESPACE) for dependency in dependencies]
    assert sorted(filter(None, named)) == sorted(HOMES)
    assert "kafka-tools" not in named
    for dependency in dependencies:
        # Otherwise Maven would also fetch the dependencies of the jars.
        assert dependency.findtext("m:exclusions/m:exclusion/m:artifactId", None, NAMESPACE) == "*"


def test_make_schemas_resolves_by_that_pom() -> None:
    command = ["make", "-n", "schemas", "KAFKA=4.4.0"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert "wire/generate schemas --kafka 4.4.0" in said.stdout
    assert "oracle" not in said.stdout
