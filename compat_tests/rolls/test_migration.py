"""Apache Kafka becomes pykbroker node by node, and Apache Kafka again, while clients work.

Idempotent and transactional producers, groups of both protocols and the Java clients go on with their defaults, and in
a long run share groups, Kafka Streams and Kafka Connect, too. Nothing is lost, doubled or out of order, and no
application is told of an error. Commits that a coordinator refused because it loads or has moved are counted and
forgiven, because Apache Kafka may have answered them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import fields
from itertools import combinations, product
from pathlib import Path

import pytest

from compat_tests.mixed_cluster.members import Cluster, Member
from compat_tests.rolls.applications import Applications
from compat_tests.rolls.configurations import CONFIGURATIONS, Configuration
from compat_tests.rolls.load import LOADS, MOVED, Access, JavaLoad, Load
from compat_tests.rolls.roll import Roll, next_node
from compat_tests.rolls.ways_in import let_alice_in, make_cluster, reached
from testkit import needs
from testkit.clients import wait_until
from testkit.oracle.kafka import kafka_libs

#: One of each shape, of each way and of each release. Each takes five minutes of a worker on a slow machine.
IN_CI = (CONFIGURATIONS[0], CONFIGURATIONS[2])


@pytest.fixture
def configuration(request: pytest.FixtureRequest) -> Configuration:
    found: Configuration = request.param
    return found


@pytest.fixture
def cluster(configuration: Configuration) -> Iterator[Cluster]:
    needs.java()
    kafka_libs(configuration.release)
    with make_cluster(configuration) as cluster:
        yield cluster


@pytest.fixture
def ways_in(cluster: Cluster, configuration: Configuration) -> Iterator[tuple[Access, Access]]:
    with reached(cluster, configuration) as found:
        yield found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("configuration", IN_CI, ids=str, indirect=True)
def test_every_node_goes_there_and_back(
    configuration: Configuration, cluster: Cluster, ways_in: tuple[Access, Access], tmp_path: Path
) -> None:
    _there_and_back(configuration, cluster, ways_in, tmp_path, has_applications=False)


@pytest.mark.long(amount="there and back, with a kill and a step back")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str, indirect=True)
def test_applications_go_on_while_every_node_goes_there_and_back(
    configuration: Configuration, cluster: Cluster, ways_in: tuple[Access, Access], tmp_path: Path
) -> None:
    _there_and_back(configuration, cluster, ways_in, tmp_path, has_applications=True)


def _there_and_back(
    configuration: Configuration,
    cluster: Cluster,
    ways_in: tuple[Access, Access],
    folder: Path,
    *,
    has_applications: bool,
) -> None:
    access, plain = ways_in
    cluster.start_all()
    cluster.serving(*cluster.numbers)
    if configuration.secured:
        let_alice_in(cluster)
    with ExitStack() as stack:
        load = stack.enter_context(closing(Load(cluster, access)))
        java = stack.enter_context(closing(JavaLoad(cluster, folder, access)))
        applications = stack.enter_context(closing(Applications(cluster, plain, folder))) if has_applications else None
        roll = stack.enter_context(closing(Roll(configuration, cluster, load, applications)))
        load.goes_on()
        wait_until(java.read, "the Java clients work")
        roll.go("pykbroker", troubled=True)
        roll.go("kafka")
        print(roll.told())
        print(f"{load.forgive(LOADS, MOVED)} commits of librdkafka were refused by a coordinator that loads or moved")
        roll.finish()
        load.finish()
        java.finish()
        if applications is not None:
            applications.finish()
    assert not cluster.complaints()


def test_every_pair_of_choices_is_in_a_configuration() -> None:
    names = [field.name for field in fields(Configuration)]
    for one, other in combinations(names, 2):
        chosen = {(getattr(each, one), getattr(each, other)) for each in CONFIGURATIONS}
        firsts, seconds = ({getattr(each, name) for each in CONFIGURATIONS} for name in (one, other))
        assert chosen == set(product(firsts, seconds)), (one, other)


@pytest.mark.parametrize(("new_controllers", "expected"), [(False, [1, 3, 2, 11]), (True, [1, 3, 11, 2])])
def test_controllers_go_first_and_the_active_one_last(new_controllers: bool, expected: list[int]) -> None:
    members = {11: Member("kafka", "broker"), **{number: Member("kafka", "controller") for number in (1, 2, 3)}}
    order = []
    while (number := next_node(members, 2, "pykbroker", new_controllers=new_controllers)) is not None:
        order.append(number)
        members[number] = Member("pykbroker", members[number].roles)
    assert order == expected
    assert next_node({1: Member("kafka"), 2: Member("kafka")}, 1, "pykbroker") == 2
