"""The two clusters of this folder, three JVMs and three processes of the broker under test, started once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.mixed_cluster.members import Kind
from compat_tests.three_nodes.clusters import Both, started
from testkit import needs
from testkit.oracle.kafka import kafka_libs


@pytest.fixture(scope="package")
def both(against: str) -> Iterator[Both]:
    """Yield Apache Kafka and the broker under test. With `--against apache-kafka` Apache Kafka is compared with
    itself."""
    needs.java()
    kafka_libs()
    kind: Kind = "kafka" if against == "apache-kafka" else "pykbroker"
    with started(kind) as both:
        yield both
        assert not both.ours.complaints(), both.ours.tails(100)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """After a failure, show the ends of the logs of the tested nodes."""
    outcome: Any = yield
    report = outcome.get_result()
    both = getattr(item, "funcargs", {}).get("both")
    if report.failed and isinstance(both, Both):
        report.sections.append(("the tested nodes' logs", both.ours.tails()))
