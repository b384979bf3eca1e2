"""A node that starts with a bad log directory: it starts without it or refuses, as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker.node.shared import StartError
from pykbroker_log.disk import read_file, remove_tree, write_atomic
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.sim import Sim, playing
from tests.simulation.test_disk_faults import STORAGE, in_two_dirs, log_dirs, values

T = TypeVar("T")
Play = Callable[..., Any]
CONFIG = {"log.dirs": "/one,/two"}
NO_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, STORAGE)


@pytest.fixture
def play() -> Iterator[Play]:
    with playing(CONFIG) as run:
        yield run


def edit(sim: Sim, path: str, old: bytes, new: bytes) -> None:
    data = read_file(sim.disk, path)
    assert old in data
    write_atomic(sim.disk, path, data.replace(old, new))


def drop_line(sim: Sim, path: str, key: bytes) -> None:
    lines = read_file(sim.disk, path).splitlines(keepends=True)
    write_atomic(sim.disk, path, b"".join(line for line in lines if not line.startswith(key)))


def into_a_file(sim: Sim) -> None:
    remove_tree(sim.disk, "/two")
    write_atomic(sim.disk, "/two", b"")


def read_only(sim: Sim) -> None:
    for operation in ("pwritev", "create", "unlink", "rename", "truncate", "make_dir"):
        sim.disk.fail_next(operation, errno.EROFS, path_contains="/two/", count=None)


BAD: dict[str, Callable[[Sim], Any]] = {
    "meta.properties is garbage": lambda sim: write_atomic(sim.disk, "/two/meta.properties", b"\x80\x00"),
    "nothing can be read": lambda sim: sim.disk.fail_next("pread", errno.EIO, path_contains="/two/", count=None),
    "nothing can be opened": lambda sim: sim.disk.fail_next("open", errno.EACCES, path_contains="/two/", count=None),
    "it cannot be listed": lambda sim: sim.disk.fail_next("list", errno.EIO, path_contains="/two", count=None),
    "it is read-only": read_only,
    "it is a file": into_a_file,
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_directory_is_done_without(play: Play, what: str) -> None:
    async def scenario(sim: Sim) -> None:
        one, two = await in_two_dirs(sim)
        await sim.sim_node.stop()
        BAD[what](sim)
        await sim.sim_node.start()
        found = await log_dirs(sim)
        assert {path: result.error_code for path, result in found.items()} == {"/one": ErrorCode.NONE, "/two": STORAGE}
        assert (found["/two"].total_bytes, found["/two"].usable_bytes, found["/two"].topics) == (-1, -1, [])
        topics = (await sim.call(MetadataRequest(topics=None))).topics
        partitions = {topic.name: topic.partitions[0] for topic in topics}
        assert (partitions[one].leader_id, partitions[one].offline_replicas) == (1, [])
        assert (partitions[two].error_code, partitions[two].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partitions[two].offline_replicas == [1]
        assert (await sim.produce(two, sim.batch(b"never"))).error_code in NO_LEADER
        await sim.send(one, b"goes on")
        # New partitions go to a directory that works, and none of the lost one is created again.
        await sim.create("new", partitions=2)
        await sim.send("new", b"x")
        assert {"new-0", "new-1"} < set(sim.disk.list("/one"))
        assert f"{two}-0" not in sim.disk.list("/one")
        gauges = sim.node.services.metrics.snapshot()
        assert gauges["kafka.log:type=LogManager,name=OfflineLogDirectoryCount"] == 1
        offline = "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory="
        assert (gauges[offline + "/one"], gauges[offline + "/two"]) == (0, 1)
        assert gauges["kafka.server:type=ReplicaManager,name=OfflineReplicaCount"] == 1
        if what == "it is a file" or "garbage" in what:
            return
        # It is back at the next start.
        await sim.sim_node.stop()  # the next start finds the disk without its faults
        await sim.sim_node.start()
        assert await values(sim, two) == [b"before"]
        assert await values(sim, one) == [b"before", b"goes on"]
        await sim.send(two, b"again")

    play(scenario)


REFUSED: dict[str, tuple[Callable[[Sim], Any], str]] = {
    "missing": (lambda sim: remove_tree(sim.disk, "/two"), "No `meta.properties` found in /two"),
    "not formatted": (lambda sim: sim.disk.unlink("/two/meta.properties"), "No `meta.properties` found in /two"),
    "another node's": (lambda sim: edit(sim, "/two/meta.properties", b"node.id=1", b"node.id=2"), "node id 2"),
    "another cluster's": (
        lambda sim: edit(sim, "/two/meta.properties", b"cluster.id=", b"cluster.id=x"),
        "Invalid cluster.id in /two",
    ),
    "a copy": (
        lambda sim: write_atomic(sim.disk, "/two/meta.properties", read_file(sim.disk, "/one/meta.properties")),
        "the same directory.id",
    ),
    "in use": (lambda sim: sim.disk.lock("/two/.lock"), "locked"),
    "the metadata log's": (
        lambda sim: sim.disk.fail_next("pread", errno.EIO, path_contains="/one/meta.properties", count=None),
        "The metadata log directory /one cannot be used",
    ),
    "with a vote that nobody wrote": (
        lambda sim: write_atomic(sim.disk, "/one/__cluster_metadata-0/quorum-state", b"garbage"),
        "The metadata log in /one cannot be used: quorum-state is not readable",
    ),
    "without the beginning of the metadata log": (
        lambda sim: sim.disk.rename(f"/one/__cluster_metadata-0/{0:020}.log", f"/one/__cluster_metadata-0/{5:020}.log"),
        "the log starts at offset 5, and no snapshot has the records before it",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_directory_that_is_not_ours_refuses_the_node(play: Play, what: str) -> None:
    async def scenario(sim: Sim) -> None:
        await in_two_dirs(sim)
        await sim.sim_node.stop()
        REFUSED[what][0](sim)
        with pytest.raises(StartError) as refused:
            await sim.sim_node.start()
        assert REFUSED[what][1] in str(refused.value)

    play(scenario)


def test_a_directory_without_an_id_gets_one(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await in_two_dirs(sim)
        await sim.sim_node.stop()
        drop_line(sim, "/two/meta.properties", b"directory.id")
        await sim.sim_node.start()
        assert [result.error_code for result in (await log_dirs(sim)).values()] == [ErrorCode.NONE] * 2
        assert b"directory.id=" in read_file(sim.disk, "/two/meta.properties")

    play(scenario)
