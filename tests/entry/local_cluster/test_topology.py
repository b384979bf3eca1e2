"""The nodes of a cluster on one machine, and the configuration that each gets."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.entry.local_cluster.topology import (
    CONTROLLERS_BEHIND,
    Layout,
    bootstrap_servers,
    client_ports,
    grown,
    layout_from_json,
    new_layout,
    properties_of,
)


def ids() -> Callable[[], bytes]:
    numbers = itertools.count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def ports() -> Callable[[], int]:
    numbers = itertools.count(40_000)
    return lambda: next(numbers)


def layout(brokers: int, controllers: int = 0, port: int = 9092) -> Layout:
    return new_layout(brokers, controllers, port, ids(), ports())


@pytest.mark.parametrize(
    ("brokers", "controllers", "roles"),
    [
        (1, 0, {1: "broker,controller"}),
        # Two voters are worse than one: either's death stops both.
        (2, 0, {1: "broker,controller", 2: "broker"}),
        (3, 0, dict.fromkeys((1, 2, 3), "broker,controller")),
        (4, 0, {**dict.fromkeys((1, 2, 3), "broker,controller"), 4: "broker"}),
        (2, 1, {1: "broker", 2: "broker", CONTROLLERS_BEHIND + 1: "controller"}),
    ],
)
def test_roles(brokers: int, controllers: int, roles: dict[int, str]) -> None:
    assert {member.number: member.roles for member in layout(brokers, controllers).members} == roles


@given(
    brokers=st.integers(1, 12),
    controllers=st.integers(0, 5),
    port=st.sampled_from([0, 1, 9092, 55_000, 65_500]),
    more=st.integers(0, 4),
)
def test_a_cluster_is_what_its_file_says_and_only_grows(brokers: int, controllers: int, port: int, more: int) -> None:
    first = layout(brokers, controllers, port)
    assert layout_from_json(first.to_json(), "cluster.json") == first
    now = grown(first, brokers + more, controllers, port, "tree")
    assert now.voters == first.voters
    assert now.members[:brokers] == first.members[:brokers]
    assert [member.number for member in now.brokers] == list(range(1, brokers + more + 1))
    assert grown(now, brokers + more, 0, port, "tree") == now
    only_brokers, voters = now.stop_order()
    assert {member.controller_port is not None for member in voters} == {True}
    assert all(member.controller_port is None for member in only_brokers)
    assert len(only_brokers) + len(voters) == len(now.members)
    found = client_ports(now, port, ports())
    taken = [*found.values(), *(member.controller_port for member in now.members if member.controller_port)]
    if port:
        assert len(set(taken)) == len(taken)
        assert all(0 < each <= 65_535 for each in taken)


def test_a_controller_whose_usual_port_is_taken_gets_a_free_one() -> None:
    """No user has named that port. A free port that a broker is to have for clients is passed over."""
    taken = {49_999, 50_001}
    found = new_layout(3, 0, 39_999, ids(), ports(), is_taken=taken.__contains__)
    assert [member.controller_port for member in found.members] == [40_002, 50_000, 40_003]


def test_what_a_node_is_told_is_a_configuration() -> None:
    four = layout(4)
    found = client_ports(four, 9092, ports())
    assert bootstrap_servers(found) == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9095"
    told = [load(properties_of(four, member, "/tree", found, {"num.partitions": "7"})) for member in four.members]
    assert [config.node_id for config in told] == [1, 2, 3, 4]
    assert [config.is_controller for config in told] == [True, True, True, False]
    assert {config.int("num.partitions") for config in told} == {7}
    assert {config.int("default.replication.factor") for config in told} == {3}
    assert told[3].log_dirs == ("/tree/node-4/data",)
    with pytest.raises(ConfigError, match=r"^node\.id is decided by the cluster"):
        properties_of(four, four.members[0], "/tree", found, {"node.id": "7"})


@pytest.mark.parametrize(
    ("brokers", "controllers", "port", "said"),
    [
        (0, 0, 9092, "--brokers 0: a cluster has at least one broker"),
        (1001, 0, 9092, "--brokers 1001: at most 1000"),
        (1, -1, 9092, "--controllers -1: not below 0"),
        (3, 0, 65_534, "--port 65534: the ports of 3 brokers end beyond 65535"),
        (1, 0, -1, "--port -1"),
    ],
)
def test_what_is_refused(brokers: int, controllers: int, port: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        layout(brokers, controllers, port)
    assert str(caught.value).startswith(said)


def test_what_an_earlier_cluster_cannot_become() -> None:
    with pytest.raises(ConfigError, match=r"The cluster in tree has 3 brokers, and --brokers asks for 2: start all"):
        grown(layout(3), 2, 0, 9092, "tree")
    with pytest.raises(ConfigError, match=r"has 0 controllers of their own, and --controllers asks for 3"):
        grown(layout(3), 3, 3, 9092, "tree")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "cluster.id": "x", "nodes": []}'])
def test_a_file_that_is_no_description(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^cluster\.json does not describe a cluster: "):
        layout_from_json(text, "cluster.json")
