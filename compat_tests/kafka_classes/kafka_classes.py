"""One JVM with the classes of Apache Kafka that decide from values alone (java/), called in batches.

Responsible for starting and calling it. Not responsible for the questions, nor for the allowed differences of answers
(differences.py and the tests).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests.built import java_classes
from compat_tests.remote import Program
from testkit.oracle.kafka import TOOL_JVM, java_command

_SOURCES = Path(__file__).with_name("java")
#: The lines of the authorizer's decisions are compared.
_AUDIT = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"


@contextmanager
def kafka_classes() -> Iterator[Program]:
    """`program.ask("changes", steps=[...])`, and the other operations of java/KafkaClasses.java."""
    classes = java_classes(*sorted(_SOURCES.glob("*.java")))
    command = java_command("pykbroker.KafkaClasses", jvm=(*TOOL_JVM, _AUDIT), extra_classpath=classes)
    with tempfile.TemporaryDirectory(prefix="kafka-classes-") as folder:
        program = Program(command, Path(folder) / "log")
        try:
            yield program
        finally:
            program.close()
