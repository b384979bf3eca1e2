"""The log directories of a node: formatted once, open for one node, and offline without stopping the start."""

from __future__ import annotations

import logging

import pytest

from pykbroker.config.load import development_profile, load
from pykbroker.config.typed_config import Config
from pykbroker.node.node_directories import KeptStop, NodeDirectories
from pykbroker.storage.format import StorageFormatError
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld

DIRECTORIES = "/one,/two"
KEPT = KeptStop(clean=True, broker_epoch=7)


def config() -> Config:
    return load({**development_profile("/one", 0), "log.dirs": DIRECTORIES, "metadata.log.dir": "/one"})


def opened(runtime: SimRuntime, *, may_format: bool = False) -> NodeDirectories:
    directories = NodeDirectories(config(), runtime, runtime.disk)
    directories.open(may_format=may_format)
    return directories


@pytest.fixture
def world() -> SimWorld:
    return SimWorld(1)


def close(world: SimWorld, directories: NodeDirectories) -> None:
    async def scenario() -> None:
        await directories.close(KEPT, 1)

    world.loop.run_until_complete(scenario())


def test_directories_are_formatted_for_one_cluster_and_only_once(world: SimWorld) -> None:
    runtime = world.runtime("node", MemoryDisk())
    with pytest.raises(StorageFormatError):
        opened(runtime)
    first = opened(runtime, may_format=True)
    assert [log_dir.path for log_dir in first.log_dirs] == ["/one", "/two"]
    for log_dir in first.log_dirs:
        # As the first append does.
        log_dir.sign.claim()
    close(world, first)
    again = opened(runtime, may_format=True)
    assert again.formatted.cluster_id == first.formatted.cluster_id
    assert [log_dir.sign.broker_epoch for log_dir in again.log_dirs] == [7, 7]
    close(world, again)


def test_a_directory_belongs_to_one_node_at_a_time(world: SimWorld) -> None:
    runtime = world.runtime("node", MemoryDisk())
    first = opened(runtime, may_format=True)
    with pytest.raises(StorageFormatError, match="log directory /one cannot be used"):
        opened(runtime)
    close(world, first)


def test_a_broken_directory_is_offline_and_that_of_the_metadata_stops_the_start(
    world: SimWorld, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    runtime = world.runtime("node", disk)
    close(world, opened(runtime, may_format=True))
    disk.fail_next("list", path_contains="/two", count=None)
    with caplog.at_level(logging.ERROR):
        directories = opened(runtime)
    assert list(directories.offline) == ["/two"]
    assert [log_dir.offline for log_dir in directories.log_dirs] == [False, True]
    assert "Log directory /two: offline from the start" in caplog.text
    directories.failed("/one")
    assert list(directories.offline) == ["/one", "/two"]
    close(world, directories)
    disk.fail_next("list", path_contains="/one", count=None)
    with pytest.raises(StorageFormatError):
        opened(runtime)
