"""Clusters that the tests of this folder share, each for a module, because a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from testkit import needs
from testkit.oracle.kafka import kafka_libs

NewCluster = Callable[..., Cluster]


@pytest.fixture(scope="module")
def new_cluster(against: str) -> Iterator[NewCluster]:
    """`new_cluster({1: Member("kafka"), 2: Member("pykbroker")})` returns a formatted cluster (`words`: further
    arguments for the command that formats). It ends at the latest with the module.

    With `--against apache-kafka` every member is one of Apache Kafka.
    """
    needs.java()
    kafka_libs()
    made: list[Cluster] = []

    def make(members: Mapping[int, Member], *words: str, own_tools: bool = False, **options: Any) -> Cluster:
        if against == "apache-kafka":
            members = {number: Member("kafka", member.roles) for number, member in members.items()}
        cluster = Cluster(members, **options)
        made.append(cluster)
        cluster.format(*words, own_tools=own_tools)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the ends of the nodes' logs for a failure."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Cluster):
                report.sections.append(("the nodes' logs", value.tails()))


__all__ = ["Kind", "NewCluster"]
