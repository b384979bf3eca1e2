"""Testcontainers for Java: its Kafka modules, from a JUnit test that is compiled at test time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.built import java_classes
from compat_tests.container.testcontainers.conftest import OutputOf
from testkit.oracle.kafka import TOOL_JVM, java_command

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent / "java"


def test_java_modules(tagged: str, output_of: OutputOf, tmp_path: Path) -> None:
    """KafkaContainer, also with one more listener, ConfluentKafkaContainer, and the deprecated one in both modes."""
    command = java_command(
        "org.junit.platform.console.ConsoleLauncher",
        # Testcontainers writes a file into the home of its user.
        jvm=[*TOOL_JVM, f"-Dimage={tagged}", f"-Duser.home={tmp_path}"],
        extra_classpath=java_classes(HERE / "StockModulesTest.java", pom=HERE / "pom.xml"),
    )
    options = ["--select-class", "StockModulesTest", "--disable-banner", "--disable-ansi-colors"]
    said = output_of([*command, "execute", *options])
    assert re.findall(r"\[ +(\d+) tests (successful|failed) +\]", said) == [("5", "successful"), ("0", "failed")], said
