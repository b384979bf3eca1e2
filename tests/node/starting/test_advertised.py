"""Listeners without a host: the host that is advertised for them, and the files and log lines of a node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from pykbroker.config.load import load
from pykbroker.node.advertised import NoNameError, advertise, with_name, without_name
from pykbroker.node.node import Node
from pykbroker.node.shared import StartError
from pykbroker.node.start_options import StartOptions
from pykbroker.storage.bare_directories import check_metadata
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_worlds.simulated.world import SimWorld
from tests.simulation.test_cluster_faults import until

BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "controller.quorum.bootstrap.servers": "controller.example.org:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092",
}
COMBINED = {
    **BROKER,
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,OTHER://here:9095,CONTROLLER://0.0.0.0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "/data",
}


async def nothing_is_asked() -> str:
    raise AssertionError("the name of the machine is not needed")


def test_listeners_without_a_host_get_the_name_and_the_others_keep_theirs() -> None:
    done = with_name(load(COMBINED).listeners, "m.example.org")
    assert [str(point) for point in (*done.broker, *done.controller)] == [
        "PLAINTEXT://m.example.org:9092",
        "OTHER://here:9095",
        "CONTROLLER://m.example.org:9093",
    ]
    assert done.notes == (
        "PLAINTEXT: resolved wildcard host to m.example.org",
        "CONTROLLER: resolved wildcard host to m.example.org",
    )
    assert done.warning is None


def test_a_machine_without_a_name_advertises_localhost_to_clients() -> None:
    done = without_name(load(BROKER).listeners, "m: Name or service not known")
    assert [str(point) for point in done.broker] == ["PLAINTEXT://localhost:9092"]
    assert done.warning == (
        "The listener PLAINTEXT has no host, and the name of this machine cannot be resolved (m: Name or service not "
        "known). Clients get the address localhost, which only clients on this machine can use. Set "
        "advertised.listeners"
    )


def test_a_machine_without_a_name_has_no_controller() -> None:
    with pytest.raises(NoNameError, match=r"listener CONTROLLER of this controller has no host .*\(no answer\)"):
        without_name(load(COMBINED).listeners, "no answer")


@pytest.mark.parametrize(
    "written",
    [
        {"listeners": "PLAINTEXT://here:9092,CONTROLLER://here:9093"},
        {"advertised.listeners": "PLAINTEXT://here:9092,OTHER://here:9095,CONTROLLER://here:9093"},
        {
            "listeners": "PLAINTEXT://here:9092,CONTROLLER://:9093",
            "controller.quorum.voters": "1@here:9093",
            "controller.quorum.bootstrap.servers": "",
        },
    ],
)
def test_nothing_is_resolved_if_every_host_is_written(written: dict[str, str]) -> None:
    done = asyncio.run(advertise(load(COMBINED | written).listeners, nothing_is_asked))
    assert {point.host for point in (*done.broker, *done.controller)} == {"here"}
    assert (done.notes, done.warning) == ((), None)


# -- a node -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[SimWorld]:
    made = SimWorld(1)
    yield made
    made.end()


def started(world: SimWorld, disk: MemoryDisk, known_as: str | None, properties: Mapping[str, str] = COMBINED) -> Node:
    runtime = world.runtime(f"node {known_as}", disk)
    runtime.known_as = known_as
    node = Node(load(properties), runtime, options=StartOptions(may_format=True))
    world.loop.run_until_complete(asyncio.wait_for(node.start(), 1000))
    return node


def test_the_name_is_in_the_voter_set_and_in_both_registrations(world: SimWorld) -> None:
    """A node whose machine was renamed writes the new name, once."""
    disk = MemoryDisk(record=False, clock=world.now_ms)
    for name in ("m.example.org", "renamed.example.org"):
        node = started(world, disk, name)
        (voter,) = node.shared.quorum.voters
        assert [(endpoint.listener, endpoint.host) for endpoint in voter.endpoints] == [("CONTROLLER", name)]
        registered = node.loader.image.brokers[1].endpoints
        assert {each.name: each.host for each in registered.values()} == {"PLAINTEXT": name, "OTHER": "here"}

        def is_registered(node: Node = node, name: str = name) -> bool:
            controller = node.loader.image.controllers.get(1)
            return controller is not None and {each.host for each in controller.endpoints.values()} == {name}

        world.loop.run_until_complete(until(is_registered))
        # Programs on this machine find the listener without its name.
        assert node.bootstrap_servers == "localhost:9092"
        world.loop.run_until_complete(node.stop())


def test_a_controller_without_a_name_does_not_start_and_leaves_its_directory_alone(world: SimWorld) -> None:
    disk = MemoryDisk(record=False, clock=world.now_ms)
    with pytest.raises(StartError, match=r"listener CONTROLLER .* cannot be resolved \(no names here\)"):
        started(world, disk, None)
    assert not disk.exists("/data")


def test_a_broker_without_a_name_warns_once_and_is_at_localhost(
    world: SimWorld, caplog: pytest.LogCaptureFixture
) -> None:
    properties = COMBINED | {"advertised.listeners": "PLAINTEXT://:9092,OTHER://[::]:9095,CONTROLLER://here:9093"}
    disk = MemoryDisk(record=False, clock=world.now_ms)
    with caplog.at_level(logging.WARNING):
        node = started(world, disk, None, properties)
    registered = node.loader.image.brokers[1].endpoints
    assert {each.host for each in registered.values()} == {"localhost"}
    warnings = [record.message for record in caplog.records if "has no host" in record.message]
    warnings += [record.message for record in caplog.records if "have no host" in record.message]
    assert len(warnings) == 1
    assert warnings[0].startswith("The listeners PLAINTEXT and OTHER have no host")
    world.loop.run_until_complete(node.stop())


@pytest.mark.parametrize(
    ("servers", "is_refused"),
    [("localhost:9093", True), ("m.example.org:9093", True), ("localhost:9093,other:9093", False)],
)
def test_replicas_without_metadata_stop_a_quorum_of_one_on_every_address(servers: str, is_refused: bool) -> None:
    config = load(COMBINED | {"controller.quorum.bootstrap.servers": servers})
    log_dirs = [cast(LogDir, SimpleNamespace(path="/data", folders=SimpleNamespace(partitions={("t", 0): None})))]
    controllers = with_name(config.listeners, "m.example.org").controller
    refused = pytest.raises(StartError, match="has no records") if is_refused else nullcontext()
    with refused:
        check_metadata(MemoryDisk(record=False), config, log_dirs, controllers)


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("PLAINTEXT://0.0.0.0:9092,CONTROLLER://h:9093", "localhost:9092"),
        ("PLAINTEXT://[::]:9092,CONTROLLER://h:9093", "localhost:9092"),
        ("PLAINTEXT://[::1]:9092,CONTROLLER://h:9093", "[::1]:9092"),
    ],
)
def test_the_ready_line_has_an_address_that_this_machine_can_connect_to(
    world: SimWorld, listeners: str, expected: str
) -> None:
    properties = COMBINED | {"listeners": listeners, "advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093"}
    runtime = world.runtime("node", MemoryDisk(record=False, clock=world.now_ms))
    assert Node(load(properties), runtime).bootstrap_servers == expected


def test_the_ready_line_of_a_controller_has_hosts(world: SimWorld) -> None:
    properties = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    runtime = world.runtime("node", MemoryDisk(record=False, clock=world.now_ms))
    assert Node(load(properties), runtime).bootstrap_servers == "localhost:9093"
