"""The one JVM of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.kafka_classes.kafka_classes import kafka_classes
from compat_tests.remote import Program
from testkit import needs


@pytest.fixture(scope="session")
def kafka() -> Iterator[Program]:
    """Apache Kafka's classes. They judge our own, whichever broker is under test."""
    needs.java()
    with kafka_classes() as program:
        yield program
